// The training that Node and the page share: digits drawn from seven strokes, a network with two max pools, and a run of it
// that reports every batch.
//
// It is made to be repeated to the bit: all random numbers come from one generator, the loss and the optimizer only add,
// multiply and divide, and the pools do not overlap, so that no sum depends on who computes it.

const SIDE = 16;
const DIGITS = 10;
const BATCH = 32;

/** Numbers in [0, 1), the same everywhere (mulberry32). */
function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

// Strokes of a seven-segment display as [x0, y0, x1, y1], and the digits that they make.
const STROKES = [[0, 0, 6, 0], [6, 0, 6, 5], [6, 5, 6, 10], [0, 10, 6, 10], [0, 5, 0, 10], [0, 0, 0, 5], [0, 5, 6, 5]];
const SEGMENTS = ['012345', '12', '01346', '01236', '1256', '02356', '023456', '012', '0123456', '012356'];

/** A digit somewhere in the picture, in uneven ink, on noisy paper. */
function draw(next, digit, pixels) {
  const left = Math.floor(next() * (SIDE - 8)), top = Math.floor(next() * (SIDE - 12));
  for (let i = 0; i < pixels.length; ++i) pixels[i] = next() * 0.2;
  for (const segment of SEGMENTS[digit]) {
    const [x0, y0, x1, y1] = STROKES[segment];
    for (let x = x0; x <= x1; ++x) {
      for (let y = y0; y <= y1; ++y) pixels[(top + y) * SIDE + left + x] = 0.7 + next() * 0.3;
    }
  }
}

function makeData(tf, next, count) {
  const images = new Float32Array(count * SIDE * SIDE);
  const labels = new Float32Array(count * DIGITS);
  for (let i = 0; i < count; ++i) {
    const digit = i % DIGITS;
    draw(next, digit, images.subarray(i * SIDE * SIDE, (i + 1) * SIDE * SIDE));
    labels[i * DIGITS + digit] = 1;
  }
  return { images: tf.tensor4d(images, [count, SIDE, SIDE, 1]), labels: tf.tensor2d(labels, [count, DIGITS]) };
}

function makeModel(tf, next) {
  const model = tf.sequential({
    layers: [
      tf.layers.conv2d({ inputShape: [SIDE, SIDE, 1], filters: 8, kernelSize: 3, padding: 'same', activation: 'relu' }),
      tf.layers.maxPooling2d({ poolSize: 2 }),
      tf.layers.conv2d({ filters: 8, kernelSize: 3, padding: 'same', activation: 'relu' }),
      tf.layers.maxPooling2d({ poolSize: 2 }),
      tf.layers.flatten(),
      tf.layers.dense({ units: DIGITS }),
    ],
  });
  const start = model.getWeights().map((weight) => {
    const fan = weight.shape.slice(0, -1).reduce((product, size) => product * size, 1);
    const scale = weight.shape.length === 1 ? 0 : Math.sqrt(6 / fan);
    return tf.tensor(Float32Array.from({ length: weight.size }, () => (next() * 2 - 1) * scale), weight.shape);
  });
  model.setWeights(start);
  tf.dispose(start);
  model.compile({ optimizer: tf.train.sgd(0.2), loss: 'meanSquaredError' });
  return model;
}

/**
 * Trains from the same start every time. `onBatch(done, all, loss)` is called after each batch and may return a promise.
 * Gives the loss of every batch, the milliseconds all of it took, and those spent in the pooling kernels.
 */
export async function train(tf, { epochs = 3, examples = 160, onBatch = () => {} } = {}) {
  const next = generator(2026);
  const { images, labels } = makeData(tf, next, examples);
  const model = makeModel(tf, next);
  const all = epochs * Math.ceil(examples / BATCH);
  const losses = [];
  const pooling = watchPooling(tf);
  const start = performance.now();
  await model.fit(images, labels, {
    epochs, batchSize: BATCH, shuffle: false, verbose: 0, yieldEvery: 'never',
    callbacks: { onBatchEnd: async (_, { loss }) => { losses.push(loss); await onBatch(losses.length, all, loss); } },
  });
  const milliseconds = performance.now() - start;
  const poolingMilliseconds = pooling.stop();
  tf.dispose([images, labels]);
  model.dispose();
  return { losses, milliseconds, poolingMilliseconds };
}

// Times the pooling kernels of the current backend, whoever's they are, by putting a clock around them.
function watchPooling(tf) {
  const backend = tf.getBackend();
  let spent = 0;
  const stock = ['MaxPool', 'MaxPoolGrad'].map((name) => tf.getKernel(name, backend));
  const put = (config) => {
    tf.unregisterKernel(config.kernelName, backend);
    tf.registerKernel(config);
  };
  for (const config of stock) {
    put({
      ...config,
      kernelFunc: (call) => {
        const start = performance.now();
        const result = config.kernelFunc(call);
        spent += performance.now() - start;
        return result;
      },
    });
  }
  return {
    stop: () => {
      stock.forEach(put);
      return spent;
    },
  };
}
