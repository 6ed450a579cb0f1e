// The current settings as programs: the one-line problem, C++, PyTorch, NumPy and TensorFlow.js. Each program is whole and
// prints y and dx. Where a face of the library has no argument for a setting, the program takes the one-line problem
// instead, and a note says why.
import type { PlanInfo } from '../../bindings/js/src/api/types';
import { gridShape, problemText, type Shape } from './problem';
import type { CodeTab, Pair, State } from './state';

export interface Snippet {
  text: string;
  note: string;
}

export interface Numbers {
  x: readonly number[];
  dy: readonly number[];
}

interface Job {
  state: State;
  shape: Shape;
  info: PlanInfo;
  line: string;
  /** Null for an image: its pixels are the caller's. */
  numbers: Numbers | null;
}

interface Words {
  nan: string;
  infinity: string;
  open: string;
  close: string;
}

const PYTHON: Words = { nan: 'nan', infinity: 'inf', open: '[', close: ']' };
const SCRIPT: Words = { nan: 'NaN', infinity: 'Infinity', open: '[', close: ']' };
const CPP: Words = { nan: 'NAN', infinity: 'INFINITY', open: '{', close: '}' };

function literal(value: number, words: Words): string {
  if (Number.isNaN(value)) return words.nan;
  if (!Number.isFinite(value)) return value > 0 ? words.infinity : `-${words.infinity}`;
  return Object.is(value, -0) ? '-0.0' : String(value);
}

function rows(values: readonly number[], columns: number, words: Words): string[] {
  return Array.from({ length: values.length / columns }, (_, row) =>
    values.slice(row * columns, (row + 1) * columns).map((value) => literal(value, words)).join(', '),
  );
}

/** Nested rows: [[1, 2], [3, 4]], broken over lines when long. */
function nested(values: readonly number[], columns: number, words: Words, indent: number): string {
  const lines = rows(values, columns, words).map((line) => `${words.open}${line}${words.close}`);
  const flat = lines.join(', ');
  return words.open + (flat.length < 64 ? flat : lines.join(`,\n${' '.repeat(indent + 1)}`)) + words.close;
}

function flat(values: readonly number[], columns: number, words: Words, indent: number): string {
  const lines = rows(values, columns, words);
  const one = lines.join(', ');
  return words.open + (one.length < 64 ? one : lines.join(`,\n${' '.repeat(indent + 1)}`)) + words.close;
}

function isOne(pair: Pair): boolean {
  return pair[0] === '1' && pair[1] === '1';
}

/** `2` or `(2, 3)` in the given brackets. */
function either(pair: Pair, open: string, close: string): string {
  return pair[0] === pair[1] ? pair[0] : `${open}${pair.join(', ')}${close}`;
}

function padPairs(state: State, open: string, close: string): string {
  const [top, bottom, left, right] = state.pads;
  return `${open}${open}${top}, ${bottom}${close}, ${open}${left}, ${right}${close}${close}`;
}

function evenPads(state: State): Pair | null {
  const [top, bottom, left, right] = state.pads;
  return top === bottom && left === right ? [top, left] : null;
}

function cpp({ state, shape, line, numbers, info }: Job): Snippet {
  const layout = shape.layout === 'nchw' ? 'channels_first' : 'channels_last';
  const calls = [`.kernel(${either(state.kernel, '{', '}')})`, `.stride(${either(state.stride, '{', '}')})`];
  if (!isOne(state.dilation)) calls.push(`.dilation(${either(state.dilation, '{', '}')})`);
  if (state.padding === 'explicit') {
    const [top, bottom, left, right] = state.pads;
    const same = state.pads.every((pad) => pad === top);
    calls.push(same ? `.pad(${top})` : `.pad({${top}, ${left}}, {${bottom}, ${right}})`);
  } else if (state.padding !== 'valid') {
    calls.push(`.${state.padding}()`);
  }
  if (state.rounding) calls.push(`.rounding(poolgrad::Rounding::${state.rounding === 'round' ? 'nearest' : state.rounding})`);
  if (state.dialect) calls.push(`.dialect(poolgrad::Dialect::${state.dialect})`);
  if (state.ties) calls.push(`.ties(poolgrad::Ties::${state.ties})`);
  if (state.nan) calls.push(`.nan(poolgrad::Nan::${state.nan})`);
  const data = numbers
    ? [
        `  const std::vector<float> x = ${flat(numbers.x, shape.columns, CPP, 31)};`,
        `  const std::vector<float> dy = ${flat(numbers.dy, info.outSize[1]!, CPP, 32)};`,
      ]
    : [
        `  const std::vector<float> x(${info.xElements});  // your pixels`,
        `  const std::vector<float> dy(${info.yElements}, 1.0f);`,
      ];
  const fields = `poolgrad::Problem::max<float>(poolgrad::Layout::${layout}, {${info.xShape.join(', ')}})\n` +
    `                                ${calls.join('\n                                ')}`;
  const byLine = state.relu || state.adaptive !== null;  // for which this face has no call
  const text = [
    '#include <cmath>',
    '#include <cstdio>',
    '#include <vector>',
    '#include <poolgrad/poolgrad.hpp>',
    '',
    'int main() {',
    `  const poolgrad::Plan pool(${byLine ? `"${line}"` : fields});`,
    ...data,
    '  const auto [y, pullback] = poolgrad::vjp(pool, x);  // pullback keeps the routes, not x',
    '  const std::vector<float> dx = pullback(dy);',
    '  for (const float v : y) std::printf("%g ", v);',
    '  std::puts("");',
    '  for (const float v : dx) std::printf("%g ", v);',
    '  std::puts("");',
    '}',
  ].join('\n');
  return { text, note: byLine ? '' : `The plan may also be made from the line: poolgrad::Plan("${line}").` };
}

/** Kernel, stride, padding and dilation as both Python faces take them. */
function pythonWindow(state: State): string[] {
  const words = [either(state.kernel, '(', ')'), `stride=${either(state.stride, '(', ')')}`];
  if (state.padding === 'explicit') {
    const even = evenPads(state);
    words.push(`padding=${even ? either(even, '(', ')') : padPairs(state, '(', ')')}`);
  } else if (state.padding !== 'valid') {
    words.push(`padding="${state.padding}"`);
  }
  if (!isOne(state.dilation)) words.push(`dilation=${either(state.dilation, '(', ')')}`);
  return words;
}

function outputs({ adaptive }: State): string | null {
  return adaptive && `(${adaptive.join(', ')})`;
}

function numpyArguments({ state, shape }: Job): string[] {
  const words = state.adaptive ? [outputs(state)!] : pythonWindow(state);
  if (state.rounding && !state.adaptive) words.push(`rounding="${state.rounding}"`);
  if (shape.layout === 'nhwc') words.push('layout="channels_last"');
  if (state.relu) words.push('relu=True');
  if (state.ties) words.push(`ties="${state.ties}"`);
  if (state.nan) words.push(`nan="${state.nan}"`);
  if (state.dialect) words.push(`dialect="${state.dialect}"`);
  return words;
}

function numpy(job: Job): Snippet {
  const { numbers, shape, info, state } = job;
  const data = numbers
    ? [
        ...(usesSpecials(numbers) ? ['from numpy import inf, nan'] : []),
        '',
        `x = np.array([[${nested(numbers.x, shape.columns, PYTHON, 15)}]], np.float32)`,
        `dy = np.array([[${nested(numbers.dy, info.outSize[1]!, PYTHON, 16)}]], np.float32)`,
      ]
    : ['', `x = np.zeros((${info.xShape.join(', ')}), np.float32)  # your pixels`,
       `dy = np.ones((${info.yShape.join(', ')}), np.float32)`];
  const text = [
    'import numpy as np',
    'import poolgrad',
    ...data,
    `y, routes = poolgrad.${state.adaptive ? 'adaptive_' : ''}max_pool(x, ${numpyArguments(job).join(', ')}, return_routes=True)`,
    'dx = poolgrad.max_pool_grad(dy, routes)',
    'print(y, dx, sep="\\n")',
  ].join('\n');
  return { text, note: '' };
}

function usesSpecials({ x, dy }: Numbers): boolean {
  return [...x, ...dy].some((value) => !Number.isFinite(value));
}

function holdsNan({ numbers }: Job): boolean {
  return numbers?.x.some(Number.isNaN) ?? false;
}

/** A framework's own NaN rule is no loss where there is no NaN. */
function nanDiffers(job: Job, framework: string): boolean {
  return job.info.nan !== framework && (job.state.nan !== '' || holdsNan(job));
}

/** Settings that poolgrad.torch has no argument for: it has torch's own signature, plus padding and ties. */
function torchLacks(job: Job): string[] {
  const { state, info } = job;
  const lacks: string[] = [];
  if (state.dialect && state.dialect !== 'torch') lacks.push(`dialect ${state.dialect}`);
  if (nanDiffers(job, 'propagate_last')) lacks.push(`NaN rule ${info.nan}`);
  if (state.adaptive && state.ties && state.ties !== 'first') lacks.push(`tie rule ${state.ties}`);
  if (!state.adaptive && ['ceil_keep', 'round'].includes(info.rounding)) lacks.push(`rounding ${info.rounding}`);
  return lacks;
}

function torch(job: Job): Snippet {
  const { state, numbers, shape, info } = job;
  const words = state.adaptive ? [outputs(state)!] : pythonWindow(state);
  if (info.rounding.startsWith('ceil') && !state.adaptive) words.push('ceil_mode=True');
  if (state.ties && !state.adaptive) words.push(`ties="${state.ties}"`);
  const name = state.adaptive ? 'adaptive_max_pool2d' : state.relu ? 'relu_max_pool2d' : 'max_pool2d';
  const pooled = state.adaptive && state.relu ? 'torch.relu(x)' : 'x';
  const channelsLast = shape.layout === 'nhwc';
  const data = numbers
    ? [
        ...(usesSpecials(numbers) ? ['from math import inf, nan'] : []),
        '',
        `x = torch.tensor([[${nested(numbers.x, shape.columns, PYTHON, 19)}]], dtype=torch.float32, requires_grad=True)`,
        `dy = torch.tensor([[${nested(numbers.dy, info.outSize[1]!, PYTHON, 20)}]], dtype=torch.float32)`,
      ]
    : ['', `x = torch.zeros(${shape.batch}, ${shape.channels}, ${shape.rows}, ${shape.columns}, requires_grad=True)` +
         `${channelsLast ? '  # your pixels' : ''}`,
       `dy = torch.ones(${shape.batch}, ${shape.channels}, ${info.outSize.join(', ')})`];
  const text = [
    'import torch',
    `from poolgrad.torch import ${name}`,
    ...data,
    `y = ${name}(${pooled}, ${words.join(', ')})`,
    `y.backward(dy)  # autograd kept the routes${pooled === 'x' ? ', not x' : " and the ReLU's output"}`,
    'print(y, x.grad, sep="\\n")',
  ].join('\n');
  const lacks = torchLacks(job);
  const note = lacks.length
    ? `poolgrad.torch does what torch's own pooling does, so this program leaves out: ${lacks.join(', ')}.`
    : '';
  return { text, note };
}

/** Settings that tf.maxPool has no argument for. */
function tfLacks(job: Job): string[] {
  const { state, info } = job;
  const lacks: string[] = [];
  if (state.adaptive) lacks.push('adaptive windows');
  if (!isOne(state.dilation) && !state.adaptive) lacks.push('dilation');
  if (state.padding === 'same_lower' && !state.adaptive) lacks.push('padding same_lower');
  if (state.ties && state.ties !== 'first') lacks.push(`tie rule ${state.ties}`);
  if (nanDiffers(job, 'ignore')) lacks.push(`NaN rule ${info.nan}`);
  if (info.rounding === 'ceil_drop') lacks.push('rounding ceil_drop');
  if (state.dialect && state.dialect !== 'tfjs') lacks.push(`dialect ${state.dialect}`);
  return lacks;
}

function scriptData({ numbers, shape, info }: Job, wrap: (text: string, sizes: readonly number[]) => string): string[] {
  if (!numbers) {
    return [
      `const x = ${wrap(`new Float32Array(${info.xElements})`, info.xShape)};  // your pixels`,
      `const dy = ${wrap(`new Float32Array(${info.yElements}).fill(1)`, info.yShape)};`,
    ];
  }
  return [
    `const x = ${wrap(flat(numbers.x, shape.columns, SCRIPT, 21), [1, shape.rows, shape.columns, 1])};`,
    `const dy = ${wrap(flat(numbers.dy, info.outSize[1]!, SCRIPT, 22), [1, ...info.outSize, 1])};`,
  ];
}

function tfjs(job: Job): Snippet {
  const { state, line, info } = job;
  const lacks = tfLacks(job);
  if (lacks.length) {
    const text = [
      "import { loadEngine } from 'poolgrad';",
      '',
      `const pool = (await loadEngine()).plan('${line}');`,
      ...scriptData(job, (values) => `Float32Array.from(${values})`),
      'const { y, routes } = pool.forward(x);',
      'const dx = pool.backward(dy, routes);',
      'console.log(y, dx);',
    ].join('\n');
    return { text, note: `tf.maxPool has no argument for ${lacks.join(', ')}; this is the package below it.` };
  }
  // TensorFlow.js takes a rounding with numeric padding only.
  const rounding = { floor: '', ceil_keep: 'ceil', round: 'round' }[info.rounding as string] ?? '';
  const [top, bottom, left, right] = state.padding === 'explicit' ? state.pads : ['0', '0', '0', '0'];
  const numeric = state.padding === 'explicit' || (state.padding === 'valid' && rounding);
  const pad = numeric ? `[[0, 0], [${top}, ${bottom}], [${left}, ${right}], [0, 0]]` : `'${state.padding}'`;
  const mode = numeric && rounding ? `, '${rounding}'` : '';
  const text = [
    "import * as tf from '@tensorflow/tfjs';",
    state.relu ? "import { reluMaxPool } from 'poolgrad/tfjs';" : "import 'poolgrad/tfjs';",
    '',
    ...scriptData(job, (values, sizes) => `tf.tensor4d(${values}, [${sizes.join(', ')}])`),
    `const pool = (x) => ${state.relu ? 'reluMaxPool' : 'tf.maxPool'}(x, ${either(state.kernel, '[', ']')}, ${either(state.stride, '[', ']')}, ${pad}${mode});`,
    'pool(x).print();',
    'tf.grad(pool)(x, dy).print();',
  ].join('\n');
  return { text, note: '' };
}

function problem({ line }: Job): Snippet {
  return {
    text: line,
    note: `Every face of the library and the command line take this line, for example: poolgrad explain "${line}"`,
  };
}

const MAKERS: Record<CodeTab, (job: Job) => Snippet> = { problem, cpp, torch, numpy, tfjs };

export const TITLES: Record<CodeTab, string> = {
  problem: 'Problem',
  cpp: 'C++',
  torch: 'PyTorch',
  numpy: 'NumPy',
  tfjs: 'TF.js',
};

/** `numbers` is null for an image, whose shape is then given. */
export function snippet(
  tab: CodeTab,
  state: State,
  info: PlanInfo,
  numbers: Numbers | null,
  shape: Shape = gridShape(state),
): Snippet {
  return MAKERS[tab]({ state, shape, info, line: problemText(state, shape), numbers });
}
