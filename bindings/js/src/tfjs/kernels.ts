// The pooling kernels of TensorFlow.js, to their contracts, on any host and engine.
//
// Types: MaxPool keeps float32, int32 and bool; gradients are float32 whatever the input is; volumes pool to float32, as on
// the stock cpu backend. Routes do not depend on the type, so the gradient of an int32 or bool input takes its routes from an
// integer plan and spreads dy with a float one.
import type { Dtype, Engine, Plan } from 'poolgrad';
import type { KernelFunc, NamedTensorInfoMap, TensorInfo } from '@tensorflow/tfjs-core';
import { isCopy, planFor, type PlanRequest, type PoolAttrs, type ReluPoolAttrs } from './geometry';
import { type Host, type Lent, type TensorType, type Wanted } from './hosts';

/** The gradient of a max pool's gradient with respect to dy: what each window's winner finds in tx. Ours alone. */
export const GATHER = 'PoolgradGather';
/** The same for average pooling: the transpose of AvgPoolGrad. Ours alone. */
export const AVERAGE_TRANSPOSE = 'PoolgradAvgPoolGradTranspose';

/** ReLU and max pooling in one: x to y and, where a gradient is wanted, routes, whose bytes travel as a bool tensor. Ours alone. */
export const RELU_MAX_POOL = 'PoolgradReluMaxPool';
/** dy and routes to dx. */
export const RELU_MAX_POOL_GRAD = 'PoolgradReluMaxPoolGrad';
/** tx and routes to ty: the gradient of that gradient. */
export const RELU_MAX_POOL_GATHER = 'PoolgradReluMaxPoolGather';

const DTYPES: Record<TensorType, Dtype> = { float32: 'f32', int32: 'i32', bool: 'u8' };

interface Call {
  kernel: string;
  engine: Engine;
  host: Host;
  inputs: NamedTensorInfoMap;
  attrs: PoolAttrs;
}

function tensor(call: Call, name: string): TensorInfo & { dtype: TensorType } {
  const x = call.inputs[name];
  if (x === undefined) throw new Error(`${name} is missing; ${call.kernel} needs it`);
  if (!(x.dtype in DTYPES)) throw new Error(`${name} is ${x.dtype}; ${call.kernel} takes float32, int32 or bool`);
  return x as TensorInfo & { dtype: TensorType };
}

function floats(lent: Lent): Float32Array {
  const values = lent();
  return values instanceof Float32Array ? values : Float32Array.from(values);
}

function plan(call: Call, request: Omit<PlanRequest, 'kernel' | 'attrs'>): Plan {
  return planFor(call.engine, { kernel: call.kernel, attrs: call.attrs, ...request });
}

function maxForward(call: Call): TensorInfo {
  const x = tensor(call, 'x');
  const pool = plan(call, { kind: 'max', dtype: DTYPES[x.dtype], xShape: x.shape });
  if (isCopy(pool)) return call.host.share(x);
  const dtype = pool.info.rank === 3 ? 'float32' : x.dtype;
  const [y] = call.host.compute([x], [{ shape: pool.info.yShape, dtype }], ([from], [to]) => {
    if (dtype === x.dtype) {
      pool.forward(from(), { y: to(), routes: false });
    } else {
      const { y: integers } = pool.forward(from(), { routes: false });
      to().set(integers);
    }
  });
  return y as TensorInfo;
}

// Routes of x in the format of the float plan of the same geometry.
function routesOf(call: Call, float: Plan, x: TensorInfo & { dtype: TensorType }, values: Lent,
                  yShape: readonly number[]): Uint8Array {
  if (x.dtype === 'float32') return float.forward(values()).routes as Uint8Array;
  const also = { routeBits: float.info.routeBits as 2 | 4 | 8 | 16 | 32 };
  const integer = plan(call, { kind: 'max', dtype: DTYPES[x.dtype], xShape: x.shape, yShape, also });
  return integer.forward(values()).routes as Uint8Array;
}

function maxGradient(call: Call): TensorInfo {
  const dy = tensor(call, 'dy');
  const x = tensor(call, 'input');
  const pool = plan(call, { kind: 'max', dtype: 'f32', xShape: x.shape, yShape: dy.shape });
  if (isCopy(pool)) return asFloats(call, dy);
  const [dx] = call.host.compute([dy, x], [{ shape: x.shape, dtype: 'float32' }], ([from, values], [to]) => {
    if (x.dtype === 'float32') {
      pool.backwardX(floats(from), values(), to());
    } else {
      const routes = routesOf(call, pool, x, values, dy.shape);
      pool.backward(floats(from), routes, to());
    }
  });
  return dx as TensorInfo;
}

function asFloats(call: Call, x: TensorInfo): TensorInfo {
  if (x.dtype === 'float32') return call.host.share(x);
  const [made] = call.host.compute([x], [{ shape: x.shape, dtype: 'float32' }], ([from], [to]) => to().set(from()));
  return made as TensorInfo;
}

function maxWithArgmax(call: Call): TensorInfo[] {
  const x = tensor(call, 'x');
  if (x.shape.length !== 4) {
    throw new Error(`x has rank ${x.shape.length}; MaxPoolWithArgmax takes rank 4, [batch, height, width, channels]`);
  }
  const pool = plan(call, { kind: 'max', dtype: DTYPES[x.dtype], xShape: x.shape });
  const shape = pool.info.yShape;
  return call.host.compute([x], [{ shape, dtype: x.dtype }, { shape, dtype: 'int32' }], ([from], [y, indexes]) => {
    const { routes } = pool.forward(from(), { y: y() });
    const numbers = pool.indices(routes as Uint8Array, call.attrs.includeBatchInIndex ? 'tensorflow_batch' : 'tensorflow');
    indexes().set(numbers);
  });
}

// tx and output say: for each output, what tx holds where the output came from.
function gather(call: Call): TensorInfo {
  const tx = tensor(call, 'tx');
  const x = tensor(call, 'input');
  const yShape = tensor(call, 'output').shape;
  const pool = plan(call, { kind: 'max', dtype: 'f32', xShape: x.shape, yShape });
  if (isCopy(pool)) return asFloats(call, tx);
  const [ty] = call.host.compute([tx, x], [{ shape: yShape, dtype: 'float32' }], ([tangent, values], [to]) => {
    const routes = routesOf(call, pool, x, values, yShape);
    pool.gather(floats(tangent), routes, to());
  });
  return ty as TensorInfo;
}

interface ReluPool { plan: Plan; xShape: number[]; yShape: number[] }

// What TensorFlow.js copies whatever stride and padding say, its maxPool behind a ReLU rectifies one by one; so does this.
function reluPool(call: Call): ReluPool {
  const { rank, xShape } = call.attrs as ReluPoolAttrs;
  const batched = xShape.length === rank + 2;
  const request = { kind: 'max', dtype: 'f32', xShape: batched ? xShape : [1, ...xShape] } as const;
  const pool = plan(call, { ...request, also: { relu: true } });
  const made = isCopy(pool) ? plan(call, { ...request, also: { relu: true, stride: 1, padding: 0 } }) : pool;
  return { plan: made, xShape, yShape: made.info.yShape.slice(batched ? 0 : 1) };
}

function reluMax(call: Call): TensorInfo[] {
  const { keepRoutes } = call.attrs as ReluPoolAttrs;
  const { plan: pool, yShape } = reluPool(call);
  const outputs: Wanted[] = [{ shape: yShape, dtype: 'float32' }];
  if (keepRoutes) outputs.push({ shape: [pool.info.routeBytes], dtype: 'bool' });
  return call.host.compute([tensor(call, 'x')], outputs, ([from], [y, to]) => {
    pool.forward(from(), { y: y(), routes: keepRoutes, routesOut: (to as Lent | undefined)?.() as Uint8Array | undefined });
  });
}

function reluMaxGradient(call: Call): TensorInfo {
  const { plan: pool, xShape } = reluPool(call);
  const inputs = [tensor(call, 'dy'), tensor(call, 'routes')];
  const [dx] = call.host.compute(inputs, [{ shape: xShape, dtype: 'float32' }], ([dy, routes], [to]) => {
    pool.backward(dy(), routes() as Uint8Array, to());
  });
  return dx as TensorInfo;
}

function reluMaxGather(call: Call): TensorInfo {
  const { plan: pool, yShape } = reluPool(call);
  const inputs = [tensor(call, 'tx'), tensor(call, 'routes')];
  const [ty] = call.host.compute(inputs, [{ shape: yShape, dtype: 'float32' }], ([tx, routes], [to]) => {
    pool.gather(tx(), routes() as Uint8Array, to());
  });
  return ty as TensorInfo;
}

// Integer averages are made in f64, where they are exact, and cut off towards zero, as an integer tensor does.
function averageForward(call: Call): TensorInfo {
  const x = tensor(call, 'x');
  const float = x.dtype === 'float32';
  const pool = plan(call, { kind: 'avg', dtype: float ? 'f32' : 'f64', xShape: x.shape });
  if (isCopy(pool)) return call.host.share(x);
  const dtype = pool.info.rank === 3 ? 'float32' : x.dtype;
  const [y] = call.host.compute([x], [{ shape: pool.info.yShape, dtype }], ([from], [to]) => {
    if (float) {
      pool.forward(from(), { y: to() });
    } else {
      const { y: averages } = pool.forward(Float64Array.from(from()));
      to().set(averages);
    }
  });
  return y as TensorInfo;
}

function averageGradient(call: Call): TensorInfo {
  const dy = tensor(call, 'dy');
  const x = tensor(call, 'input');
  const pool = plan(call, { kind: 'avg', dtype: 'f32', xShape: x.shape, yShape: dy.shape });
  if (isCopy(pool)) return asFloats(call, dy);
  const [dx] = call.host.compute([dy], [{ shape: x.shape, dtype: 'float32' }], ([from], [to]) => {
    pool.backward(floats(from), null, to());
  });
  return dx as TensorInfo;
}

// AvgPoolGrad divides by the whole window at the borders too, so its transpose does.
function averageTranspose(call: Call): TensorInfo {
  const tx = tensor(call, 'tx');
  const yShape = tensor(call, 'output').shape;
  const request = { kind: 'avg', dtype: 'f32', xShape: tx.shape, yShape } as const;
  const { taps } = plan(call, request).info;
  const pool = plan(call, { ...request, also: { divisor: taps } });
  if (isCopy(pool)) return asFloats(call, tx);
  const [ty] = call.host.compute([tx], [{ shape: yShape, dtype: 'float32' }], ([from], [to]) => {
    pool.forward(floats(from), { y: to() });
  });
  return ty as TensorInfo;
}

const FUNCTIONS: Record<string, (call: Call) => TensorInfo | TensorInfo[]> = {
  MaxPool: maxForward,
  MaxPoolGrad: maxGradient,
  MaxPool3D: maxForward,
  MaxPool3DGrad: maxGradient,
  MaxPoolWithArgmax: maxWithArgmax,
  AvgPool: averageForward,
  AvgPoolGrad: averageGradient,
  AvgPool3D: averageForward,
  AvgPool3DGrad: averageGradient,
  [GATHER]: gather,
  [AVERAGE_TRANSPOSE]: averageTranspose,
  [RELU_MAX_POOL]: reluMax,
  [RELU_MAX_POOL_GRAD]: reluMaxGradient,
  [RELU_MAX_POOL_GATHER]: reluMaxGather,
};

export const KERNELS: readonly string[] = Object.keys(FUNCTIONS);

/** The kernel function to register. `engineFor` and `hostFor` are asked at each call, when the backend is there. */
export function kernelFunc(kernel: string, engineFor: (backend: object) => Engine,
                           hostFor: (backend: object) => Host): KernelFunc {
  const run = FUNCTIONS[kernel] as (call: Call) => TensorInfo | TensorInfo[];
  return ({ inputs, backend, attrs }) => run({
    kernel, inputs, engine: engineFor(backend), host: hostFor(backend), attrs: attrs as unknown as PoolAttrs,
  });
}
