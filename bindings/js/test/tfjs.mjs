// TensorFlow.js with both of its backends, our layer, and direct calls of kernels. The files that import this run in a process
// of their own, because the registries of TensorFlow.js are global.
import * as tf from '@tensorflow/tfjs';
import '@tensorflow/tfjs-backend-wasm';
import * as layer from 'poolgrad/tfjs';
import { hasNative } from './common.mjs';

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
