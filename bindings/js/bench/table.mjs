// Our kernels against TensorFlow.js's own, in one run on one machine: the median time of a kernel called directly, in
// milliseconds, for MaxPool and MaxPoolGrad on four layers of well-known networks.
//   node bench/table.mjs [--markdown] [--skip-stock-cpu]     the stock cpu kernels take minutes
// Columns of ours: "native" and "wasm" are the engines under the cpu backend (wasm copies tensors into its memory and back);
// "wasm in place" is the WebAssembly engine under the wasm backend, inside TensorFlow.js's memory.
import { availableParallelism, cpus } from 'node:os';
import * as tf from '@tensorflow/tfjs';
import '@tensorflow/tfjs-backend-wasm';
import { loadEngineSync } from 'poolgrad';
import * as layer from 'poolgrad/tfjs';

const LAYERS = [
  { name: '8×112×112×64, 3×3, stride 2, same', shape: [8, 112, 112, 64], filterSize: 3, strides: 2, pad: 'same' },
  { name: '8×56×56×64, 2×2, stride 2, valid', shape: [8, 56, 56, 64], filterSize: 2, strides: 2, pad: 'valid' },
  { name: '4×28×28×192, 3×3, stride 1, same', shape: [4, 28, 28, 192], filterSize: 3, strides: 1, pad: 'same' },
  { name: '8×224×224×64, 2×2, stride 2, valid', shape: [8, 224, 224, 64], filterSize: 2, strides: 2, pad: 'valid' },
];
const flags = new Set(process.argv.slice(2));

/** The median of enough calls: as many as fit in `budget` milliseconds, at least 3, at most 41. */
function median(call, budget = 1500) {
  const once = () => {
    const start = performance.now();
    call();
    return performance.now() - start;
  };
  const first = once();
  const times = Array.from({ length: Math.max(3, Math.min(41, Math.round(budget / first))) }, once);
  return times.sort((a, b) => a - b)[times.length >> 1];
}

async function measure(backend, { shape, ...attrs }, { grad = true } = {}) {
  await tf.setBackend(backend);
  const x = tf.randomUniform(shape, 0, 1, 'float32', 1);  // positive: the stock wasm kernels are wrong below zero
  const run = (name, inputs) => tf.engine().runKernel(name, inputs, attrs);
  const output = run('MaxPool', { x });
  const dy = tf.randomUniform(output.shape, 0, 1, 'float32', 2);
  const times = {
    forward: median(() => run('MaxPool', { x }).dispose()),
    backward: grad ? median(() => run('MaxPoolGrad', { dy, input: x, output }).dispose()) : NaN,
  };
  tf.dispose([x, output, dy]);
  return times;
}

const native = (() => {
  try { return loadEngineSync('native'); } catch { return null; }
})();
const rows = [];
for (const problem of LAYERS) {
  layer.unregister();
  const result = { name: problem.name };
  if (!flags.has('--skip-stock-cpu')) result['stock cpu'] = await measure('cpu', problem);
  result['stock wasm'] = await measure('wasm', problem);
  if (native) {
    layer.register({ engine: 'native', backends: ['cpu', 'wasm'] });
    result.native = await measure('cpu', problem);
  }
  layer.register({ engine: 'wasm', backends: ['cpu', 'wasm'] });
  result.wasm = await measure('cpu', problem);
  result['wasm in place'] = await measure('wasm', problem);
  rows.push(result);
  process.stderr.write('.');
}
process.stderr.write('\n');

const columns = Object.keys(rows[0]).slice(1);
const show = (ms) => (Number.isNaN(ms) ? '-' : ms >= 100 ? ms.toFixed(0) : ms >= 10 ? ms.toFixed(1) : ms.toFixed(2));
function table(title, key) {
  console.log(`\n${title}, ms\n`);
  console.log(`| layer | ${columns.join(' | ')} |`);
  console.log(`| --- |${' ---: |'.repeat(columns.length)}`);
  for (const row of rows) console.log(`| ${row.name} | ${columns.map((c) => show(row[c][key])).join(' | ')} |`);
}
console.log(`${cpus()[0].model.trim()}, ${availableParallelism()} cores, Node ${process.version}, TensorFlow.js ${tf.version_core}, ` +
            `native ${native ? `${native.simdTarget}, ${native.threads} threads` : 'not built'}`);
table('MaxPool', 'forward');
table('MaxPoolGrad', 'backward');
console.log('\nMaxPoolGrad, times faster\n');
for (const row of rows) {
  const ratio = (ours, stock) => (row[ours] && row[stock] ? `${Math.round(row[stock].backward / row[ours].backward)}×` : '-');
  console.log(`${row.name}: native against stock cpu ${ratio('native', 'stock cpu')}, wasm against stock cpu ` +
              `${ratio('wasm', 'stock cpu')}, wasm against stock wasm ${ratio('wasm in place', 'stock wasm')}`);
}
