// Pooling as TensorFlow.js defines it, written out: slow, obvious, and with nothing of the library in it. Tensors are
// [batch, depth, height, width, channels]; images have depth 1. NaN never wins, padding is no candidate; of equal values the
// first wins in images and the last in volumes.

const ROUND = { floor: Math.floor, ceil: Math.ceil, round: Math.round };
const list = (value, rank) => (typeof value === 'number' ? Array(rank).fill(value) : value);

/** Per axis: where windows start and how many there are. */
function axisOf(size, kernel, stride, pad, rounding) {
  if (pad === 'same') {
    const out = Math.ceil(size / stride);
    const total = Math.max(0, (out - 1) * stride + kernel - size);
    return { size, kernel, stride, low: Math.floor(total / 2), out };
  }
  const [low, high] = pad === 'valid' ? [0, 0] : pad;
  return { size, kernel, stride, low, out: ROUND[rounding]((size + low + high - kernel) / stride) + 1 };
}

export function geometry(shape, { filterSize, strides, pad, dimRoundingMode = 'floor' }) {
  const rank = shape.length - 2;
  const kernel = list(filterSize, rank), stride = list(strides, rank);
  const pads = typeof pad === 'string' ? Array(rank).fill(pad)
    : typeof pad === 'number' ? Array(rank).fill([pad, pad]) : pad.slice(1, -1);
  const axes = kernel.map((k, i) => axisOf(shape[i + 1], k, stride[i], pads[i], dimRoundingMode));
  if (rank === 3) axes.forEach((a, i) => { if (Array.isArray(pads[i]) && a.size + pads[i][0] + pads[i][1] < a.kernel) a.out = 0; });
  const yShape = [shape[0], ...axes.map((a) => a.out), shape.at(-1)];
  if (rank === 2) axes.unshift({ size: 1, kernel: 1, stride: 1, low: 0, out: 1 });
  return { batch: shape[0], channels: shape.at(-1), axes, rank, yShape };
}

/** Calls visit(output, taps) for every output in memory order; taps: the flat numbers of its valid inputs, row-major. */
function eachWindow({ batch, channels, axes: [D, H, W] }, visit) {
  const inside = ({ size, kernel, stride, low }, o) =>
    Array.from({ length: kernel }, (_, t) => o * stride - low + t).filter((i) => i >= 0 && i < size);
  let output = 0;
  for (let n = 0; n < batch; ++n) {
    for (let d = 0; d < D.out; ++d) {
      for (let h = 0; h < H.out; ++h) {
        for (let w = 0; w < W.out; ++w) {
          const ds = inside(D, d), hs = inside(H, h), ws = inside(W, w);
          for (let c = 0; c < channels; ++c) {
            const taps = ds.flatMap((i) => hs.flatMap((j) => ws.map((k) =>
              (((n * D.size + i) * H.size + j) * W.size + k) * channels + c)));
            visit(output++, taps);
          }
        }
      }
    }
  }
}

const count = (shape) => shape.reduce((a, b) => a * b, 1);

/** y and, per output, the number of the winning input, -1 for none. */
export function maxPool(x, g) {
  const y = new Float32Array(count(g.yShape)).fill(-Infinity);
  const winner = new Int32Array(y.length).fill(-1);
  eachWindow(g, (o, taps) => taps.forEach((i) => {
    if (x[i] > y[o] || (g.rank === 3 && x[i] === y[o])) [y[o], winner[o]] = [x[i], i];
  }));
  return { y, winner };
}

export function spread(dy, winner, length) {
  const dx = new Float32Array(length);
  winner.forEach((i, o) => { if (i >= 0) dx[i] += dy[o]; });
  return dx;
}

export function gather(tx, winner) {
  return Float32Array.from(winner, (i) => (i < 0 ? 0 : tx[i]));
}

/** y divides by the inputs that are there (a window without any gives 0); the gradient divides by the whole window. */
export function avgPool(x, g) {
  const y = new Float32Array(count(g.yShape));
  eachWindow(g, (o, taps) => {
    y[o] = taps.reduce((sum, i) => sum + x[i], 0) / Math.max(taps.length, 1);
  });
  return y;
}

export function avgPoolGrad(dy, g, length) {
  const dx = new Float32Array(length);
  const taps = g.axes.reduce((product, a) => product * a.kernel, 1);
  eachWindow(g, (o, inputs) => inputs.forEach((i) => { dx[i] += dy[o] / taps; }));
  return dx;
}
