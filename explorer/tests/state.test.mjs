// The state and its form in the address, the problem line, the programs and the small readers: everything that needs no browser.
import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { loadModule, startLibrary } from './helpers.mjs';

let engine;
let state;
before(async () => {
  engine = await startLibrary();
  state = await loadModule('src/state.ts');
});

/** A small generator of states, seeded, so that a failure can be repeated. */
function randomStates(seed, amount) {
  let current = seed;
  const random = () => (current = (current * 1103515245 + 12345) & 0x7fffffff) / 0x7fffffff;
  const whole = (most) => Math.floor(random() * (most + 1));
  const pick = (list) => list[whole(list.length - 1)];
  const value = () => pick([0, -0, 1.5, -7, 1e-7, 3e20, NaN, Infinity, -Infinity, whole(99), 0.1]);
  const words = () => [pick(['0', '1', '3', '-2', '', '1.5']), pick(['1', '2', '12'])];
  return Array.from({ length: amount }, () => {
    const rows = 1 + whole(15);
    const columns = 1 + whole(15);
    return {
      ...state.initialState(),
      mode: pick(['grid', 'image']), rows, columns,
      x: Array.from({ length: rows * columns }, value),
      dy: { rows: 2, columns: 3, values: Array.from({ length: 6 }, value) },
      kernel: words(), stride: words(), dilation: words(), layer: words(),
      ...pick([{ padding: 'valid' }, { padding: 'same' }, { padding: 'same_lower' },
        { padding: 'explicit', pads: [...words(), ...words()] }]),
      adaptive: pick([null, words()]), relu: pick([true, false]), rounding: pick(state.ROUNDINGS), ties: pick(state.TIES), nan: pick(state.NANS), dialect: pick(state.DIALECTS),
      at: pick([null, { grid: pick(state.GRID_NAMES), row: whole(9), column: whole(9) }]),
      step: pick([null, 0, whole(40)]), showWindows: pick([true, false]), code: pick(state.CODE_TABS),
    };
  });
}

test('an address holds the whole state', () => {
  for (const original of randomStates(7, 400)) {
    const restored = state.decodeState(`#${state.encodeState(original)}`);
    assert.deepEqual(restored, original);
  }
});

test('an own image travels in the address', () => {
  const image = `data:image/jpeg;base64,${Buffer.from(Array.from({ length: 256 }, (_, i) => i)).toString('base64')}`;
  const original = { ...state.initialState(), mode: 'image', image };
  assert.deepEqual(state.decodeState(state.encodeState(original)), original);
});

test('what is unreadable in an address falls back field by field', () => {
  const plain = state.initialState();
  for (const fragment of ['', '#', '#x=1,2;3', '#x=a', '#k=2', '#ties=sometimes', '#at=z.1.1', '#step=-1', '#image=http://a/b.png',
    `#x=${Array(17).fill('1').join(';')}`, '#p=1x1', '#%zz']) {
    assert.deepEqual(state.decodeState(fragment), plain, fragment);
  }
  assert.deepEqual(state.decodeState('#k=3x3&ties=sometimes').kernel, ['3', '3']);
});

test('dy keeps its values where the output keeps its places', () => {
  const dy = { rows: 2, columns: 2, values: [1, 2, 3, 4] };
  assert.deepEqual(state.fitDy(dy, 2, 2), [1, 2, 3, 4]);
  assert.deepEqual(state.fitDy(dy, 3, 1), [1, 3, 1]);
  assert.deepEqual(state.fitDy(dy, 1, 3), [1, 2, 1]);
  assert.deepEqual(state.fitDy(dy, 0, 0), []);
});

test('a cell takes what people type', () => {
  for (const [text, value] of [['3', 3], [' -2.5 ', -2.5], ['−1', -1], ['1e3', 1000], ['.5', 0.5], ['1,5', 1.5], ['nan', NaN],
    ['Inf', Infinity], ['-∞', -Infinity], ['-0', -0]]) {
    assert.ok(Object.is(state.parseNumber(text), value), text);
  }
  for (const text of ['', '-', 'x', '1 2', '0x10', '--1']) assert.equal(state.parseNumber(text), null, text);
});

test('the problem line is one the library reads back to the same settings', async () => {
  const { problemText, gridShape } = await loadModule('src/problem.ts');
  const { changesFromLine } = await loadModule('src/controls.ts');
  const { PRESETS } = await loadModule('src/presets.ts');
  for (const { id, state: preset } of PRESETS.filter((candidate) => candidate.state.mode === 'grid')) {
    const line = problemText(preset, gridShape(preset));
    const changes = changesFromLine(engine, line, preset);
    for (const [name, value] of Object.entries(changes)) assert.deepEqual(value, preset[name], `${id}: ${name}`);
  }
});

test('lines the page cannot draw are refused in a sentence', async () => {
  const { changesFromLine } = await loadModule('src/controls.ts');
  const plain = state.initialState();
  const refusal = (line) => {
    try {
      changesFromLine(engine, line, plain);
    } catch (error) {
      return error.message;
    }
    return null;
  };
  assert.match(refusal('max f32 nchw 8x64x112x112 k3 s2 p1'), /112 rows and 112 columns; this page draws 1 to 16 of each/);
  assert.match(refusal('avg f32 nchw 1x1x4x4 k2'), /this page shows max pooling/);
  assert.match(refusal('max f16 nchw 1x1x4x4 k2'), /^The problem is of f16; this page pools f32\.$/);
  assert.match(refusal('max f32 nchw 1x1x4x4 k2 bits=8'), /^The problem asks for routes of 8 bits; this page shows the narrowest/);
  assert.match(refusal('max f32 ncw 1x1x9 k2'), /this page shows images/);
  assert.match(refusal('max f32 nchw 1x1x4x4 adaptive=2x0 k0x2'), /this page shows adaptive windows on both axes, or a kernel on both/);
  assert.match(refusal('max f32 nchw 1x1x4x4 k2 starts=0,1x0,2'), /lists the windows of an axis/);
  for (const line of ['max f32 nchw 1x1x4x4 k2 s0', 'max f32 nchw 1x1x4x4 k9', 'nonsense']) {
    assert.throws(() => engine.plan(line), { message: refusal(line) });
  }
});

/** Columns of the widest window; taps are numbered in it. */
function widest({ info, windows, columns }) {
  return info.byTable[1] ? Math.max(...windows.map((inputs) => inputs.at(-1) % columns - inputs[0] % columns + 1)) : info.kernel[1];
}

test('the route bits that are shown say what the Jacobian says', async () => {
  const { pool } = await loadModule('src/pool.ts');
  const { routeText } = await loadModule('src/routebits.ts');
  const { PRESETS } = await loadModule('src/presets.ts');
  for (const { id, state: preset } of PRESETS.filter((candidate) => candidate.state.mode === 'grid')) {
    for (const ties of ['first', 'last', 'split', 'all']) {
      const pooled = pool(engine, { ...preset, ties });
      const { info } = pooled;
      const lineBytes = pooled.routes.length / pooled.outRows;
      for (let output = 0; output < pooled.y.length; output += 1) {
        const row = Math.floor(output / pooled.outColumns);
        const column = output % pooled.outColumns;
        const first = pooled.windows[output][0];
        const start = info.byTable[0] ? [Math.floor(first / pooled.columns), first % pooled.columns]
          : [row * info.stride[0] - info.padLo[0], column * info.stride[1] - info.padLo[1]];
        const taps = pooled.winners[output].map(({ input }) => {
          const down = Math.floor(input / pooled.columns) - start[0];
          const right = (input % pooled.columns) - start[1];
          return (down / info.dilation[0]) * widest(pooled) + right / info.dilation[1];
        });
        const wanted = info.routeMasks ? `taps ${taps.join(', ')}` : `tap ${taps[0]}`;
        const line = pooled.routes.subarray(row * lineBytes, (row + 1) * lineBytes);
        const { bits, meaning } = routeText(line, column, info);
        assert.equal(meaning, taps.length ? wanted : 'no route', `${id} ${ties} output ${output}`);
        assert.equal(bits.length, info.routeBits);
      }
    }
  }
});

test('kept bytes: routes here, 8 bytes per output and the input in PyTorch, input and output in TensorFlow', async () => {
  const { keptForBackward } = await loadModule('src/memory.ts');
  const { info } = engine.plan('max f32 nchw 8x64x112x112 k3 s2 p1');
  const [x, y] = [8 * 64 * 112 * 112, 8 * 64 * 56 * 56];
  assert.deepEqual(
    Object.fromEntries(keptForBackward(info).map(({ who, bytes }) => [who, bytes])),
    { poolgrad: y / 2, TensorFlow: 4 * (x + y), PyTorch: 4 * x + 8 * y },
  );
  const pair = engine.plan('max f32 nchw 8x64x112x112 k2 relu').info;
  const out = x / 4;
  assert.deepEqual(
    Object.fromEntries(keptForBackward(pair).map(({ who, bytes }) => [who, bytes])),
    { poolgrad: out / 2, TensorFlow: 4 * (x + out), PyTorch: 4 * x + 8 * out, 'TensorFlow.js': 4 * (2 * x + out) },
  );
});

test('each program carries the settings, and says where a face cannot', async () => {
  const { snippet } = await loadModule('src/code.ts');
  const { pool } = await loadModule('src/pool.ts');
  const code = (changes) => {
    const settings = { ...state.initialState(), ...changes };
    const { info, outRows, outColumns } = pool(engine, settings);
    const numbers = { x: settings.x, dy: state.fitDy(settings.dy, outRows, outColumns) };
    return Object.fromEntries(state.CODE_TABS.map((tab) => [tab, snippet(tab, settings, info, numbers)]));
  };
  const plain = code({});
  assert.equal(plain.problem.text, 'max f32 nchw 1x1x3x3 k2 s1');
  assert.match(plain.cpp.text, /\.kernel\(2\)\s+\.stride\(1\)\);/);
  assert.match(plain.torch.text, /max_pool2d\(x, 2, stride=1\)/);
  assert.match(plain.numpy.text, /max_pool\(x, 2, stride=1, return_routes=True\)/);
  assert.match(plain.tfjs.text, /tf\.maxPool\(x, 2, 1, 'valid'\)/);
  const rich = code({
    kernel: ['2', '1'], stride: ['1', '2'], dilation: ['1', '2'], padding: 'explicit', pads: ['1', '0', '0', '0'],
    rounding: 'ceil_keep', ties: 'last', nan: 'ignore', dialect: 'onnx',
  });
  assert.match(rich.cpp.text, /\.kernel\(\{2, 1\}\)/);
  assert.match(rich.cpp.text, /\.pad\(\{1, 0\}, \{0, 0\}\)/);
  for (const word of ['Rounding::ceil_keep', 'Ties::last', 'Nan::ignore', 'Dialect::onnx']) assert.ok(rich.cpp.text.includes(word));
  assert.match(rich.numpy.text, /padding=\(\(1, 0\), \(0, 0\)\), dilation=\(1, 2\), rounding="ceil_keep", ties="last", nan="ignore", dialect="onnx"/);
  assert.match(rich.torch.note, /leaves out: dialect onnx, NaN rule ignore, rounding ceil_keep/);
  assert.match(code({ x: [NaN, 2, 3, 4, 5, 6, 7, 8, 9] }).torch.note, /leaves out: NaN rule propagate_first/);
  assert.match(code({ rounding: 'ceil_keep', stride: ['2', '2'] }).tfjs.text, /\[\[0, 0\], \[0, 0\], \[0, 0\], \[0, 0\]\], 'ceil'\)/);
  assert.match(rich.tfjs.note, /tf\.maxPool has no argument for dilation/);
  assert.ok(rich.tfjs.text.includes(rich.problem.text));
  const relu = code({ relu: true });
  assert.equal(relu.problem.text, 'max f32 nchw 1x1x3x3 k2 s1 relu');
  assert.match(relu.cpp.text, /poolgrad::Plan pool\("max f32 nchw 1x1x3x3 k2 s1 relu"\);/);
  assert.match(relu.torch.text, /import relu_max_pool2d[^]*relu_max_pool2d\(x, 2, stride=1\)/);
  assert.match(relu.numpy.text, /max_pool\(x, 2, stride=1, relu=True, return_routes=True\)/);
  assert.match(relu.tfjs.text, /import { reluMaxPool } from 'poolgrad\/tfjs';[^]*reluMaxPool\(x, 2, 1, 'valid'\)/);
  const adaptive = code({ adaptive: ['2', '3'], kernel: ['9', '9'], dilation: ['2', '2'], ties: 'last' });  // a kernel does not matter then
  assert.equal(adaptive.problem.text, 'max f32 nchw 1x1x3x3 adaptive=2x3 ties=last');
  assert.match(adaptive.cpp.text, /poolgrad::Plan pool\("max f32 nchw 1x1x3x3 adaptive=2x3 ties=last"\);/);
  assert.match(adaptive.torch.text, /adaptive_max_pool2d\(x, \(2, 3\)\)/);
  assert.match(adaptive.torch.note, /leaves out: tie rule last/);
  assert.match(adaptive.numpy.text, /poolgrad\.adaptive_max_pool\(x, \(2, 3\), ties="last", return_routes=True\)/);
  assert.match(adaptive.tfjs.note, /tf\.maxPool has no argument for adaptive windows, tie rule last/);
  assert.match(code({ adaptive: ['2', '3'], relu: true }).torch.text, /adaptive_max_pool2d\(torch\.relu\(x\), \(2, 3\)\)/);
});
