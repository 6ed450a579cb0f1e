// The WebAssembly engine: copies arrays into the module's memory, runs, and copies results out.
//
// The copies land in a few blocks, one per argument, that only ever grow and are used again by every call: no call allocates
// once the largest problem has been seen, so ten thousand calls leave the memory as it was.
import type { EngineKind, Values } from './api/types';
import type { Raw } from './raw';
import { WasmCore, type Address, type CoreExports } from './wasm-core';

type AnyArray = Values | BigInt64Array;

const ALIGNMENT = 64;       // a cache line
const GRANULE = 64 * 1024;  // a WebAssembly page

function bytesOf(values: AnyArray): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}

export class WasmRaw implements Raw {
  readonly kind: EngineKind = 'wasm';
  readonly #core: WasmCore;
  readonly #blocks: { address: Address; capacity: number }[] = [];

  constructor(module: WebAssembly.Module) {
    const instance = new WebAssembly.Instance(module);
    const exports = instance.exports as unknown as CoreExports & { memory: WebAssembly.Memory; _initialize(): void };
    exports._initialize();
    this.#core = new WasmCore(exports, exports.memory);
  }

  version(): string { return this.#core.string(this.#core.abi.poolgrad_version()); }
  simdTarget(): string { return this.#core.string(this.#core.abi.poolgrad_simd_target()); }
  defaultThreads(): number { return 1; }
  memoryBytes(): number { return this.#core.memoryBytes(); }
  parse(text: string): Uint8Array { return this.#core.parse(text); }
  format(problem: Uint8Array): string { return this.#core.format(problem); }
  create(problem: Uint8Array, algorithm: string | null): Address { return this.#core.create(problem, algorithm); }
  destroy(plan: Address): void { this.#core.abi.poolgrad_plan_destroy(plan); }
  info(plan: Address): Uint8Array { return this.#core.info(plan); }
  explain(plan: Address): string { return this.#core.explain(plan); }
  algorithm(plan: Address, op: number): string | null { return this.#core.algorithm(plan, op); }

  forward(plan: Address, x: Values, y: Values, routes: Uint8Array | null): void {
    this.#run([x], [y, routes], ([px], [py, pr]) => this.#core.abi.poolgrad_forward(plan, px, py, pr, 0));
  }

  backward(plan: Address, dy: Values, routes: Uint8Array | null, dx: Values): void {
    this.#run([dy, routes], [dx], ([py, pr], [px]) => this.#core.abi.poolgrad_backward(plan, py, pr, px, 0));
  }

  backwardX(plan: Address, dy: Values, x: Values, dx: Values): void {
    this.#run([dy, x], [dx], ([py, px], [pd]) => this.#core.abi.poolgrad_backward_x(plan, py, px, pd, 0));
  }

  gather(plan: Address, tx: Values, routes: Uint8Array | null, ty: Values): void {
    this.#run([tx, routes], [ty], ([px, pr], [py]) => this.#core.abi.poolgrad_gather(plan, px, pr, py, 0));
  }

  unpool(plan: Address, y: Values, routes: Uint8Array, x: Values): void {
    this.#run([y, routes], [x], ([py, pr], [px]) => this.#core.abi.poolgrad_unpool(plan, py, pr, px, 0));
  }

  jacobian(plan: Address, routes: Uint8Array | null, rowStart: BigInt64Array, columns: BigInt64Array | null,
           values: Float64Array | null): void {
    this.#run([routes], [rowStart, columns, values],
              ([pr], [ps, pc, pv]) => this.#core.abi.poolgrad_jacobian(plan, pr, ps, pc, pv));
  }

  routesToIndices(plan: Address, routes: Uint8Array, numbering: number, indices: BigInt64Array): void {
    this.#run([routes], [indices],
              ([pr], [pi]) => this.#core.abi.poolgrad_routes_to_indices(plan, pr, numbering, pi, 0));
  }

  routesFromIndices(plan: Address, indices: BigInt64Array, numbering: number, routes: Uint8Array): void {
    this.#run([indices], [routes], ([pi], [pr]) => this.#core.abi.poolgrad_routes_from_indices(plan, pi, numbering, pr));
  }

  unpoolIndices(plan: Address, y: Values, indices: BigInt64Array, numbering: number, indexShape: BigInt64Array | null,
                x: Values): void {
    this.#run([y, indices, indexShape], [x], ([py, pi, ps], [px]) =>
      this.#core.abi.poolgrad_unpool_indices(plan, py, pi, numbering, ps, px));
  }

  // Blocks are made for all arrays first, because making one may move the memory; then the inputs are copied.
  #run(inputs: (AnyArray | null)[], outputs: (AnyArray | null)[],
       call: (inputs: Address[], outputs: Address[]) => number): void {
    const addresses = [...inputs, ...outputs].map((values, i) => (values === null ? 0 : this.#block(i, values.byteLength)));
    const memory = this.#core.bytes();
    inputs.forEach((values, i) => {
      if (values !== null) memory.set(bytesOf(values), addresses[i]);
    });
    this.#core.check(call(addresses.slice(0, inputs.length), addresses.slice(inputs.length)));
    const after = this.#core.bytes();
    outputs.forEach((values, i) => {
      const at = addresses[inputs.length + i] as Address;
      if (values !== null) bytesOf(values).set(after.subarray(at, at + values.byteLength));
    });
  }

  #block(index: number, bytes: number): Address {
    let block = this.#blocks[index];
    if (block === undefined || block.capacity < bytes) {
      if (block !== undefined) this.#core.abi.free(block.address);
      delete this.#blocks[index];
      const capacity = Math.ceil((bytes + ALIGNMENT) / GRANULE) * GRANULE;
      block = this.#blocks[index] = { address: this.#core.allocate(capacity), capacity: capacity - ALIGNMENT };
    }
    return Math.ceil(block.address / ALIGNMENT) * ALIGNMENT;
  }
}
