// ReLU and max pooling in one, as functions and in models of tfjs-layers: the bits of the two one after the other, values and
// gradients, on both backends and with both engines; and what is kept for the gradient.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bits, random, values } from './common.mjs';
import * as oracle from './oracle.mjs';
import { layer, pairings, randomPool, tf, useOurs, useStock } from './tfjs.mjs';

const { fuseReluMaxPool, reluMaxPool, reluMaxPool3d } = layer;
const size = (shape) => shape.reduce((a, b) => a * b, 1);
const unsigned = (array) => array.map((v) => v + 0);  // -0 becomes 0

/** f(x), and the gradient of its sum weighted by dy. */
function both(f, x, dy) {
  return tf.tidy(() => [f(x), tf.grad((t) => tf.sum(tf.mul(f(t), dy)))(x)].map((t) => t.dataSync().slice()));
}

/** Bytes that live on between forward and backward, beyond what lived before. */
function keptBytes(f) {
  return tf.tidy(() => {
    let kept;
    const probe = tf.customGrad((y) => ({ value: y.clone(), gradFunc: (dy) => {
      kept = tf.memory().numBytes;
      return dy;
    } }));
    const before = tf.memory().numBytes;
    f(probe);
    return kept - before;
  });
}

for (const pairing of pairings) {
  const on = `on the ${pairing.backend} backend with the ${pairing.engine} engine`;

  for (const rank of [2, 3]) {
    const [fused, plain] = rank === 2 ? [reluMaxPool, tf.maxPool] : [reluMaxPool3d, tf.maxPool3d];

    test(`rank ${rank}: relu, then max pooling, to the bit, ${on}`, async () => {
      await useOurs(pairing);
      const next = random(2000 + rank);
      for (let round = 0; round < 100; ++round) {
        const { shape, attrs, g } = randomPool(next, rank);
        if (rank === 3 && Array.isArray(attrs.pad)) continue;  // tf.maxPool3d takes no such padding
        const special = round % 3 === 0 ? 0.15 : 0;
        const xs = values(next, size(shape), { special }), dys = values(next, size(g.yShape));
        const x = tf.tensor(xs, shape, 'float32'), dy = tf.tensor(dys, g.yShape, 'float32');
        const args = [attrs.filterSize, attrs.strides, attrs.pad, attrs.dimRoundingMode];
        const where = JSON.stringify({ shape, attrs });

        // By the oracle. What has no winner, for it holds nothing but padding or NaN, is 0 where maxPool says -Infinity.
        const { y, winner } = oracle.maxPool(xs.map((v) => Math.max(0, v)), g);
        const [got, dx] = both((t) => fused(t, ...args), x, dy);
        assert.equal(bits(got), bits(y.map((v) => Math.max(0, v))), where);
        assert.equal(bits(dx), bits(oracle.spread(dys, winner.map((i, o) => (y[o] > 0 ? i : -1)), xs.length)), where);

        // By tf.relu and tf.maxPool. The gradient of tf.relu multiplies by 0: it makes -0 of what is negative, and NaN of NaN.
        if (special === 0 && y.every((v) => v > -Infinity)) {
          const [two, twoDx] = both((t) => plain(tf.relu(t), ...args), x, dy);
          assert.equal(bits(got), bits(two), where);
          assert.equal(bits(dx), bits(unsigned(twoDx)), where);
        }
        tf.dispose([x, dy]);
      }
    });
  }

  test(`gradients of the gradient are those of the two, ${on}`, async () => {
    await useOurs(pairing);
    const next = random(12);
    for (const [fused, plain, shape] of [[reluMaxPool, tf.maxPool, [1, 5, 5, 2]], [reluMaxPool3d, tf.maxPool3d, [1, 4, 4, 4, 2]]]) {
      const x = tf.tensor(Array.from({ length: size(shape) }, () => next() - 0.7), shape);
      const v = tf.tensor(values(next, size(shape)), shape);
      const orders = (y) => {
        const first = tf.grad((t) => tf.sum(tf.pow(y(t), 3)));
        const second = tf.grad((t) => tf.sum(tf.mul(first(t), v)));
        return [first, second, tf.grad((t) => tf.sum(tf.mul(second(t), v)))];
      };
      const wanted = orders((t) => plain(tf.relu(t), 2, 2, 'valid')).map((f) => f(x).dataSync());
      orders((t) => fused(t, 2, 2, 'valid')).forEach((f, order) => {
        f(x).dataSync().forEach((got, i) => assert.ok(Math.abs(got - wanted[order][i]) < 1e-4, `order ${order + 1}`));
        assert.ok(wanted[order].some((w) => w !== 0));
      });
    }
  });

  test(`its gradient keeps the routes and neither x nor y, ${on}`, async () => {
    await useOurs(pairing);
    const x = tf.randomNormal([2, 16, 16, 8], 0, 1, 'float32', 1);
    const [xBytes, yBytes, routeBytes] = [4 * x.size, x.size, 2 * 8 * 8 * 8 / 2];  // 2x2 and no route: 4 bits
    const kept = (pool) => keptBytes((probe) => tf.grad((t) => probe(pool(tf.neg(t))))(x));  // of tf.neg nothing is kept
    assert.equal(kept((t) => reluMaxPool(t, 2, 2, 'valid')), 2 * yBytes + routeBytes);  // the result itself, and its dy
    assert.equal(kept((t) => tf.maxPool(tf.relu(t), 2, 2, 'valid')), 2 * xBytes + 3 * yBytes);  // and a saved y
    const { numTensors, numBytes } = tf.memory();
    for (let i = 0; i < 20; ++i) tf.tidy(() => { reluMaxPool(x, 2, 2, 'valid'); });
    tf.grad((t) => reluMaxPool(t, 2, 2, 'valid'))(x).dispose();
    assert.deepEqual([tf.memory().numTensors, tf.memory().numBytes], [numTensors, numBytes]);
  });

  test(`without a batch, with channels first, 1x1 and other types, ${on}`, async () => {
    await useOurs(pairing);
    const next = random(31);
    const image = tf.tensor3d(values(next, 5 * 4 * 3), [5, 4, 3]);
    const same = (f, g, x) => {
      const dy = tf.tensor(values(next, size(f(x).shape)), f(x).shape);
      const [one, two] = [both(f, x, dy), both(g, x, dy)];
      assert.deepEqual(f(x).shape, g(x).shape);
      assert.equal(bits(one[0]), bits(two[0]));
      assert.equal(bits(one[1]), bits(unsigned(two[1])));
    };
    same((t) => reluMaxPool(t, 2, 1, 'same'), (t) => tf.maxPool(tf.relu(t), 2, 1, 'same'), image);
    same((t) => reluMaxPool(t, 1, 2, 1), (t) => tf.maxPool(tf.relu(t), 1, 2, 1), image.slice([0, 0, 0], [2, 2, 3]));  // copies
    const volume = tf.tensor4d(values(next, 4 * 3 * 5 * 2), [4, 3, 5, 2]);
    same((t) => reluMaxPool3d(t, 2, 1, 'valid'), (t) => tf.maxPool3d(tf.relu(t), 2, 1, 'valid'), volume);
    const first = tf.tensor5d(values(next, 2 * 3 * 4 * 3 * 5), [2, 3, 4, 3, 5]);
    const turned = (t) => tf.transpose(reluMaxPool3d(tf.transpose(t, [0, 2, 3, 4, 1]), 2, 2, 'valid'), [0, 4, 1, 2, 3]);
    same((t) => reluMaxPool3d(t, 2, 2, 'valid', undefined, 'NCDHW'), turned, first);
    assert.deepEqual([...reluMaxPool([[[-1], [2]], [[-3], [-4]]], 2, 1, 'valid').dataSync()], [2]);
    if (pairing.backend === 'cpu') {  // tf.relu of the wasm backend takes floats alone
      const whole = tf.tensor4d([-3, -1, -4, 1], [1, 2, 2, 1], 'int32');
      assert.deepEqual([reluMaxPool(whole, 2, 1, 'valid').dtype, ...reluMaxPool(whole, 2, 1, 'valid').dataSync()], ['int32', 1]);
    }
    assert.throws(() => reluMaxPool(tf.ones([2, 2]), 2, 1, 'valid'), { message: 'x has rank 2; reluMaxPool takes rank 4, or 3 without a batch' });
    assert.throws(() => reluMaxPool(image, 0, 1, 'valid'), { message: /^kernel\[0\] is 0; every kernel size must be at least 1$/ });
  });
}

test('where poolgrad does not serve the backend the two are done one after the other', async () => {
  for (const backend of ['cpu', 'wasm']) {
    await useStock(backend);
    const x = tf.tensor4d([-1, -2, 3, 4, -5, -0, 7, 1], [1, 2, 4, 1]);
    assert.deepEqual([...reluMaxPool(x, 2, 2, 'valid').dataSync()], [0, 7]);
    if (backend === 'cpu') assert.deepEqual([...tf.grad((t) => reluMaxPool(t, 2, 2, 'valid'))(x).dataSync()], [0, 0, 0, 0, 0, 0, 1, 0]);
  }
});

// Models ------------------------------------------------------------------------------------------------------------------

const L = tf.layers;
const MODELS = {
  'activations of convolutions': () => tf.sequential({ layers: [
    L.conv2d({ inputShape: [12, 12, 3], filters: 5, kernelSize: 3, activation: 'relu', biasInitializer: 'randomNormal' }),
    L.maxPooling2d({ poolSize: 3, strides: 2, padding: 'same' }),
    L.conv2d({ filters: 4, kernelSize: 2, useBias: false, activation: 'relu', padding: 'same' }), L.maxPooling2d({ poolSize: 2 }),
    L.flatten(), L.dense({ units: 3 })] }),
  'layers of their own behind batch norms': () => tf.sequential({ layers: [
    L.conv2d({ inputShape: [12, 12, 3], filters: 4, kernelSize: 3 }), L.batchNormalization(), L.activation({ activation: 'relu' }),
    L.maxPooling2d({ poolSize: 2 }), L.batchNormalization(), L.reLU(), L.maxPooling2d({ poolSize: 3, strides: 1 }), L.flatten(), L.dense({ units: 3 })] }),
  'channels first': () => tf.sequential({ layers: [
    L.activation({ inputShape: [3, 12, 10], activation: 'relu' }), L.maxPooling2d({ poolSize: [3, 2], dataFormat: 'channelsFirst' }),
    L.depthwiseConv2d({ kernelSize: 2, activation: 'relu', biasInitializer: 'randomNormal' }), L.maxPooling2d({ poolSize: 2, strides: 1 }),
    L.flatten(), L.dense({ units: 3 })] }),
  'one axis': () => tf.sequential({ layers: [
    L.conv1d({ inputShape: [20, 3], filters: 4, kernelSize: 3, activation: 'relu' }), L.maxPooling1d({ poolSize: 2 }),
    L.conv1d({ filters: 3, kernelSize: 2, activation: 'relu' }), L.maxPooling1d({ poolSize: 3, strides: 2 }), L.flatten(), L.dense({ units: 3 })] }),
  'three axes': () => tf.sequential({ layers: [
    L.conv3d({ inputShape: [6, 7, 8, 2], filters: 3, kernelSize: 2, activation: 'relu' }), L.maxPooling3d({ poolSize: 2 }),
    L.activation({ activation: 'relu' }), L.maxPooling3d({ poolSize: 2, strides: 1 }), L.flatten(), L.dense({ units: 3 })] }),
};

/** The model's outputs and the gradients of all its weights, as one list of numbers each. */
function outcome(model, x, kept) {
  return tf.tidy(() => {
    const y = model.predict(x).dataSync().slice();
    const loss = () => kept(tf.mean(tf.square(model.apply(x, { training: true })))).asScalar();
    const { grads } = tf.variableGrads(loss, model.trainableWeights.map((w) => w.val));
    return { y, gradients: Object.values(grads).map((g) => g.dataSync().slice()) };
  });
}

function sameOutcome(one, two) {
  assert.equal(bits(one.y), bits(two.y));
  assert.deepEqual(one.gradients.map((g) => bits(unsigned(g))), two.gradients.map((g) => bits(unsigned(g))));
}

for (const [name, make] of Object.entries(MODELS)) {
  test(`a model is fused and unfused in place: ${name}`, async () => {
    for (const pairing of pairings.filter(({ backend }) => backend === 'cpu')) {  // the wasm backend has no gradient of a filter
      await useOurs(pairing);
      const model = make();
      const x = tf.randomNormal([2, ...model.inputs[0].shape.slice(1)], 0, 1, 'float32', 5);
      const configuration = JSON.stringify(model.toJSON());
      const weights = model.getWeights().map((w) => w.clone());
      const measure = () => {
        model.setWeights(weights);  // batch norms move theirs
        let result;
        const kept = keptBytes((probe) => { result = outcome(model, x, probe); });
        return { ...result, kept };
      };
      const before = measure();
      const pairs = fuseReluMaxPool(model);
      assert.deepEqual(pairs.map(({ fused, whyNot }) => [fused, whyNot]), [[true, ''], [true, '']]);
      const fused = measure();
      sameOutcome(fused, before);
      assert.ok(fused.kept < before.kept, `${fused.kept} of ${before.kept} bytes are kept`);
      assert.deepEqual(fuseReluMaxPool(model), pairs, 'a second call changes nothing');
      sameOutcome(measure(), before);
      assert.equal(JSON.stringify(model.toJSON()), configuration, 'it is saved as what it was');
      assert.deepEqual(fuseReluMaxPool(model, { back: true }).map((pair) => pair.pool), pairs.map((pair) => pair.pool));
      assert.deepEqual(fuseReluMaxPool(model, { back: true }), []);
      assert.deepEqual(measure(), before);
      model.dispose();
    }
  });
}

test('of a convolution, its bias, a ReLU and a max pool nothing of the size of the pool\'s input is kept', async () => {
  await useOurs(pairings[0]);
  const model = tf.sequential({ layers: [
    L.conv2d({ inputShape: [18, 18, 1], filters: 32, kernelSize: 3, activation: 'relu' }), L.maxPooling2d({ poolSize: 2 })] });
  const x = tf.randomNormal([1, 18, 18, 1]);
  const large = 4 * 16 * 16 * 32, y = large / 4, routes = 8 * 8 * 32 / 2;
  const kept = () => keptBytes((probe) => tf.variableGrads(() => tf.sum(probe(model.apply(x, { training: true }))).asScalar()));
  const before = kept();
  fuseReluMaxPool(model);
  const after = kept();
  assert.ok(before >= 3 * large, `${before} bytes are kept before`);
  assert.ok(after < large && after >= y + routes, `${after} bytes are kept after, ${large} are the pool's input`);
  assert.ok(before - after >= 3 * large - routes, `${before} before, ${after} after`);
});

test('a fused model trains to the same losses, bit for bit', async () => {
  await useOurs(pairings[0]);
  const model = MODELS['activations of convolutions']();
  const weights = model.getWeights().map((w) => w.clone());
  const x = tf.randomNormal([8, 12, 12, 3], 0, 1, 'float32', 6), y = tf.randomNormal([8, 3], 0, 1, 'float32', 7);
  const train = async () => {
    model.setWeights(weights);
    model.compile({ optimizer: tf.train.sgd(0.05), loss: 'meanSquaredError' });
    return (await model.fit(x, y, { epochs: 4, batchSize: 4, shuffle: false, verbose: 0 })).history.loss;
  };
  const losses = await train();
  fuseReluMaxPool(model);
  assert.deepEqual(await train(), losses);
  assert.ok(losses.at(-1) < losses[0]);
});

test('on the wasm backend: outputs, and gradients of the input', async () => {
  for (const pairing of pairings.filter(({ backend }) => backend === 'wasm')) {
    await useOurs(pairing);
    for (const name of ['activations of convolutions', 'channels first']) {
      const model = MODELS[name]();
      const x = tf.randomNormal([2, ...model.inputs[0].shape.slice(1)], 0, 1, 'float32', 5);
      const measure = () => tf.tidy(() => ({
        y: model.predict(x).dataSync().slice(),
        gradients: name === 'channels first' ? [] : [tf.grad((t) => tf.sum(tf.square(model.apply(t))))(x).dataSync().slice()],
      }));
      const before = measure();
      assert.ok(fuseReluMaxPool(model).every(({ fused }) => fused));
      sameOutcome(measure(), before);
    }
  }
});

test('what is not fused, and why', async () => {
  await useOurs(pairings[0]);
  const input = tf.input({ shape: [8, 8, 2] });
  const reasons = (outputs) => {
    const model = tf.model({ inputs: input, outputs });
    const x = tf.randomNormal([1, 8, 8, 2], 0, 1, 'float32', 9);
    const before = [model.predict(x)].flat().map((y) => bits(y.dataSync()));
    const pairs = fuseReluMaxPool(model);
    assert.deepEqual([model.predict(x)].flat().map((y) => bits(y.dataSync())), before);
    assert.ok(pairs.every(({ fused, whyNot }) => fused === (whyNot === '')));
    return pairs.map(({ relu, pool, whyNot }) => whyNot.replaceAll(relu, 'RELU').replaceAll(pool, 'POOL'));
  };
  const relu = () => L.activation({ activation: 'relu' });
  const pool = (options = {}) => L.maxPooling2d({ poolSize: 2, ...options });

  assert.deepEqual(reasons(pool().apply(input)), [], 'there is no ReLU');
  assert.deepEqual(reasons(pool().apply(L.reLU({ maxValue: 6 }).apply(input))), ['RELU cuts off at 6']);
  assert.deepEqual(reasons(pool().apply(L.activation({ activation: 'tanh' }).apply(input))), []);
  assert.deepEqual(reasons(L.averagePooling2d({ poolSize: 2 }).apply(relu().apply(input))), []);
  const two = relu().apply(input);
  const [first, second] = [pool().apply(two), pool({ poolSize: 3, strides: 2 }).apply(two)];
  assert.deepEqual(reasons([first, second]).map((reason) => reason.replace(/max_pooling\S+/g, 'pool')), ['RELU feeds POOL and pool', 'RELU feeds pool and POOL']);
  const shown = relu().apply(input);
  assert.deepEqual(reasons([pool().apply(shown), shown]), ['RELU is an output of the model']);
  const shared = relu();
  assert.deepEqual(reasons([pool().apply(shared.apply(input)), pool().apply(shared.apply(pool().apply(input)))]), ['RELU is used 2 times', 'RELU is used 2 times']);
  const often = pool();
  assert.deepEqual(reasons([often.apply(relu().apply(input)), often.apply(input)]), ['POOL is used 2 times']);
  const hooked = relu();
  hooked.setCallHook(() => {});
  assert.deepEqual(reasons(pool().apply(hooked.apply(input))), ['RELU has a call hook, which would see what is not rectified yet']);
  const watched = pool();
  watched.setCallHook(() => {});
  assert.deepEqual(reasons(watched.apply(relu().apply(input))), ['POOL has a call hook, which would see what is not rectified yet']);

  // A model inside a model is looked into; a pair across its border is none.
  const inner = tf.sequential({ layers: [L.maxPooling2d({ poolSize: 2, inputShape: [8, 8, 2] }), relu(), pool()] });
  assert.deepEqual(reasons(inner.apply(relu().apply(input))), ['']);

  // What comes to use the ReLU later undoes it at the next call.
  const later = relu(), rectified = later.apply(input), pooled = pool().apply(rectified);
  const model = tf.model({ inputs: input, outputs: pooled });
  assert.equal(fuseReluMaxPool(model)[0].fused, true);
  L.flatten().apply(rectified);
  assert.match(fuseReluMaxPool(model)[0].whyNot, / feeds .* and flatten/);
  assert.deepEqual([...later.apply(tf.tensor4d([-1, 2], [1, 1, 1, 2])).dataSync()], [0, 2]);

  assert.throws(() => fuseReluMaxPool({}), { message: 'fuseReluMaxPool was given something without layers; it takes a tf.LayersModel or tf.Sequential' });
  assert.throws(() => fuseReluMaxPool(tf.sequential(), { undo: true }), { message: 'fuseReluMaxPool was given the option "undo"; it takes back' });
});
