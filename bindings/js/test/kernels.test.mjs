// Our kernels under TensorFlow.js, on both of its backends and with both engines: against the oracle on random problems, and
// every promise of the README.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bits, random, values } from './common.mjs';
import * as oracle from './oracle.mjs';
import { kernel, layer, pairings, randomPool as problem, tf, useOurs, useStock } from './tfjs.mjs';

const size = (shape) => shape.reduce((a, b) => a * b, 1);

for (const pairing of pairings) {
  const on = `on the ${pairing.backend} backend with the ${pairing.engine} engine`;

  for (const [rank, d3] of [[2, ''], [3, '3D']]) {
    test(`max and average pooling of rank ${rank} equal the oracle to the bit, ${on}`, async () => {
      await useOurs(pairing);
      const next = random(1000 + rank);
      for (let round = 0; round < 150; ++round) {
        const { shape, attrs, g } = problem(next, rank);
        const xs = values(next, size(shape), { special: round % 3 === 0 ? 0.1 : 0 });
        const dys = values(next, size(g.yShape));
        const x = tf.tensor(xs, shape, 'float32'), dy = tf.tensor(dys, g.yShape, 'float32');
        const where = JSON.stringify({ shape, attrs });

        const { y, winner } = oracle.maxPool(xs, g);
        const [pooled] = kernel(`MaxPool${d3}`, { x }, attrs);
        assert.deepEqual(pooled.shape, g.yShape, where);
        assert.equal(pooled.dtype, 'float32');
        assert.equal(bits(pooled.values), bits(y), where);
        const output = tf.tensor(y, g.yShape);
        const [dx] = kernel(`MaxPool${d3}Grad`, { dy, input: x, output }, attrs);
        assert.equal(bits(dx.values), bits(oracle.spread(dys, winner, xs.length)), where);
        const [ty] = kernel('PoolgradGather', { tx: x, input: x, output }, attrs);
        assert.equal(bits(ty.values), bits(oracle.gather(xs, winner)), where);

        if (!xs.every(Number.isFinite)) continue;
        const [average] = kernel(`AvgPool${d3}`, { x }, attrs);
        oracle.avgPool(xs, g).forEach((v, i) =>
          assert.ok(Object.is(v, average.values[i]) || Math.abs(v - average.values[i]) < 1e-6, where));
        const [average_dx] = kernel(`AvgPool${d3}Grad`, { dy, input: x }, attrs);
        oracle.avgPoolGrad(dys, g, xs.length).forEach((v, i) =>
          assert.ok(Math.abs(v - average_dx.values[i]) < 1e-5, where));
        tf.dispose([x, dy, output]);
      }
    });
  }

  test(`MaxPoolWithArgmax numbers inputs as TensorFlow does, ${on}`, async () => {
    await useOurs(pairing);
    const next = random(7);
    for (let round = 0; round < 60; ++round) {
      const { shape, attrs, g } = problem(next, 2);
      if (attrs.dimRoundingMode) continue;
      const xs = values(next, size(shape), { special: 0.1 });
      const { y, winner } = oracle.maxPool(xs, g);
      const plane = size(shape) / shape[0];
      for (const includeBatchInIndex of [false, true]) {
        const [result, indexes] = kernel('MaxPoolWithArgmax', { x: tf.tensor(xs, shape) }, { ...attrs, includeBatchInIndex });
        assert.equal(bits(result.values), bits(y));
        assert.equal(indexes.dtype, 'int32');
        assert.deepEqual([...indexes.values], [...winner].map((i) => (i < 0 || includeBatchInIndex ? i : i % plane)));
      }
    }
  });

  test(`int32 and bool inputs keep their type and have a float32 gradient, ${on}`, async () => {
    await useOurs(pairing);
    const xs = [3, 1, 4, 1, 5, 9, 2, 6, 5];
    const attrs = { filterSize: 2, strides: 1, pad: 'valid' };
    const dy = tf.ones([1, 2, 2, 1]);
    const x = tf.tensor4d(xs, [1, 3, 3, 1], 'int32');
    const [y] = kernel('MaxPool', { x }, attrs);
    assert.equal(y.dtype, 'int32');
    assert.deepEqual([...y.values], [5, 9, 6, 9]);
    const [dx] = kernel('MaxPoolGrad', { dy, input: x, output: dy }, attrs);
    assert.equal(dx.dtype, 'float32');
    assert.deepEqual([...dx.values], [0, 0, 0, 0, 1, 2, 0, 1, 0]);
    const [average] = kernel('AvgPool', { x }, attrs);
    assert.equal(average.dtype, 'int32');
    assert.deepEqual([...average.values], [2, 4, 3, 6]);

    const flags = tf.tensor4d([0, 1, 0, 0, 0, 0, 0, 0, 1].map(Boolean), [1, 3, 3, 1], 'bool');
    const [any] = kernel('MaxPool', { x: flags }, attrs);
    assert.equal(any.dtype, 'bool');
    assert.deepEqual([...any.values], [1, 1, 0, 1]);
    const [flags_dx] = kernel('MaxPoolGrad', { dy, input: flags, output: dy }, attrs);
    assert.deepEqual([...flags_dx.values], [0, 2, 0, 1, 0, 0, 0, 0, 1]);
    const [volume] = kernel('MaxPool3D', { x: x.reshape([1, 1, 3, 3, 1]) }, { filterSize: [1, 2, 2], strides: 1, pad: 'valid' });
    assert.equal(volume.dtype, 'float32');
    assert.deepEqual([...volume.values], [5, 9, 6, 9]);
  });

  test(`a tensor that was cast, whose values the cpu backend leaves in the array of another type, ${on}`, async () => {
    await useOurs(pairing);
    const whole = tf.tensor4d([3, 1, 4, 1, 5, 9, 2, 6, 5], [1, 3, 3, 1], 'int32');
    const dy = tf.tensor4d([1, 2, 3, 4], [1, 2, 2, 1], 'int32');
    const pools = [tf.maxPool, tf.avgPool, layer.reluMaxPool, (...all) => tf.maxPoolWithArgmax(...all).result];
    for (const pool of pools.map((pool) => (x) => pool(x, 2, 1, 'valid'))) {
      const made = (x, d) => [pool(x), tf.grad(pool)(x, d)].map((t) => [t.dtype, ...t.dataSync()]);
      assert.deepEqual(made(tf.cast(whole, 'float32'), tf.cast(dy, 'float32')),
                       made(tf.tensor(whole.dataSync(), whole.shape, 'float32'), tf.tensor(dy.dataSync(), dy.shape, 'float32')));
    }
    const flags = tf.tensor4d([0, 1, 0, 0, 0, 0, 0, 0, 1].map(Boolean), [1, 3, 3, 1], 'bool');
    const y = tf.maxPool(tf.cast(flags, 'int32'), 2, 1, 'valid');
    assert.deepEqual([y.dtype, ...y.dataSync()], ['int32', 1, 1, 0, 1]);
    assert.deepEqual([...tf.maxPool3d(tf.cast(whole.reshape([1, 1, 3, 3, 1]), 'float32'), [1, 2, 2], 1, 'valid').dataSync()], [5, 9, 6, 9]);
  });

  test(`the README's example, ${on}`, async () => {
    await useOurs(pairing);
    const x = tf.tensor4d([1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 3, 3, 1]);
    const [dx] = tf.grads((t) => tf.maxPool(t, 2, 1, 'valid'))([x]);
    assert.deepEqual([...dx.dataSync()], [0, 0, 0, 0, 1, 1, 0, 1, 1]);
  });

  test(`derivatives of any order: those of the sum of y^3, ${on}`, async () => {
    await useOurs(pairing);
    const next = random(11);
    for (const [pool, shape, filterSize] of [[tf.maxPool, [1, 5, 5, 2], 3], [tf.maxPool3d, [1, 4, 4, 4, 2], 2],
                                             [tf.avgPool, [1, 5, 5, 2], 3], [tf.avgPool3d, [1, 4, 4, 4, 2], 2]]) {
      const x = tf.tensor(Array.from({ length: size(shape) }, () => next()), shape);
      const v = tf.tensor(values(next, size(shape)), shape);
      const y = (t) => pool(t, filterSize, 2, 'valid');
      const first = tf.grad((t) => tf.sum(tf.pow(y(t), 3)));
      const second = tf.grad((t) => tf.sum(tf.mul(first(t), v)));
      const third = tf.grad((t) => tf.sum(tf.mul(second(t), v)));
      // y is linear in x near x, so with P its matrix: P'(3 y^2), P'(6 y Pv), P'(6 (Pv)^2). For max pooling Pv is a gather.
      const transpose = (w) => tf.grad((t) => tf.sum(tf.mul(y(t), w)))(x);
      const py = y(x);
      const pv = pool === tf.maxPool || pool === tf.maxPool3d
        ? tf.tensor(oracle.gather(v.dataSync(), oracle.maxPool(x.dataSync(), oracle.geometry(shape,
            { filterSize, strides: 2, pad: 'valid' })).winner), py.shape)
        : y(v);
      const close = (got, want) => got.dataSync().forEach((g, i) => assert.ok(Math.abs(g - want.dataSync()[i]) < 1e-4));
      close(first(x), transpose(tf.mul(3, tf.square(py))));
      close(second(x), transpose(tf.mul(6, tf.mul(py, pv))));
      close(third(x), transpose(tf.mul(6, tf.square(pv))));
    }
  });

  test(`the gradient of maxPoolWithArgmax is that of maxPool, ${on}`, async () => {
    await useOurs(pairing);
    const x = tf.randomUniform([2, 6, 6, 3], -1, 1, 'float32', 3);
    const w = tf.randomUniform([2, 3, 3, 3], -1, 1, 'float32', 4);
    const of = (pool) => tf.grad((t) => tf.sum(tf.mul(pool(t), w)))(x);
    const [got, want] = [of((t) => tf.maxPoolWithArgmax(t, 2, 2, 'same').result), of((t) => tf.maxPool(t, 2, 2, 'same'))];
    assert.equal(bits(got.dataSync()), bits(want.dataSync()));
  });
}

test('kernels that pool into arrays of their own first, while TensorFlow.js\'s heap grows under its tensors', async () => {
  await useOurs({ backend: 'wasm', engine: 'wasm' });
  const attrs = { filterSize: 2, strides: 1, pad: 'valid' };
  const heap = tf.backend().wasm;
  const image = (size, dtype) => tf.ones([1, size, size, 1], dtype);
  const calls = [
    ['MaxPool3D', (size) => ({ x: tf.ones([1, 2, size, size, 1], 'int32') })],
    ['MaxPoolGrad', (size) => ({ dy: image(size - 1, 'float32'), input: image(size, 'int32'), output: image(size - 1, 'int32') })],
    ['PoolgradGather', (size) => ({ tx: image(size, 'float32'), input: image(size, 'int32'), output: image(size - 1, 'int32') })],
    ['MaxPoolWithArgmax', (size) => ({ x: image(size, 'float32') })],
    ['AvgPool', (size) => ({ x: image(size, 'int32') })],
  ];
  const taken = [];
  const take = (bytes) => taken[taken.push(heap._malloc(bytes)) - 1];
  let size = 300;
  for (const [name, inputs] of calls) {
    kernel(name, inputs(3), attrs);
    const given = inputs(size);
    // Two results find room; for whatever else is asked for, the heap has to grow.
    const step = 1 << 16;
    const rooms = [0, 1].map(() => [take(4 * size ** 2), take(step)][0]);
    for (const { buffer } = heap.HEAPU8; heap.HEAPU8.buffer === buffer;) take(step);  // every gap, and then what it grew by
    while (take(step) + 2 * step < heap.HEAPU8.length);
    taken.filter((at) => rooms.includes(at)).forEach((at) => heap._free(at));
    const before = heap.HEAPU8.buffer;
    const [first] = kernel(name, given, attrs);
    assert.equal(first.values.reduce((sum, value) => sum + value, 0), (size - 1) ** 2, name);
    assert.notEqual(heap.HEAPU8.buffer, before, `${name}: the heap did not grow`);
    taken.splice(0).filter((at) => !rooms.includes(at)).forEach((at) => heap._free(at));
    tf.dispose(given);
    size = Math.round(size * 1.5);  // more than what was kept for the call before
  }
});

test('shorter than a window, volumes become empty and images round up, as stock', async () => {
  const attrs = { filterSize: [2, 1, 1], strides: 3, pad: 0, dimRoundingMode: 'ceil' };
  const shapes = () => [kernel('MaxPool3D', { x: tf.ones([1, 1, 4, 4, 1]) }, attrs)[0].shape,
                        kernel('MaxPool', { x: tf.ones([1, 1, 4, 1]) }, { ...attrs, filterSize: [2, 2] })[0].shape];
  await useStock('cpu');
  const stock = shapes();
  assert.deepEqual(stock, [[1, 0, 2, 2, 1], [1, 1, 2, 1]]);
  for (const pairing of pairings) {
    await useOurs(pairing);
    assert.deepEqual(shapes(), stock);
  }
});

test('a 1x1 filter with equal shapes copies its input, and its gradient copies dy', async () => {
  await useOurs(pairings[0]);
  const attrs = { filterSize: 1, strides: 2, pad: 1 };
  const x = tf.tensor4d([1, 2, 3, 4], [1, 2, 2, 1]);
  assert.deepEqual([...kernel('MaxPool', { x }, attrs)[0].values], [1, 2, 3, 4]);
  assert.deepEqual([...kernel('AvgPool', { x }, attrs)[0].values], [1, 2, 3, 4]);
  assert.deepEqual([...kernel('MaxPoolGrad', { dy: x, input: x, output: x }, attrs)[0].values], [1, 2, 3, 4]);
});

test('bad arguments throw the core\'s sentence, where the stock kernels accept them', async () => {
  const x = tf.tensor4d([1, 2, 3, 4], [1, 2, 2, 1]);
  const dy = tf.ones([1, 2, 2, 1]);
  const wrong = [
    ['MaxPool', { x }, { filterSize: 0, strides: 1, pad: 0 }, /^kernel\[0\] is 0; every kernel size must be at least 1$/],
    ['MaxPool', { x }, { filterSize: 1, strides: [1, 0], pad: 'same' }, /^stride\[1\] is 0; every stride must be at least 1$/],
    ['MaxPool', { x }, { filterSize: 1, strides: 1, pad: -1 }, /^padding\[0\] is -1; padding must be at least 0/],
    ['AvgPool', { x }, { filterSize: 0, strides: 1, pad: 'same' }, /^kernel\[0\] is 0;/],
    ['MaxPool', { x }, { filterSize: 1, strides: 1, pad: 0.5 }, /^padding is 0.5; it must be an integer$/],
    ['MaxPool', { x }, { filterSize: 1, strides: 1, pad: 'reflect' }, /^pad is "reflect"; MaxPool takes "same", "valid"/],
    ['MaxPool', { x }, { filterSize: 2, strides: 1, pad: 'same', dimRoundingMode: 'ceil' }, /only with numeric padding$/],
    ['MaxPoolGrad', { dy, input: x, output: dy }, { filterSize: 2, strides: 1, pad: 'valid' },
     /^dy has shape \[1,2,2,1\]; MaxPoolGrad on "max f32 nhwc 1x2x2x1 k2 s1 valid.*" expects \[1,1,1,1\]$/],
    ['AvgPoolGrad', { dy, input: x }, { filterSize: 2, strides: 2, pad: 'same' }, /^dy has shape \[1,2,2,1\]; AvgPoolGrad/],
    ['MaxPoolWithArgmax', { x: x.reshape([2, 2, 1]) }, { filterSize: 1, strides: 1, pad: 0 }, /^x has rank 3; .* takes rank 4/],
  ];
  await useStock('cpu');
  const accepted = wrong.filter(([name, inputs, attrs]) => {
    try { return kernel(name, inputs, attrs).length > 0; } catch { return false; }
  });
  assert.ok(accepted.length >= 5, `the stock kernels accept ${accepted.length}`);
  for (const pairing of pairings) {
    await useOurs(pairing);
    for (const [name, inputs, attrs, message] of wrong) assert.throws(() => kernel(name, inputs, attrs), { message });
  }
});

test('unregister puts the stock kernels and gradients back; register takes their place again', async () => {
  await useStock('cpu');
  const names = ['MaxPool', 'MaxPoolGrad', 'MaxPool3D', 'MaxPool3DGrad', 'MaxPoolWithArgmax', 'AvgPool', 'AvgPoolGrad',
                 'AvgPool3D', 'AvgPool3DGrad'];
  const kernels = () => ['cpu', 'wasm'].flatMap((backend) => names.map((name) => tf.getKernel(name, backend)));
  const gradients = () => names.map((name) => tf.getGradient(name));
  const stock = kernels(), stockGradients = gradients();
  assert.deepEqual(layer.registered(), []);
  layer.register({ backends: ['cpu', 'wasm'] });
  kernels().forEach((k, i) => assert.notEqual(k, stock[i]));
  gradients().forEach((g) => assert.ok(g));
  assert.equal(layer.registered().length, 28);
  layer.register();
  assert.deepEqual(kernels().map((k, i) => k === stock[i]), [...Array(9).fill(false), ...Array(9).fill(true)]);
  layer.unregister();
  assert.deepEqual(kernels(), stock);
  assert.deepEqual(gradients(), stockGradients);
  const wrong = [
    [{ backends: ['webgl'] }, 'backends holds "webgl"; poolgrad serves cpu and wasm'],
    [{ backends: 'cpu' }, 'backends is "cpu"; it must be a list of cpu and wasm'],
    [{ backend: 'wasm' }, 'register was given the option "backend"; it takes engine and backends'],
    ['wasm', 'register was given "wasm"; it takes an object with engine and backends'],
    [{ engine: 'gpu' }, 'engine is "gpu"; it must be one of native, wasm, auto'],
  ];
  for (const [options, message] of wrong) assert.throws(() => layer.register(options), { message });
  assert.deepEqual(layer.registered(), []);
  layer.register({ backends: ['cpu', 'cpu'] });
  layer.unregister();
  assert.deepEqual(kernels(), stock);
});
