// TensorFlow.js with both of its backends, our layer, and direct calls of kernels. The files that import this run in a process
// of their own, because the registries of TensorFlow.js are global.
import * as tf from '@tensorflow/tfjs';
import '@tensorflow/tfjs-backend-wasm';
import * as layer from 'poolgrad/tfjs';
import { hasNative, pick } from './common.mjs';
import * as oracle from './oracle.mjs';

await tf.setBackend('cpu');
export { tf, layer };

/** Every pairing of a backend of TensorFlow.js and an engine of ours. */
export const pairings = ['cpu', 'wasm'].flatMap((backend) =>
  (hasNative ? ['native', 'wasm'] : ['wasm']).map((engine) => ({ backend, engine })));

export async function useStock(backend) {
  layer.unregister();
  await tf.setBackend(backend);
}

export async function useOurs({ backend, engine }) {
  layer.register({ engine, backends: ['cpu', 'wasm'] });
  await tf.setBackend(backend);
}

/** Runs a kernel of the current backend and returns its outputs' values, shapes and types. */
export function kernel(name, inputs, attrs) {
  return tf.tidy(() => {
    const result = tf.engine().runKernel(name, inputs, attrs);
    return [result].flat().map((t) => ({ values: t.dataSync().slice(), shape: t.shape, dtype: t.dtype }));
  });
}

/** A random pool that has outputs and is no copy. */
export function randomPool(next, rank) {
  for (;;) {
    const shape = [pick(next, 1, 2), ...Array.from({ length: rank }, () => pick(next, 1, rank === 2 ? 9 : 6)), pick(next, 1, 9)];
    const filterSize = Array.from({ length: rank }, () => pick(next, 1, 4));
    const strides = Array.from({ length: rank }, () => pick(next, 1, 3));
    const numeric = { pad: pick(next, 0, 2), dimRoundingMode: ['floor', 'ceil', 'round'][pick(next, 0, 2)] };
    const explicit = {
      pad: [[0, 0], ...filterSize.map(() => [pick(next, 0, 2), pick(next, 0, 2)]), [0, 0]],
      dimRoundingMode: numeric.dimRoundingMode,
    };
    const attrs = { filterSize, strides, ...[{ pad: 'same' }, { pad: 'valid' }, numeric, explicit][pick(next, 0, 3)] };
    const g = oracle.geometry(shape, attrs);
    const copies = rank === 2 && filterSize.every((k) => k === 1) && String(g.yShape) === String(shape);
    if (g.yShape.every((n) => n >= 1) && !copies) return { shape, attrs, g };
  }
}
