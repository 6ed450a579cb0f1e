// Problems as the C ABI's structs and back. poolgrad_info, and poolgrad_problem up to its pointers, hold only 32- and 64-bit
// integers, so their layout is the same on every target and both engines take the same bytes (little-endian, as all of Node's
// and WebAssembly's). The tables that the pointers lead to travel beside them (PackedProblem).
//
// Only what JavaScript alone can get wrong is checked here (a word that does not exist, a list of the wrong length, a number
// that is not an integer); everything else is the core's to judge, in its own words.
import type {
  Dialect, Dtype, Kind, Layout, NanRule, Numbering, Padding, PerAxis, PlanInfo, Problem, ProblemSpec, Rounding, Ties,
} from './api/types';
import { invalid, PoolgradError, type PackedProblem, type Raw } from './raw';

const KINDS: readonly Kind[] = ['max', 'avg'];
const DTYPES: readonly Dtype[] = ['f32', 'f64', 'f16', 'bf16', 'i8', 'u8', 'i32'];
const DIALECTS: readonly Dialect[] = ['default', 'torch', 'tensorflow', 'tfjs', 'jax', 'onnx'];
const ROUNDINGS: readonly Rounding[] = ['default', 'floor', 'ceil', 'ceil_drop', 'ceil_keep', 'round'];
const TIES: readonly Ties[] = ['default', 'first', 'last', 'split', 'all'];
const NANS: readonly NanRule[] =
  ['default', 'propagate_first', 'propagate_last', 'first_place', 'greater_equal', 'ignore'];
const NUMBERINGS: readonly Numbering[] = ['torch', 'tensorflow', 'tensorflow_batch', 'onnx', 'onnx_column'];
const PADDINGS = ['explicit', 'valid', 'same', 'same_lower'] as const;
const FIRST: readonly Layout[] = ['ncw', 'nchw', 'ncdhw'];  // by rank - 1
const LAST: readonly Layout[] = ['nwc', 'nhwc', 'ndhwc'];

// Byte offsets of poolgrad_problem, up to its pointers.
export const HEAD_BYTES = 264;
export const OUTPUTS = 240;
const AT = {
  kind: 8, dtype: 12, layout: 16, dialect: 20, rank: 24, padding: 28, rounding: 32, ties: 36, nan: 40, routeBits: 44,
  countPadding: 48, device: 52, divisor: 64, batch: 72, channels: 80, in: 88, kernel: 112, stride: 136, dilation: 160, padLo: 184,
  padHi: 208, relu: 232, outputs: OUTPUTS,
} as const;

// Byte offsets of poolgrad_info.
export const INFO_BYTES = 152;
const INFO = {
  out: 8, padLo: 32, padHi: 56, xElements: 80, yElements: 88, xBytes: 96, yBytes: 104, taps: 112, routeBits: 120,
  routeMasks: 124, routeBytes: 128, mayHaveNoRoute: 136, ties: 140, nan: 144, rounding: 148,
} as const;

function view(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

const SHOWN = 100;  // characters

/** A value as a sentence names it: arrays of numbers by their size, no more of others than one can read. */
export function show(value: unknown): string {
  const named = (v: unknown): unknown => {
    if (typeof v === 'bigint') return `${v}n`;
    return ArrayBuffer.isView(v) ? `${v.constructor.name}(${(v as Uint8Array).length ?? v.byteLength})` : v;
  };
  const brief = named(value);
  let text: string;
  if (brief !== value) return brief as string;
  if (value === null || typeof value !== 'object') {
    text = typeof value === 'string' ? `"${value}"` : String(value);
  } else {
    try {
      text = JSON.stringify(value, (_, v: unknown) => named(v));
    } catch {
      text = String(value);  // it refers to itself
    }
  }
  return text.length > SHOWN ? `${text.slice(0, SHOWN)}...` : text;
}

function word<T extends string>(name: string, words: readonly T[], value: T | undefined, fallback: T): number {
  const at = words.indexOf(value ?? fallback);
  if (at < 0) throw invalid(`${name} is ${show(value)}; it must be one of ${words.join(', ')}`);
  return at;
}

function integer(name: string, value: unknown): bigint {
  if (typeof value !== 'number' || !Number.isSafeInteger(value)) {
    throw invalid(`${name} is ${show(value)}; it must be an integer`);
  }
  return BigInt(value);
}

export function truth(name: string, value: unknown): number {
  if (typeof value !== 'boolean') throw invalid(`${name} is ${show(value)}; it must be true or false`);
  return Number(value);
}

function perAxis(name: string, value: PerAxis, rank: number): bigint[] {
  if (typeof value === 'number') return Array<bigint>(rank).fill(integer(name, value));
  if (!Array.isArray(value) || value.length !== rank) {
    throw invalid(`${name} is ${show(value)}; it must be a number or a list of ${rank}, one per spatial axis`);
  }
  return value.map((v, axis) => integer(`${name}[${axis}]`, v));
}

function setAxes(data: DataView, at: number, values: readonly bigint[]): void {
  values.forEach((value, axis) => data.setBigInt64(at + 8 * axis, value, true));
}

function setPadding(data: DataView, padding: Padding, rank: number): void {
  if (typeof padding === 'string') {
    data.setInt32(AT.padding, word('padding', PADDINGS, padding, 'valid'), true);
    return;
  }
  const pairs = Array.isArray(padding) && Array.isArray(padding[0]);
  if (!pairs) {
    const both = perAxis('padding', padding as PerAxis, rank);
    setAxes(data, AT.padLo, both);
    setAxes(data, AT.padHi, both);
    return;
  }
  const list = padding as readonly (readonly [number, number])[];
  if (list.length !== rank || list.some((p) => !Array.isArray(p) || p.length !== 2)) {
    throw invalid(`padding is ${show(padding)}; it must be a list of ${rank} pairs [low, high], one per spatial axis`);
  }
  setAxes(data, AT.padLo, list.map((p, axis) => integer(`padding[${axis}][0]`, p[0])));
  setAxes(data, AT.padHi, list.map((p, axis) => integer(`padding[${axis}][1]`, p[1])));
}

/** A list of numbers per axis, null where there is none. */
function lists(name: string, value: ProblemSpec['starts'], rank: number): (BigInt64Array | null)[] {
  if (value === undefined) return [null, null, null];
  const right = Array.isArray(value) && value.length === rank &&
    value.every((list) => list === null || (Array.isArray(list) && list.length > 0));
  if (!right) throw invalid(`${name} is ${show(value)}; it must be a list of ${rank}, one per spatial axis, each a list of numbers or null`);
  return [0, 1, 2].map((axis) => {
    const list = value[axis];
    return list ? BigInt64Array.from(list, (v, at) => integer(`${name}[${axis}][${at}]`, v)) : null;
  });
}

/** How many windows each axis lists, 0 where it has none of its own; the core reads as many entries of starts and sizes. */
function outputsOf(adaptive: readonly bigint[], starts: readonly (BigInt64Array | null)[],
                   sizes: readonly (BigInt64Array | null)[]): bigint[] {
  return adaptive.map((wanted, axis) => {
    const outputs = BigInt(starts[axis]?.length ?? wanted);
    if (wanted !== 0n && wanted !== outputs) {
      throw invalid(`adaptive[${axis}] is ${wanted}; starts[${axis}] lists ${outputs} windows`);
    }
    const sized = sizes[axis]?.length;
    if (sized !== undefined && BigInt(sized) !== outputs) {
      throw invalid(`sizes[${axis}] has ${sized} entries; the axis has ${outputs} windows`);
    }
    return outputs;
  });
}

const FIELDS: Record<keyof ProblemSpec, true> = {
  kind: true, dtype: true, layout: true, shape: true, kernel: true, stride: true, padding: true, dilation: true, rounding: true,
  ties: true, nan: true, dialect: true, routeBits: true, countPadding: true, divisor: true, relu: true, adaptive: true, starts: true,
  sizes: true,
};

/** The struct of a problem given by its fields. */
export function packSpec(spec: ProblemSpec): PackedProblem {
  for (const [name, value] of Object.entries(spec)) {
    if (!Object.hasOwn(FIELDS, name) && value !== undefined) {
      throw invalid(`${name} is ${show(value)}; a problem has no such field, its fields are ${Object.keys(FIELDS).join(', ')}`);
    }
  }
  if (!Array.isArray(spec.shape) || spec.shape.length < 3 || spec.shape.length > 5) {
    throw invalid(`shape is ${show(spec.shape)}; it must be a list of 3, 4 or 5 sizes in the layout's memory order`);
  }
  const rank = spec.shape.length - 2;
  const layout = spec.layout ?? (FIRST[rank - 1] as Layout);
  const last = LAST.includes(layout);
  if ((last ? LAST : FIRST)[rank - 1] !== layout) {
    throw invalid(`layout is ${show(layout)}; a shape of ${spec.shape.length} sizes has layout ` +
                  `${FIRST[rank - 1]} or ${LAST[rank - 1]}`);
  }
  const shape = spec.shape.map((v, axis) => integer(`shape[${axis}]`, v));
  const starts = lists('starts', spec.starts, rank);
  const sizes = lists('sizes', spec.sizes, rank);
  const outputs = outputsOf(perAxis('adaptive', spec.adaptive ?? 0, rank), starts, sizes);
  if (spec.kernel === undefined && outputs.includes(0n)) {
    throw invalid('kernel is missing; a problem needs a shape and, but for axes with adaptive or starts, a kernel');
  }
  const kernel = perAxis('kernel', spec.kernel ?? 0, rank);
  const stride = spec.stride === undefined ? kernel.map((size, axis) => (outputs[axis] === 0n ? size : 1n))
    : perAxis('stride', spec.stride, rank);
  const head = new Uint8Array(HEAD_BYTES);
  const data = view(head);
  const set32 = (at: number, value: number): void => data.setInt32(at, value, true);
  set32(AT.kind, word('kind', KINDS, spec.kind, 'max'));
  set32(AT.dtype, word('dtype', DTYPES, spec.dtype, 'f32'));
  set32(AT.layout, last ? 1 : 0);
  set32(AT.dialect, word('dialect', DIALECTS, spec.dialect, 'default'));
  set32(AT.rank, rank);
  set32(AT.rounding, word('rounding', ROUNDINGS, spec.rounding, 'default'));
  set32(AT.ties, word('ties', TIES, spec.ties, 'default'));
  set32(AT.nan, word('nan', NANS, spec.nan, 'default'));
  const routeBits = Number(integer('routeBits', spec.routeBits ?? 0));
  if (routeBits !== (routeBits | 0)) throw invalid(`routeBits is ${routeBits}; it must be 0 (the smallest that fits), 2, 4, 8, 16 or 32`);
  set32(AT.routeBits, routeBits);
  set32(AT.countPadding, spec.countPadding === undefined ? -1 : truth('countPadding', spec.countPadding));
  data.setBigInt64(AT.divisor, integer('divisor', spec.divisor ?? 0), true);
  data.setBigInt64(AT.batch, shape[0] as bigint, true);
  data.setBigInt64(AT.channels, (last ? shape[rank + 1] : shape[1]) as bigint, true);
  setAxes(data, AT.in, last ? shape.slice(1, -1) : shape.slice(2));
  setAxes(data, AT.kernel, kernel);
  setAxes(data, AT.stride, stride);
  setAxes(data, AT.dilation, perAxis('dilation', spec.dilation ?? 1, rank));
  setPadding(data, spec.padding ?? 0, rank);
  set32(AT.relu, truth('relu', spec.relu ?? false));
  setAxes(data, AT.outputs, outputs);
  return { head, tables: [...starts, ...sizes] };
}

/** The struct of a problem's text, parsed by the core. */
export function packText(raw: Raw, text: string): PackedProblem {
  if (typeof text !== 'string') throw invalid(`problem is ${show(text)}; it must be a text like "max f32 nchw 1x1x3x3 k2"`);
  if (text.includes('\0')) throw invalid(`the problem is ${JSON.stringify(text)}; a problem's text has no NUL in it`);
  try {
    return raw.parse(text);
  } catch (error) {
    if (!(error instanceof PoolgradError) || !error.message.includes('had no field for')) throw error;
    throw invalid(`the problem "${text}" has a bias or is a part of a longer one; poolgrad for JavaScript knows neither`);
  }
}

/** The struct of any problem. */
export function packProblem(raw: Raw, problem: Problem): PackedProblem {
  if (typeof problem === 'string') return packText(raw, problem);
  if (problem === null || typeof problem !== 'object') {
    throw invalid(`problem is ${show(problem)}; it must be a text like "max f32 nchw 1x1x3x3 k2", or an object with shape and kernel`);
  }
  return packSpec(problem);
}

const LATIN1 = new TextDecoder('latin1');  // a character for each byte

/** The same text for the same problem, however it was written down. */
export function keyOf({ head, tables }: PackedProblem): string {
  return LATIN1.decode(head) + tables.join(';');
}

/** What `run` gives; where the core refuses, its sentence in the words of ProblemSpec. */
export function inOurWords<T>(run: () => T): T {
  try {
    return run();
  } catch (error) {
    if (!(error instanceof PoolgradError)) throw error;
    throw new PoolgradError(error.code, error.message.replace(/\bpad_(?:lo|hi)\[/g, 'padding[')
      .replace(/\boutputs\[\d\] set\b/, 'adaptive or starts').replace(/\boutputs\[/g, 'adaptive[')
      .replace(/\broute_bits\b/g, 'routeBits').replace(/\bindex_shape\[/g, 'indexShape[').replace(/\bcount_padding\b/g, 'countPadding')
      .replace(/\bin\[(\d)\]/g, "the input's size on spatial axis $1"));
  }
}

function layoutOf(data: DataView): Layout {
  return (data.getInt32(AT.layout, true) === 1 ? LAST : FIRST)[data.getInt32(AT.rank, true) - 1] as Layout;
}

function axes(data: DataView, at: number, rank: number): number[] {
  return Array.from({ length: rank }, (_, axis) => Number(data.getBigInt64(at + 8 * axis, true)));
}

/** N, C and the spatial sizes in the layout's memory order. */
function inMemoryOrder(layout: Layout, batch: number, channels: number, spatial: readonly number[]): number[] {
  return LAST.includes(layout) ? [batch, ...spatial, channels] : [batch, channels, ...spatial];
}

/** The fields of a problem's struct. */
export function unpackSpec({ head, tables }: PackedProblem): ProblemSpec {
  const data = view(head);
  const get = (at: number): number => data.getInt32(at, true);
  if (get(AT.device) !== 0) throw invalid('the problem runs on a GPU, for which poolgrad for JavaScript has no field');
  const rank = get(AT.rank);
  const layout = layoutOf(data);
  const padding = PADDINGS[get(AT.padding)] as (typeof PADDINGS)[number];
  const lo = axes(data, AT.padLo, rank);
  const hi = axes(data, AT.padHi, rank);
  const count = get(AT.countPadding);
  const divisor = Number(data.getBigInt64(AT.divisor, true));
  const adaptive = axes(data, AT.outputs, rank).map((outputs, axis) => (tables[axis] ? 0 : outputs));
  const listed = (name: 'starts' | 'sizes', from: number): Partial<ProblemSpec> => {
    const all = tables.slice(from, from + rank).map((table) => table && Array.from(table, Number));
    return all.some(Boolean) ? { [name]: all } : {};
  };
  return {
    kind: KINDS[get(AT.kind)] as Kind,
    dtype: DTYPES[get(AT.dtype)] as Dtype,
    layout,
    shape: inMemoryOrder(layout, Number(data.getBigInt64(AT.batch, true)), Number(data.getBigInt64(AT.channels, true)),
                         axes(data, AT.in, rank)),
    kernel: axes(data, AT.kernel, rank),
    stride: axes(data, AT.stride, rank),
    padding: padding === 'explicit' ? lo.map((l, axis) => [l, hi[axis] as number] as [number, number]) : padding,
    dilation: axes(data, AT.dilation, rank),
    rounding: ROUNDINGS[get(AT.rounding)] as Rounding,
    ties: TIES[get(AT.ties)] as Ties,
    nan: NANS[get(AT.nan)] as NanRule,
    dialect: DIALECTS[get(AT.dialect)] as Dialect,
    routeBits: get(AT.routeBits) as 0 | 2 | 4 | 8 | 16 | 32,
    ...(count >= 0 ? { countPadding: count === 1 } : {}),
    ...(divisor !== 0 ? { divisor } : {}),
    ...(get(AT.relu) === 1 ? { relu: true } : {}),
    ...(adaptive.some(Boolean) ? { adaptive } : {}),
    ...listed('starts', 0),
    ...listed('sizes', 3),
  };
}

/** What the core says about a plan, joined with the problem it was made from. */
export function unpackInfo(problem: PackedProblem, text: string, info: Uint8Array): PlanInfo {
  const p = view(problem.head);
  const data = view(info);
  const get = (at: number): number => data.getInt32(at, true);
  const get64 = (at: number): number => Number(data.getBigInt64(at, true));
  const rank = p.getInt32(AT.rank, true);
  const layout = layoutOf(p);
  const batch = Number(p.getBigInt64(AT.batch, true));
  const channels = Number(p.getBigInt64(AT.channels, true));
  const inSize = axes(p, AT.in, rank);
  const outSize = axes(data, INFO.out, rank);
  return {
    problem: text,
    kind: KINDS[p.getInt32(AT.kind, true)] as Kind,
    dtype: DTYPES[p.getInt32(AT.dtype, true)] as Dtype,
    layout, rank, batch, channels,
    xShape: inMemoryOrder(layout, batch, channels, inSize),
    yShape: inMemoryOrder(layout, batch, channels, outSize),
    inSize, outSize,
    kernel: axes(p, AT.kernel, rank),
    stride: axes(p, AT.stride, rank),
    dilation: axes(p, AT.dilation, rank),
    byTable: axes(p, AT.outputs, rank).map(Boolean),
    relu: p.getInt32(AT.relu, true) === 1,
    padLo: axes(data, INFO.padLo, rank),
    padHi: axes(data, INFO.padHi, rank),
    xElements: get64(INFO.xElements),
    yElements: get64(INFO.yElements),
    xBytes: get64(INFO.xBytes),
    yBytes: get64(INFO.yBytes),
    taps: get64(INFO.taps),
    routeBits: get(INFO.routeBits),
    routeMasks: get(INFO.routeMasks) === 1,
    routeBytes: get64(INFO.routeBytes),
    mayHaveNoRoute: get(INFO.mayHaveNoRoute) === 1,
    ties: TIES[get(INFO.ties)] as Ties,
    nan: NANS[get(INFO.nan)] as NanRule,
    rounding: ROUNDINGS[get(INFO.rounding)] as Rounding,
  };
}

export function numberingCode(numbering: Numbering): number {
  return word('numbering', NUMBERINGS, numbering, 'torch');
}
