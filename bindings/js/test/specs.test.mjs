// TensorFlow.js's own pooling specs, from its npm package, against our kernels. The counts are exact: specs that vanish or are
// skipped fail the test as surely as specs that break.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { test } from 'node:test';
import { hasNative } from './common.mjs';

const SUITES = {
  maxPool: 26, maxPoolBackprop: 16, maxPoolWithArgmax: 14, maxPool3d: 16, maxPool3dBackprop: 11,
  pool: 25, poolBackprop: 5, avgPool: 31, avgPool3d: 21, avgPool3dBackprop: 8,
};
const runner = fileURLToPath(new URL('specs/run.mjs', import.meta.url));

function run(backend, engine, ...how) {
  const output = execFileSync(process.execPath, [runner, backend, engine, ...how],
                              { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
  return JSON.parse(output.trim().split('\n').at(-1));
}

for (const [backend, engine] of [['cpu', 'native'], ['cpu', 'wasm'], ['wasm', 'wasm'], ['wasm', 'native']]) {
  test(`173 specs pass on the ${backend} backend with the ${engine} engine`, { skip: engine === 'native' && !hasNative }, () => {
    const { passed, suites, failures } = run(backend, engine);
    assert.deepEqual(failures, []);
    assert.deepEqual(suites, SUITES);
    assert.equal(passed, 173);
  });
}

test('the specs do look: with kernels of ours that are one off, every suite has failures', () => {
  const { suites, failures } = run('cpu', 'wasm', 'wrong');
  assert.deepEqual(Object.keys(suites), Object.keys(SUITES));
  for (const [suite, specs] of Object.entries(SUITES)) assert.ok(suites[suite] < specs, suite);
  assert.equal(failures.length, 173 - Object.values(suites).reduce((a, b) => a + b));
});
