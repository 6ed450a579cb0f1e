// What an engine must do, and no more: the C ABI with bytes for its structs and typed arrays for its pointers. Plan checks all
// sizes before it calls, so an engine may trust them.
import type { EngineKind, Values } from './api/types';

/** poolgrad_op */
export const OP = { forward: 0, forward_routes: 1, backward: 2, backward_x: 3, gather: 4, unpool: 5 } as const;

/** An opaque plan: a pointer in WebAssembly memory, or a native object. */
export type PlanHandle = unknown;

/** A problem as an engine takes it: the bytes of poolgrad_problem up to its pointers, whose width differs, and what those point to. */
export interface PackedProblem {
  /** The engine itself writes struct_size, the first eight bytes. */
  head: Uint8Array;
  /** Windows by table: the starts of the three axes, then their sizes. */
  tables: (BigInt64Array | null)[];
}

export interface Raw {
  readonly kind: EngineKind;
  version(): string;
  simdTarget(): string;
  defaultThreads(): number;
  memoryBytes(): number;
  parse(text: string): PackedProblem;
  format(problem: PackedProblem): string;
  create(problem: PackedProblem, algorithm: string | null): PlanHandle;
  destroy(plan: PlanHandle): void;
  info(plan: PlanHandle): Uint8Array;
  explain(plan: PlanHandle): string;
  algorithm(plan: PlanHandle, op: number): string | null;
  forward(plan: PlanHandle, x: Values, y: Values, routes: Uint8Array | null): void;
  backward(plan: PlanHandle, dy: Values, routes: Uint8Array | null, dx: Values): void;
  backwardX(plan: PlanHandle, dy: Values, x: Values, dx: Values): void;
  gather(plan: PlanHandle, tx: Values, routes: Uint8Array | null, ty: Values): void;
  unpool(plan: PlanHandle, y: Values, routes: Uint8Array, x: Values): void;
  jacobian(plan: PlanHandle, routes: Uint8Array | null, rowStart: BigInt64Array, columns: BigInt64Array | null,
           values: Float64Array | null): void;
  routesToIndices(plan: PlanHandle, routes: Uint8Array, numbering: number, indices: BigInt64Array): void;
  routesFromIndices(plan: PlanHandle, indices: BigInt64Array, numbering: number, routes: Uint8Array): void;
  unpoolIndices(plan: PlanHandle, y: Values, indices: BigInt64Array, numbering: number,
                indexShape: BigInt64Array | null, x: Values): void;
}

const CODES = ['OK', 'INVALID_ARGUMENT', 'UNSUPPORTED', 'OUT_OF_MEMORY', 'DEVICE_ERROR', 'INTERNAL_ERROR'] as const;
export type ErrorCode = (typeof CODES)[number];

/** Every error of poolgrad: the core's own sentence, and its status. */
export class PoolgradError extends Error {
  readonly code: ErrorCode;
  constructor(status: number | ErrorCode, sentence: string) {
    super(sentence);
    this.name = 'PoolgradError';
    this.code = typeof status === 'number' ? CODES[status] ?? 'INTERNAL_ERROR' : status;
  }
}

export function invalid(sentence: string): PoolgradError {
  return new PoolgradError('INVALID_ARGUMENT', sentence);
}
