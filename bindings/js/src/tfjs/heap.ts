// poolgrad inside TensorFlow.js's own WebAssembly memory, so that its tensors are read and written where they lie.
//
// dist/poolgrad-heap.wasm imports memory, malloc and free, and says where it holds addresses (wasm/pack.mjs). A block of
// TensorFlow.js's heap is taken for our data and stack, every address is moved there, and the module is started on that memory.
// It needs a memory that is not shared, and a place in its lower half: where TensorFlow.js runs threads (a cross-origin isolated
// page) or has filled 2 GiB before, there is no such engine, and the caller copies instead.
import { engineFromInstance, type Engine } from 'poolgrad';
import type { WasmBackend } from './hosts';
import { heapModuleBytes } from './platform';

const CODE_SECTION = 10;
const CUSTOM_SECTION = 0;
const PLACE = 'poolgrad.place';
const ALIGNMENT = 64;
const HALF_OF_MEMORY = 2 ** 31;

class Reader {
  at = 0;
  readonly bytes: Uint8Array;
  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
  }
  byte(): number {
    return this.bytes[this.at++] as number;
  }
  number(): number {
    let value = 0;
    let shift = 0;
    let byte: number;
    do {
      byte = this.byte();
      value |= (byte & 0x7f) << shift;
      shift += 7;
    } while (byte & 0x80);
    return value >>> 0;
  }
  take(length: number): Uint8Array {
    this.at += length;
    return this.bytes.subarray(this.at - length, this.at);
  }
}

interface Place {
  start: number;         // the address it was linked for
  size: number;
  image: Uint8Array;     // initialised data, from start
  words: number[];       // offsets in the image that hold addresses
  code: number[];        // offsets in the file that hold addresses, as five bytes of LEB128
}

function readPlace(module: Uint8Array): Place {
  let codeStart = 0;
  const file = new Reader(module);
  file.take(8);
  while (file.at < module.length) {
    const id = file.byte();
    const length = file.number();
    if (id === CODE_SECTION) codeStart = file.at;
    const body = new Reader(file.take(length));
    if (id !== CUSTOM_SECTION || new TextDecoder().decode(body.take(body.number())) !== PLACE) continue;
    const start = body.number();
    const size = body.number();
    const image = body.take(body.number());
    const places = (from: number): number[] => {
      let at = from;
      return Array.from({ length: body.number() }, () => (at += body.number()));
    };
    return { start, size, image, words: places(0), code: places(codeStart) };
  }
  throw new Error(`the module for TensorFlow.js's heap has no section "${PLACE}"; build it with build-wasm.sh`);
}

// Adds `delta` to five bytes of LEB128. Both numbers are below 2^31, so signed and unsigned ones look the same.
function moveLeb(bytes: Uint8Array, at: number, delta: number): void {
  let value = delta;
  for (let i = 0; i < 5; ++i) value += ((bytes[at + i] as number) & 0x7f) * 2 ** (7 * i);
  for (let i = 0; i < 5; ++i) bytes[at + i] = ((value >>> (7 * i)) & 0x7f) | (i < 4 ? 0x80 : 0);
}

function start(backend: WasmBackend, memory: WebAssembly.Memory): Engine | null {
  const { _malloc, _free } = backend.wasm;
  const module = heapModuleBytes();
  const place = readPlace(module);
  const block = _malloc(place.size + ALIGNMENT) >>> 0;
  if (block === 0 || block + place.size >= HALF_OF_MEMORY) {
    _free(block);
    return null;
  }
  const base = Math.ceil(block / ALIGNMENT) * ALIGNMENT;
  const delta = base - place.start;

  for (const at of place.code) moveLeb(module, at, delta);
  const instance = new WebAssembly.Instance(new WebAssembly.Module(module), {
    env: { memory, malloc: _malloc, free: _free },
  });
  new Uint8Array(memory.buffer, base, place.size).fill(0).set(place.image);
  const data = new DataView(memory.buffer, base, place.size);
  for (const at of place.words) data.setUint32(at, data.getUint32(at, true) + delta, true);
  const exports = instance.exports as { __stack_pointer: WebAssembly.Global; _initialize(): void };
  exports.__stack_pointer.value = (exports.__stack_pointer.value as number) + delta;
  exports._initialize();
  return engineFromInstance(instance, memory);
}

const engines = new WeakMap<object, Engine | null>();

/** The engine inside this backend's memory; null where it cannot be. */
export function engineInHeap(backend: WasmBackend): Engine | null {
  let engine = engines.get(backend);
  if (engine === undefined) {
    const memory = backend.wasm.asm?.memory;
    const usable = memory instanceof WebAssembly.Memory && memory.buffer instanceof ArrayBuffer;
    engine = usable ? start(backend, memory) : null;
    engines.set(backend, engine);
  }
  return engine;
}
