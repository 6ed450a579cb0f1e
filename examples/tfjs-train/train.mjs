// Trains the network in Node, first with TensorFlow.js as it is, then after importing poolgrad/tfjs, and compares.
//   node train.mjs [--json] [--examples N]     --json: one line for a program instead of a table for a reader; 160 pictures, or N
import * as tf from '@tensorflow/tfjs';
import { train } from './training.mjs';

const json = process.argv.includes('--json');
const examples = process.argv.includes('--examples') ? Number(process.argv[process.argv.indexOf('--examples') + 1]) : 160;
await tf.setBackend('cpu');

function bar(label, done, all, loss) {
  if (json || !process.stderr.isTTY) return;
  const full = Math.round((done / all) * 30);
  process.stderr.write(`\r${label} [${'#'.repeat(full)}${' '.repeat(30 - full)}] ${done}/${all} loss ${loss.toFixed(4)} `);
  if (done === all) process.stderr.write('\n');
}
const run = (label) => train(tf, { examples, onBatch: (done, all, loss) => bar(label, done, all, loss) });

const before = await run('stock    ');
const { registered } = await import('poolgrad/tfjs');
const after = await run('poolgrad ');

const same = before.losses.every((loss, i) => Object.is(loss, after.losses[i]));
if (json) {
  console.log(JSON.stringify({ before, after, same, registered: registered() }));
} else {
  const row = (name, { losses, milliseconds, poolingMilliseconds }) =>
    console.log(`${name}  ${losses[0].toFixed(4)} -> ${losses.at(-1).toFixed(4)}  ${milliseconds.toFixed(0).padStart(6)} ms  ` +
                `${poolingMilliseconds.toFixed(0).padStart(5)} ms`);
  console.log('          loss              training   in pools');
  row('stock   ', before);
  row('poolgrad', after);
  console.log(same ? 'Every loss is the same to the bit.' : 'The losses differ.');
}
process.exitCode = same ? 0 : 1;
