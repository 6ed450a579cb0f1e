// Ten thousand calls leave memory flat, in both engines and under TensorFlow.js.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { setTimeout } from 'node:timers/promises';
import { test } from 'node:test';
import v8 from 'node:v8';
import vm from 'node:vm';
import { Worker } from 'node:worker_threads';
import { loadEngineSync } from 'poolgrad';
import { engineKinds, hasNative } from './common.mjs';
import { tf, useOurs } from './tfjs.mjs';

v8.setFlagsFromString('--expose-gc');
const gc = vm.runInNewContext('gc');
const MEGABYTE = 1 << 20;

async function settle() {
  for (let i = 0; i < 4; ++i) {
    gc();
    await setTimeout(5);  // finalizers run between turns
  }
}

/** Growth of the process while `call` runs `times` times, after it has run often enough to have what it keeps. */
async function growth(call, times) {
  const rounds = async (count) => {
    for (let i = 1; i <= count; ++i) {
      call();
      if (i % 1000 === 0) await settle();
    }
    await settle();
    return process.memoryUsage.rss();
  };
  const before = await rounds(times / 4);
  return await rounds(times) - before;
}

for (const kind of engineKinds) {
  const engine = loadEngineSync(kind);
  const problem = 'max f32 nhwc 1x8x8x4 k3 s2 same tfjs';
  const x = Float32Array.from({ length: 8 * 8 * 4 }, (_, i) => (i * 7919) % 1000);

  test(`${kind}: 10,000 rounds of plan, forward, backward and dispose`, async () => {
    const round = () => {
      const plan = engine.plan(problem);
      const { y, routes } = plan.forward(x);
      plan.backward(y, routes);
      plan.backwardX(y, x);
      plan.dispose();
    };
    round();
    const held = engine.memoryBytes();
    const grown = await growth(round, 10000);
    assert.equal(engine.memoryBytes(), held, 'the WebAssembly memory grew');
    assert.ok(grown < 24 * MEGABYTE, `the process grew by ${(grown / MEGABYTE).toFixed(1)} MiB`);
  });

  test(`${kind}: errors leave nothing behind`, async () => {
    const grown = await growth(() => assert.throws(() => engine.plan('max f32 nchw 1x1x3x3 k0')), 2000);
    assert.ok(grown < 16 * MEGABYTE, `the process grew by ${(grown / MEGABYTE).toFixed(1)} MiB`);
  });

  test(`${kind}: plans that nobody disposes of go when they are collected`, async () => {
    await growth(() => engine.plan(problem), 2000);
    const held = engine.memoryBytes();
    const grown = await growth(() => engine.plan(problem), 8000);
    assert.equal(engine.memoryBytes(), held, 'the WebAssembly memory grew');
    assert.ok(grown < 24 * MEGABYTE, `the process grew by ${(grown / MEGABYTE).toFixed(1)} MiB`);
  });
}

for (const pairing of [{ backend: 'cpu', engine: hasNative ? 'native' : 'wasm' }, { backend: 'wasm', engine: 'wasm' }]) {
  test(`TensorFlow.js's ${pairing.backend} backend with the ${pairing.engine} engine: 10,000 gradients`, async () => {
    await useOurs(pairing);
    const x = tf.randomUniform([1, 8, 8, 4]);
    const gradient = tf.grad((t) => tf.maxPool(t, 3, 2, 'same'));
    const call = () => tf.tidy(() => { gradient(x); });
    call();
    const { numTensors, numBytes } = tf.memory();
    const heap = () => (pairing.backend === 'wasm' ? tf.backend().wasm.HEAPU8.length : 0);
    for (let i = 0; i < 100; ++i) call();
    const held = heap();
    const grown = await growth(call, 10000);
    assert.deepEqual([tf.memory().numTensors, tf.memory().numBytes], [numTensors, numBytes]);
    assert.equal(heap(), held, 'the heap of TensorFlow.js grew');
    assert.ok(grown < 24 * MEGABYTE, `the process grew by ${(grown / MEGABYTE).toFixed(1)} MiB`);
  });
}

test('native: plans that nobody disposed of go with the worker that made them', { skip: !hasNative }, async () => {
  const work = `import('poolgrad').then(({ loadEngineSync }) => {
    const engine = loadEngineSync('native');
    globalThis.kept = Array.from({ length: 2000 }, () => engine.plan('max f32 nchw 1x8x64x64 k3 s2 p1'));
  });`;
  const rounds = async (count) => {
    for (let i = 0; i < count; ++i) await once(new Worker(work, { eval: true }), 'exit');
    await settle();
    return process.memoryUsage.rss();
  };
  const before = await rounds(5);
  const grown = await rounds(8) - before;  // by 84 MB where they stay
  assert.ok(grown < 40 * MEGABYTE, `the process grew by ${(grown / MEGABYTE).toFixed(1)} MiB`);
});
