// What the browser test runs in a page: TensorFlow.js's wasm backend with the WebAssembly engine. Leaves window.outcome.
import * as tf from '@tensorflow/tfjs-core';
import '@tensorflow/tfjs-core/dist/register_all_gradients.js';
import '@tensorflow/tfjs-backend-cpu';
import { getThreadsCount, setWasmPaths } from '@tensorflow/tfjs-backend-wasm';
import { loadEngine } from 'poolgrad';
import { register, registered } from 'poolgrad/tfjs';
import { attrs, input, upstream } from './problem.mjs';

async function run() {
  setWasmPaths('/tfjs/');
  const engine = await loadEngine();
  register({ backends: ['cpu', 'wasm'] });
  await tf.setBackend('wasm');
  const copiedBefore = engine.memoryBytes();
  const x = tf.tensor4d(input(), [2, 33, 31, 24]);
  const [y] = [tf.engine().runKernel('MaxPool', { x }, attrs)];
  const dy = tf.tensor(upstream(y.size), y.shape);
  const dx = tf.engine().runKernel('MaxPoolGrad', { dy, input: x, output: y }, attrs);
  return {
    kind: engine.kind, simdTarget: engine.simdTarget, backend: tf.getBackend(), registered: registered().length,
    threads: getThreadsCount(), isolated: self.crossOriginIsolated, copied: engine.memoryBytes() > copiedBefore,
    y: [...y.dataSync()], dx: [...dx.dataSync()],
  };
}

window.outcome = await run().catch((error) => ({ error: String(error?.stack ?? error) }));
