// From a TensorFlow.js kernel's shape and attributes to a plan. All window arithmetic is left to the core's tfjs dialect; this
// only reads the attributes, and finds the rounding that a gradient was not told about from the shape of dy.
import type { Dtype, Engine, Kind, Padding, Plan, ProblemSpec, Rounding } from 'poolgrad';

/** The attributes of every pooling kernel of TensorFlow.js; each kernel has some of them. */
export interface PoolAttrs {
  filterSize: number | number[];
  strides: number | number[];
  pad: 'same' | 'valid' | number | number[][];
  dimRoundingMode?: 'floor' | 'round' | 'ceil';
  dataFormat?: 'NDHWC' | 'NCDHW';
  includeBatchInIndex?: boolean;
}

/** Those of our own ReLU and max pooling in one. */
export interface ReluPoolAttrs extends PoolAttrs {
  /** Spatial axes, 2 or 3; a tensor with one axis more has no batch. */
  rank: number;
  xShape: number[];
  keepRoutes: boolean;
}

const ROUNDINGS: readonly Rounding[] = ['floor', 'ceil', 'round'];

// A triple is accepted for two axes, as TensorFlow.js does; its last number is ignored.
function perAxis(value: number | number[], rank: number): number | number[] {
  return typeof value === 'number' ? value : value.slice(0, rank);
}

function padding(kernel: string, attrs: PoolAttrs, channelsLast: boolean): Padding {
  const { pad, dimRoundingMode } = attrs;
  if (typeof pad === 'string' && dimRoundingMode != null) {
    throw new Error(`pad is "${pad}"; ${kernel} rounds by dimRoundingMode "${dimRoundingMode}" only with numeric padding`);
  }
  if (typeof pad === 'number' || pad === 'same' || pad === 'valid') return pad;
  if (Array.isArray(pad)) return (channelsLast ? pad.slice(1, -1) : pad.slice(2)) as [number, number][];
  throw new Error(`pad is ${JSON.stringify(pad)}; ${kernel} takes "same", "valid", a number, or a [low, high] pair per axis`);
}

function problemOf(kernel: string, kind: Kind, dtype: Dtype, xShape: readonly number[], attrs: PoolAttrs): ProblemSpec {
  const rank = xShape.length - 2;
  if (rank !== 2 && rank !== 3) {
    throw new Error(`x has shape [${xShape}]; ${kernel} takes a tensor of rank 4 (images) or 5 (volumes)`);
  }
  const channelsLast = attrs.dataFormat !== 'NCDHW';
  return {
    kind, dtype, shape: [...xShape], dialect: 'tfjs',
    layout: rank === 2 ? 'nhwc' : channelsLast ? 'ndhwc' : 'ncdhw',
    kernel: perAxis(attrs.filterSize, rank),
    stride: perAxis(attrs.strides, rank),
    padding: padding(kernel, attrs, channelsLast),
    rounding: attrs.dimRoundingMode ?? 'floor',
  };
}

export function sameShape(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((size, axis) => size === b[axis]);
}

export interface PlanRequest {
  kernel: string;                  // for messages
  kind: Kind;
  dtype: Dtype;
  xShape: readonly number[];
  attrs: PoolAttrs;
  /** The shape of dy: the rounding that gives it is taken where the attributes name none. */
  yShape?: readonly number[];
  /** More fields of the problem. */
  also?: Partial<ProblemSpec>;
}

export function planFor(engine: Engine, request: PlanRequest): Plan {
  const { kernel, kind, dtype, xShape, attrs, yShape, also } = request;
  const problem = { ...problemOf(kernel, kind, dtype, xShape, attrs), ...also };
  const first = engine.cachedPlan(problem);
  if (yShape === undefined || sameShape(first.info.yShape, yShape)) return first;
  if (attrs.dimRoundingMode == null && typeof attrs.pad !== 'string') {
    for (const rounding of ROUNDINGS) {
      const plan = engine.cachedPlan({ ...problem, rounding });
      if (sameShape(plan.info.yShape, yShape)) return plan;
    }
  }
  throw new Error(`dy has shape [${yShape}]; ${kernel} on "${first.info.problem}" expects [${first.info.yShape}]`);
}

/** TensorFlow.js copies the input when a 2-D filter is 1x1 and the shapes agree, whatever stride and padding say. */
export function isCopy(plan: Plan): boolean {
  const { rank, kernel, xShape, yShape } = plan.info;
  return rank === 2 && kernel.every((size) => size === 1) && sameShape(xShape, yShape);
}
