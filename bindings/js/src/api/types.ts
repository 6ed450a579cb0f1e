// The words of the public interface. Names and meanings are those of the C ABI (include/poolgrad/poolgrad.h); the strings are
// the words of the one-line problem text, so a problem reads the same in every language.

export type Kind = 'max' | 'avg';
export type Dtype = 'f32' | 'f64' | 'f16' | 'bf16' | 'i8' | 'u8' | 'i32';
export type Layout = 'ncw' | 'nchw' | 'ncdhw' | 'nwc' | 'nhwc' | 'ndhwc';
export type Dialect = 'default' | 'torch' | 'tensorflow' | 'tfjs' | 'jax' | 'onnx';
export type Rounding = 'default' | 'floor' | 'ceil' | 'ceil_drop' | 'ceil_keep' | 'round';
export type Ties = 'default' | 'first' | 'last' | 'split' | 'all';
export type NanRule =
  | 'default' | 'propagate_first' | 'propagate_last' | 'first_place' | 'greater_equal' | 'ignore';

/** One number for every spatial axis, or one per axis: [W], [H, W] or [D, H, W]. */
export type PerAxis = number | readonly number[];
/** A word, one number for every side, one per axis, or a [low, high] pair per axis. */
export type Padding =
  | 'valid' | 'same' | 'same_lower' | number | readonly number[] | readonly (readonly [number, number])[];

export interface ProblemSpec {
  kind?: Kind;            // 'max'
  dtype?: Dtype;          // 'f32'
  layout?: Layout;        // by the length of shape: 'ncw', 'nchw' or 'ncdhw'
  /** The input's shape, in the layout's memory order: [N, C, H, W] for 'nchw', [N, H, W, C] for 'nhwc'. */
  shape: readonly number[];
  /** May be left out where every axis has a table of its own. */
  kernel?: PerAxis;
  stride?: PerAxis;       // the kernel
  padding?: Padding;      // 0
  dilation?: PerAxis;     // 1
  rounding?: Rounding;
  ties?: Ties;
  nan?: NanRule;
  dialect?: Dialect;
  routeBits?: 0 | 2 | 4 | 8 | 16 | 32;
  /** Average: padding counts in the divisor. Left out: as the dialect does. */
  countPadding?: boolean;
  /** Average: divide by this instead. */
  divisor?: number;
  /** Max: pools max(x, 0): y is at least 0, and a window with nothing above 0 has no route. */
  relu?: boolean;
  /** Adaptive pooling: so many outputs per axis, whose windows may overlap and differ in size; 0 for an axis with a kernel. */
  adaptive?: PerAxis;
  /** Windows by table: where each window of an axis begins; null for an axis without a table. */
  starts?: readonly (readonly number[] | null)[];
  /** How many taps each of them has. Left out: the kernel. */
  sizes?: readonly (readonly number[] | null)[];
}

/** The one-line form ("max f32 nhwc 1x4x4x1 k2 s2"), or its fields. */
export type Problem = string | ProblemSpec;

/** f16 and bf16 travel as their bits. */
export type Values = Float32Array | Float64Array | Uint16Array | Int8Array | Uint8Array | Int32Array;

export type Op = 'forward' | 'forward_routes' | 'backward' | 'backward_x' | 'gather' | 'unpool';

/** torch: inside each plane. tensorflow: (h*W + w)*C + c, without or with the batch. onnx: flat, row- or column-major plane. */
export type Numbering = 'torch' | 'tensorflow' | 'tensorflow_batch' | 'onnx' | 'onnx_column';

/** What a plan knows about its problem, after the dialect and the padding were resolved. */
export interface PlanInfo {
  problem: string;        // the one-line form
  kind: Kind;
  dtype: Dtype;
  layout: Layout;
  rank: number;           // spatial axes
  batch: number;
  channels: number;
  xShape: number[];       // in memory order
  yShape: number[];
  inSize: number[];       // spatial, [D, H, W] order
  outSize: number[];
  kernel: number[];
  stride: number[];
  dilation: number[];
  /** Per axis: its windows are a table (adaptive, starts), so kernel and stride do not describe them. */
  byTable: boolean[];
  relu: boolean;
  padLo: number[];
  padHi: number[];
  xElements: number;
  yElements: number;
  xBytes: number;
  yBytes: number;
  taps: number;
  routeBits: number;
  /** A route is a set of taps, one bit each (ties split and all), not the number of one tap. */
  routeMasks: boolean;
  routeBytes: number;
  mayHaveNoRoute: boolean;
  ties: Ties;
  nan: NanRule;
  rounding: Rounding;
}

export interface ForwardOptions<V extends Values = Values> {
  /** Keep routes for backward (max pooling). Default true. */
  routes?: boolean;
  /** Write y here instead of into a new array. */
  y?: V;
  /** Write routes here instead of into a new array. */
  routesOut?: Uint8Array;
}

export interface ForwardResult<V extends Values = Values> {
  y: V;
  /** Null when not asked for, and for average pooling. */
  routes: Uint8Array | null;
}

/** Of max pooling with routes, which is what maxPool gives. */
export interface MaxPoolResult<V extends Values = Values> extends ForwardResult<V> {
  routes: Uint8Array;
  shape: number[];
}

/** The selection matrix, one row per element of y, one column per element of x, both in memory order. */
export interface Jacobian {
  rowStart: Float64Array;
  columns: Float64Array;
  values: Float64Array;
}

export type EngineKind = 'native' | 'wasm';

export interface PlanOptions {
  /** The name of an algorithm from explain(), to be used for every operation it can do. */
  algorithm?: string;
}

export interface Plan {
  readonly info: PlanInfo;
  readonly engine: Engine;
  /** Geometry, the algorithm of every operation, why each faster one refused, bytes. */
  explain(): string;
  /** The algorithm chosen for an operation; null when this plan cannot do it. */
  algorithm(op: Op): string | null;
  forward(x: ArrayLike<number>, options?: ForwardOptions): ForwardResult;
  /** dx from the routes of forward. Average pooling takes null. */
  backward(dy: ArrayLike<number>, routes: Uint8Array | null, dx?: Values): Values;
  /** The same dx for a caller that kept x and no routes. */
  backwardX(dy: ArrayLike<number>, x: ArrayLike<number>, dx?: Values): Values;
  /** ty = S tx: forward mode, and the gradient of the gradient. */
  gather(tx: ArrayLike<number>, routes: Uint8Array | null, ty?: Values): Values;
  /** y at each output's route, 0 elsewhere. Max pooling only, like all that follows but jacobian. */
  unpool(y: ArrayLike<number>, routes: Uint8Array | null, x?: Values): Values;
  /** One index per output, -1 where there is no route. */
  indices(routes: Uint8Array | null, numbering: Numbering): Float64Array;
  routesFromIndices(indices: ArrayLike<number>, numbering: Numbering): Uint8Array;
  /** Unpool by a framework's indices; indexShape: the spatial shape they are numbered in (default: the input's). */
  unpoolIndices(y: ArrayLike<number>, indices: ArrayLike<number>, numbering: Numbering,
                indexShape?: readonly number[]): Values;
  jacobian(routes: Uint8Array | null): Jacobian;
  /** Frees the plan now; otherwise it goes when it is collected. */
  dispose(): void;
}

export interface Engine {
  readonly kind: EngineKind;
  readonly version: string;
  /** The SIMD target of the plans made now, e.g. "NEON", "WASM". */
  readonly simdTarget: string;
  readonly threads: number;
  plan(problem: Problem, options?: PlanOptions): Plan;
  /** A plan kept for the next call with the same problem; dispose() is not needed. The last 64 are kept. */
  cachedPlan(problem: Problem): Plan;
  parse(text: string): ProblemSpec;
  format(problem: Problem): string;
  /** Bytes the engine holds on its own: WebAssembly memory; 0 for the native engine. */
  memoryBytes(): number;
}
