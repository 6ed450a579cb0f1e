// The page: trains twice, draws as it goes, and leaves the outcome in window.outcome for whoever drives the page.
import * as tf from '@tensorflow/tfjs';
import { train } from '../training.mjs';

const at = (id) => document.getElementById(id);

function addRow(name, { losses, milliseconds, poolingMilliseconds }) {
  const cells = [name, losses[0].toFixed(4), losses.at(-1).toFixed(4), `${milliseconds.toFixed(0)} ms`,
                 `${poolingMilliseconds.toFixed(0)} ms`];
  at('rows').insertRow().append(...cells.map((text) => Object.assign(document.createElement('td'), { textContent: text })));
}

function drawLosses(losses) {
  const top = Math.max(...losses);
  const points = losses.map((loss, i) => `${(100 * i) / (losses.length - 1)},${40 - (38 * loss) / top}`).join(' ');
  at('chart').innerHTML =
    `<polyline points="${points}" fill="none" stroke="#2f81f7" stroke-width="2" vector-effect="non-scaling-stroke"/>`;
}

async function run(name, from) {
  const onBatch = (done, all) => {
    at('progress').value = from + done / all / 2;
    return new Promise((resume) => setTimeout(resume));  // let the page draw
  };
  const result = await train(tf, { onBatch });
  addRow(name, result);
  drawLosses(result.losses);
  return result;
}

await tf.setBackend('cpu');
const before = await run('stock', 0);
const { registered } = await import('poolgrad/tfjs');
const after = await run('poolgrad', 0.5);
const same = before.losses.every((loss, i) => Object.is(loss, after.losses[i]));
at('verdict').textContent = same ? 'Every loss is the same to the bit.' : 'The losses differ.';
window.outcome = { before, after, same, registered: registered() };
