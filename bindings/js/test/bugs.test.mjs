// Bugs of the stock kernels that a user of ours does not meet. Each test shows the stock kernel wrong and ours right, so it
// fails as well when TensorFlow.js mends one: then the README's list must lose it.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { random } from './common.mjs';
import * as oracle from './oracle.mjs';
import { kernel, pairings, tf, useOurs, useStock } from './tfjs.mjs';

const size = (shape) => shape.reduce((a, b) => a * b, 1);
const onWasm = pairings.filter((p) => p.backend === 'wasm');

/** `compute` gives values that are wrong on the stock backend and right on each of our pairings. */
async function stockWrongOursRight(backend, ours, want, compute) {
  await useStock(backend);
  let stock;
  try {
    stock = [...compute()];
  } catch {
    stock = 'it throws';
  }
  assert.notDeepEqual(stock, [...want], 'the stock kernel is right by now');
  for (const pairing of ours) {
    await useOurs(pairing);
    assert.deepEqual([...compute()], [...want], JSON.stringify(pairing));
  }
}

test('the gradient of a pool that rounds up loses the last windows, because it drops dimRoundingMode', async () => {
  const x = tf.tensor4d([1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 3, 3, 1]);
  const gradient = (pool) => () => tf.tidy(() => tf.grad((t) => pool(t, 2, 2, 0, 'ceil'))(x).dataSync());
  await stockWrongOursRight('cpu', pairings, [0, 0, 0, 0, 1, 1, 0, 1, 1], gradient(tf.maxPool));
  await stockWrongOursRight('cpu', pairings, [1, 1, 1, 1, 1, 1, 1, 1, 1].map((v) => v / 4), gradient(tf.avgPool));
});

test('our MaxPoolGrad finds the rounding by itself, called by the stock gradient or by hand without dimRoundingMode', async () => {
  const x = tf.tensor4d([1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 3, 3, 1]);
  const dy = tf.ones([1, 2, 2, 1]);
  await stockWrongOursRight('cpu', pairings, [0, 0, 0, 0, 1, 1, 0, 1, 1], () =>
    kernel('MaxPoolGrad', { dy, input: x, output: dy }, { filterSize: 2, strides: 2, pad: 0 })[0].values);
});

test('numeric padding of images uses the height\'s filter and stride for the width', async () => {
  const x = tf.tensor4d(Array.from({ length: 20 }, (_, i) => i), [1, 4, 5, 1]);
  const shape = (attrs) => () => kernel('MaxPool', { x }, attrs)[0].shape;
  await stockWrongOursRight('cpu', pairings, [1, 3, 3, 1], shape({ filterSize: [2, 3], strides: 1, pad: 0 }));
  await stockWrongOursRight('cpu', pairings, [1, 5, 2, 1], shape({ filterSize: 2, strides: [1, 3], pad: 1 }));
});

test('MaxPool3DGrad is wrong where the filter\'s height and width differ', async () => {
  const next = random(5);
  const shape = [1, 3, 5, 6, 1], attrs = { filterSize: [2, 2, 3], strides: 1, pad: 'valid' };
  const xs = Float32Array.from({ length: size(shape) }, () => next());
  const g = oracle.geometry(shape, attrs);
  const dys = Float32Array.from({ length: size(g.yShape) }, (_, i) => i + 1);
  const x = tf.tensor(xs, shape), dy = tf.tensor(dys, g.yShape);
  const want = oracle.spread(dys, oracle.maxPool(xs, g).winner, xs.length);
  await stockWrongOursRight('cpu', pairings, want, () => kernel('MaxPool3DGrad', { dy, input: x, output: dy }, attrs)[0].values);
});

test('volumes with padding "same" and strides beyond the filter are cropped at the start', async () => {
  const xs = [1, 2, 3, 4, 5, 6], attrs = { filterSize: 1, strides: [1, 1, 3], pad: 'same' };
  const x = tf.tensor5d(xs, [1, 1, 1, 6, 1]);
  for (const name of ['MaxPool3D', 'AvgPool3D']) {
    await stockWrongOursRight('cpu', pairings, [1, 4], () => kernel(name, { x }, attrs)[0].values);
  }
});

// Numbers around -2 with a deviation near 1: most windows of 2x2 have a maximum at or below zero.
const next = random(3);
const negative = Float32Array.from({ length: 8 * 8 * 4 }, () => next() + next() + next() - 3.5);

test('the wasm backend loses the gradient of windows whose maximum is not positive', async () => {
  const shape = [1, 8, 8, 4], attrs = { filterSize: 2, strides: 2, pad: 'valid' };
  const g = oracle.geometry(shape, attrs);
  const { winner } = oracle.maxPool(negative, g);
  const ones = new Float32Array(size(g.yShape)).fill(1);
  const gradient = () => {
    const x = tf.tensor(negative, shape), dy = tf.tensor(ones, g.yShape);
    return kernel('MaxPoolGrad', { dy, input: x, output: dy }, attrs)[0].values;
  };
  await stockWrongOursRight('wasm', onWasm, oracle.spread(ones, winner, negative.length), gradient);
  await useStock('wasm');
  const kept = gradient().reduce((a, b) => a + b, 0);
  assert.ok(kept < 0.2 * ones.length, `the stock kernel keeps ${kept} of ${ones.length}`);
});

test('the wasm backend finds wrong indexes for windows whose maximum is not positive', async () => {
  const shape = [1, 8, 8, 4], attrs = { filterSize: 2, strides: 2, pad: 'valid', includeBatchInIndex: false };
  const { winner } = oracle.maxPool(negative, oracle.geometry(shape, attrs));
  await stockWrongOursRight('wasm', onWasm, winner, () =>
    kernel('MaxPoolWithArgmax', { x: tf.tensor(negative, shape) }, attrs)[1].values);
});

test('the wasm backend pools volumes wrongly where the maximum is not positive', async () => {
  const shape = [1, 4, 8, 8, 1], attrs = { filterSize: 2, strides: 2, pad: 'valid' };
  const g = oracle.geometry(shape, attrs);
  const { y, winner } = oracle.maxPool(negative, g);
  const ones = new Float32Array(y.length).fill(1);
  await stockWrongOursRight('wasm', onWasm, y, () => kernel('MaxPool3D', { x: tf.tensor(negative, shape) }, attrs)[0].values);
  await stockWrongOursRight('wasm', onWasm, oracle.spread(ones, winner, negative.length), () => {
    const dy = tf.tensor(ones, g.yShape);
    return kernel('MaxPool3DGrad', { dy, input: tf.tensor(negative, shape), output: dy }, attrs)[0].values;
  });
});

test('the wasm backend cannot pool int32: it throws, or reads the bits as floats', async () => {
  const xs = [3, 1, 4, 1, 5, 9, 2, 6, 5];
  const x = () => tf.tensor4d(xs, [1, 3, 3, 1], 'int32');
  const attrs = { filterSize: 2, strides: 1, pad: 'valid' };
  await stockWrongOursRight('wasm', onWasm, [5, 9, 6, 9], () => kernel('MaxPool', { x: x() }, attrs)[0].values);
  await stockWrongOursRight('wasm', onWasm, [2, 4, 3, 6], () => kernel('AvgPool', { x: x() }, attrs)[0].values);
  await stockWrongOursRight('wasm', onWasm, [0, 0, 0, 0, 1, 2, 0, 1, 0], () => {
    const dy = tf.ones([1, 2, 2, 1]);
    return kernel('MaxPoolGrad', { dy, input: x(), output: dy }, attrs)[0].values;
  });
});

test('an average over a window that holds nothing but padding is NaN', async () => {
  const x = tf.ones([1, 2, 2, 1]);
  await stockWrongOursRight('cpu', pairings, [1, 0, 0, 0], () =>
    kernel('AvgPool', { x }, { filterSize: 2, strides: 3, pad: [[0, 0], [0, 3], [0, 3], [0, 0]] })[0].values);
});
