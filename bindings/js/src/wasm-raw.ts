// The WebAssembly engine: copies arrays into the module's memory, runs, and copies results out. An array that already lies in
// that memory is used where it is.
//
// The copies land in a few blocks, one per argument, that only ever grow and are used again by every call: no call allocates
// once the largest problem has been seen, so ten thousand calls leave the memory as it was.
import type { EngineKind, Values } from './api/types';
import type { PackedProblem, Raw } from './raw';
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

  /** `instance` was initialised, and works on `memory`. */
  constructor(instance: WebAssembly.Instance, memory: WebAssembly.Memory) {
    this.#core = new WasmCore(instance.exports as unknown as CoreExports, memory);
  }

  version(): string { return this.#core.string(this.#core.abi.poolgrad_version()); }
  simdTarget(): string { return this.#core.string(this.#core.abi.poolgrad_simd_target()); }
  defaultThreads(): number { return 1; }
  memoryBytes(): number { return this.#core.buffer().byteLength; }
  parse(text: string): PackedProblem { return this.#core.parse(text); }
  format(problem: PackedProblem): string { return this.#core.format(problem); }
  create(problem: PackedProblem, algorithm: string | null): Address { return this.#core.create(problem, algorithm); }
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

  // First all addresses, because making a block may grow the memory, which detaches views of it; then the inputs are copied.
  #run(inputs: (AnyArray | null)[], outputs: (AnyArray | null)[],
       call: (inputs: Address[], outputs: Address[]) => number): void {
    const own = this.#core.buffer();
    const arrays = [...inputs, ...outputs];
    const resident = arrays.map((values) => values !== null && values.buffer === own);
    const found = arrays.map((values, i) => (resident[i] ? (values as AnyArray).byteOffset : 0));
    const addresses = arrays.map((values, i) =>
      (values === null || resident[i] ? found[i] as Address : this.#block(i, values.byteLength)));
    const copied = (i: number): boolean => arrays[i] !== null && !resident[i];

    const memory = this.#core.bytes();
    inputs.forEach((values, i) => {
      if (copied(i)) memory.set(bytesOf(values as AnyArray), addresses[i]);
    });
    this.#core.check(call(addresses.slice(0, inputs.length), addresses.slice(inputs.length)));
    const after = this.#core.bytes();
    outputs.forEach((values, o) => {
      const i = inputs.length + o;
      const at = addresses[i] as Address;
      if (copied(i)) bytesOf(values as AnyArray).set(after.subarray(at, at + (values as AnyArray).byteLength));
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
