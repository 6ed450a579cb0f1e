// The C ABI inside a WebAssembly instance, by address: strings, structs and plans, no arrays. The copying engine (wasm-raw.ts)
// and the one that lives inside TensorFlow.js's own heap (tfjs/heap.ts) both stand on it.
//
// A view of the memory is taken anew for every use: any call may grow the memory, which detaches all earlier views.
import { HEAD_BYTES, INFO_BYTES, OUTPUTS } from './problem';
import { PoolgradError, type PackedProblem } from './raw';

export type Address = number;

/** What the module exports. Every argument is an address, a size or an enum: 32-bit integers all. */
export interface CoreExports {
  malloc(bytes: number): Address;
  free(address: Address): void;
  poolgrad_problem_parse_sized(text: Address, problem: Address, size: number): number;
  poolgrad_problem_format(problem: Address, text: Address, capacity: number, needed: Address): number;
  poolgrad_plan_create(problem: Address, options: Address, plan: Address): number;
  poolgrad_plan_destroy(plan: Address): void;
  poolgrad_plan_info(plan: Address, info: Address): number;
  poolgrad_plan_explain(plan: Address, text: Address, capacity: number, needed: Address): number;
  poolgrad_plan_algorithm(plan: Address, op: number): Address;
  poolgrad_forward(plan: Address, x: Address, y: Address, routes: Address, exec: Address): number;
  poolgrad_backward(plan: Address, dy: Address, routes: Address, dx: Address, exec: Address): number;
  poolgrad_backward_x(plan: Address, dy: Address, x: Address, dx: Address, exec: Address): number;
  poolgrad_gather(plan: Address, tx: Address, routes: Address, ty: Address, exec: Address): number;
  poolgrad_unpool(plan: Address, y: Address, routes: Address, x: Address, exec: Address): number;
  poolgrad_jacobian(plan: Address, routes: Address, rowStart: Address, columns: Address, values: Address): number;
  poolgrad_routes_to_indices(plan: Address, routes: Address, numbering: number, indices: Address, exec: Address): number;
  poolgrad_routes_from_indices(plan: Address, indices: Address, numbering: number, routes: Address): number;
  poolgrad_unpool_indices(plan: Address, y: Address, indices: Address, numbering: number, indexShape: Address,
                          x: Address): number;
  poolgrad_last_error(): Address;
  poolgrad_version(): Address;
  poolgrad_simd_target(): Address;
}

const TABLES = 6;                // pointers behind the head of poolgrad_problem
const PROBLEM_BYTES = HEAD_BYTES + 4 * TABLES;
const OPTIONS_BYTES = 16;       // poolgrad_plan_options on wasm32: uint64_t struct_size, a pointer, never_compile

export class WasmCore {
  readonly #memory: WebAssembly.Memory;
  readonly abi: CoreExports;

  constructor(abi: CoreExports, memory: WebAssembly.Memory) {
    this.abi = abi;
    this.#memory = memory;
  }

  /** The memory now. Any call into the module may put another in its place. */
  buffer(): ArrayBuffer {
    return this.#memory.buffer;
  }

  bytes(): Uint8Array {
    return new Uint8Array(this.#memory.buffer);
  }

  allocate(bytes: number): Address {
    const address = bytes < 2 ** 32 ? this.abi.malloc(bytes) >>> 0 : 0;  // malloc would see the rest of the division
    if (address === 0 && bytes > 0) {
      throw new PoolgradError('OUT_OF_MEMORY', `the WebAssembly memory has no room for ${bytes} more bytes`);
    }
    return address;
  }

  check(status: number): void {
    if (status !== 0) throw new PoolgradError(status, this.string(this.abi.poolgrad_last_error()));
  }

  string(address: Address): string {
    const memory = this.bytes();
    const start = address >>> 0;
    return new TextDecoder().decode(memory.slice(start, memory.indexOf(0, start)));
  }

  /** Calls f with a block of `bytes` that is freed afterwards. */
  lend<T>(bytes: number, f: (address: Address) => T): T {
    const address = this.allocate(bytes);
    try {
      return f(address);
    } finally {
      this.abi.free(address);
    }
  }

  lendString<T>(text: string, f: (address: Address) => T): T {
    const encoded = new TextEncoder().encode(text);
    return this.lend(encoded.length + 1, (address) => {
      const memory = this.bytes();
      memory.set(encoded, address);
      memory[address + encoded.length] = 0;
      return f(address);
    });
  }

  read32(address: Address): number {
    return new DataView(this.#memory.buffer).getUint32(address, true);
  }

  // Calls a function that writes text into a buffer and the size it needs behind it: first with none, then with enough.
  #text(write: (text: Address, capacity: number, needed: Address) => number): string {
    return this.lend(4, (needed) => {
      this.check(write(0, 0, needed));
      const capacity = this.read32(needed);
      return this.lend(capacity, (text) => {
        this.check(write(text, capacity, needed));
        return this.string(text);
      });
    });
  }

  parse(text: string): PackedProblem {
    return this.lendString(text, (source) => this.lend(PROBLEM_BYTES, (problem) => {
      this.check(this.abi.poolgrad_problem_parse_sized(source, problem, PROBLEM_BYTES));
      const data = new DataView(this.#memory.buffer, problem, PROBLEM_BYTES);
      const table = (at: number): BigInt64Array | null => {
        const address = data.getUint32(HEAD_BYTES + 4 * at, true);
        const length = Number(data.getBigInt64(OUTPUTS + 8 * (at % 3), true));
        return address === 0 ? null : new BigInt64Array(this.#memory.buffer, address, length).slice();
      };
      return { head: this.bytes().slice(problem, problem + HEAD_BYTES), tables: Array.from({ length: TABLES }, (_, at) => table(at)) };
    }));
  }

  /** Calls f with the struct of a problem, and its tables behind it. */
  #lendProblem<T>({ head, tables }: PackedProblem, f: (address: Address) => T): T {
    const bytes = tables.reduce((sum, table) => sum + (table?.byteLength ?? 0), PROBLEM_BYTES);
    return this.lend(bytes, (problem) => {
      this.bytes().set(head, problem);
      const data = new DataView(this.#memory.buffer);
      data.setBigUint64(problem, BigInt(PROBLEM_BYTES), true);
      let next = problem + PROBLEM_BYTES;
      tables.forEach((table, at) => {
        data.setUint32(problem + HEAD_BYTES + 4 * at, table === null ? 0 : next, true);
        if (table === null) return;
        new BigInt64Array(this.#memory.buffer, next, table.length).set(table);
        next += table.byteLength;
      });
      return f(problem);
    });
  }

  format(problem: PackedProblem): string {
    return this.#lendProblem(problem, (address) =>
      this.#text((text, capacity, needed) => this.abi.poolgrad_problem_format(address, text, capacity, needed)));
  }

  create(problem: PackedProblem, algorithm: string | null): Address {
    const make = (options: Address): Address => this.#lendProblem(problem, (source) => this.lend(4, (plan) => {
      this.check(this.abi.poolgrad_plan_create(source, options, plan));
      return this.read32(plan);
    }));
    if (algorithm === null) return make(0);
    return this.lendString(algorithm, (name) => this.lend(OPTIONS_BYTES, (options) => {
      const data = new DataView(this.#memory.buffer, options, OPTIONS_BYTES);
      data.setBigUint64(0, BigInt(OPTIONS_BYTES), true);
      data.setUint32(8, name, true);
      data.setUint32(12, 0, true);
      return make(options);
    }));
  }

  info(plan: Address): Uint8Array {
    return this.lend(INFO_BYTES, (info) => {
      new DataView(this.#memory.buffer).setBigUint64(info, BigInt(INFO_BYTES), true);
      this.check(this.abi.poolgrad_plan_info(plan, info));
      return this.bytes().slice(info, info + INFO_BYTES);
    });
  }

  explain(plan: Address): string {
    return this.#text((text, capacity, needed) => this.abi.poolgrad_plan_explain(plan, text, capacity, needed));
  }

  algorithm(plan: Address, op: number): string | null {
    const name = this.abi.poolgrad_plan_algorithm(plan, op);
    return name === 0 ? null : this.string(name);
  }
}
