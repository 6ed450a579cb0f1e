// ReLU and max pooling in one, with the arguments of tf.maxPool and tf.maxPool3d: relu(maxPool(x)) is maxPool(relu(x)), and what
// does not exceed 0 has no route. For its gradient it keeps routes, a few bits per output, and lets go of x.
//
// Where poolgrad does not serve the backend, and for int32 and bool, the two are done one after the other.
import {
  engine, getBackend, getKernel, maxPool, maxPool3d, relu, Tensor, tensor, tidy, type NamedAttrMap, type Tensor3D, type Tensor4D,
  type Tensor5D, type TensorLike,
} from '@tensorflow/tfjs-core';
import type { ReluPoolAttrs } from './geometry';
import { RELU_MAX_POOL } from './kernels';

export type Pad = 'valid' | 'same' | number | number[][];
export type DimRoundingMode = 'floor' | 'round' | 'ceil';

type Attrs = Omit<ReluPoolAttrs, 'xShape' | 'keepRoutes'>;

function pool<T extends Tensor>(name: string, x: T | TensorLike, attrs: Attrs, oneAfterTheOther: (x: T) => T): T {
  return tidy(name, () => {
    const from = (x instanceof Tensor ? x : tensor(x)) as T;
    const { rank } = attrs;
    if (from.rank !== rank + 1 && from.rank !== rank + 2) {
      throw new Error(`x has rank ${from.rank}; ${name} takes rank ${rank + 2}, or ${rank + 1} without a batch`);
    }
    if (from.dtype !== 'float32' || getKernel(RELU_MAX_POOL, getBackend()) == null) return oneAfterTheOther(relu(from));
    const all: ReluPoolAttrs = { ...attrs, xShape: from.shape, keepRoutes: engine().state.gradientDepth > 0 };
    const [y] = engine().runKernel(RELU_MAX_POOL, { x: from }, all as unknown as NamedAttrMap) as Tensor[];
    return y as T;
  });
}

/** maxPool(relu(x)) of images, [batch, height, width, channels] or without the batch. */
export function reluMaxPool<T extends Tensor3D | Tensor4D>(
  x: T | TensorLike, filterSize: [number, number] | number, strides: [number, number] | number, pad: Pad,
  dimRoundingMode?: DimRoundingMode): T {
  return pool('reluMaxPool', x, { rank: 2, filterSize, strides, pad, dimRoundingMode },
              (rectified) => maxPool(rectified, filterSize, strides, pad as 'valid', dimRoundingMode));
}

/** maxPool3d(relu(x)) of volumes, [batch, depth, height, width, channels] or without the batch. */
export function reluMaxPool3d<T extends Tensor4D | Tensor5D>(
  x: T | TensorLike, filterSize: [number, number, number] | number, strides: [number, number, number] | number, pad: 'valid' | 'same' | number,
  dimRoundingMode?: DimRoundingMode, dataFormat: 'NDHWC' | 'NCDHW' = 'NDHWC'): T {
  return pool('reluMaxPool3d', x, { rank: 3, filterSize, strides, pad, dimRoundingMode, dataFormat },
              (rectified) => maxPool3d(rectified, filterSize, strides, pad, dimRoundingMode, dataFormat));
}
