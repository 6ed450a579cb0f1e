// The whole state of the page as one plain value, and its form in the address.
//
// Everything a visitor can change lives in State and nowhere else, so a link is the page. Settings are kept as the text
// that was typed, right or wrong: judging them is the library's work, and its sentence is what the visitor reads.
// The address form is short readable pairs (`k=3x3&s=2x2&x=1,2;3,4`); a value at its default is left out, and anything
// unreadable in an address falls back to the default of that one field.

export type GridName = 'x' | 'y' | 'dy' | 'dx';
export const GRID_NAMES: readonly GridName[] = ['x', 'y', 'dy', 'dx'];

export interface Place {
  grid: GridName;
  row: number;
  column: number;
}

export type CodeTab = 'problem' | 'cpp' | 'torch' | 'numpy' | 'tfjs';
export const CODE_TABS: readonly CodeTab[] = ['problem', 'cpp', 'torch', 'numpy', 'tfjs'];

export type Padding = 'explicit' | 'valid' | 'same' | 'same_lower';
export type Pair = [string, string];

export interface State {
  mode: 'grid' | 'image';
  rows: number;
  columns: number;
  x: number[];
  /** The incoming gradient as last edited, with the shape it had then; `fitDy` carries it over to another shape. */
  dy: { rows: number; columns: number; values: number[] };
  kernel: Pair;
  stride: Pair;
  dilation: Pair;
  padding: Padding;
  /** top, bottom, left, right; used when padding is explicit. */
  pads: [string, string, string, string];
  rounding: string;
  /** Adaptive windows: how many rows and columns of outputs; null where kernel and stride say it. */
  adaptive: Pair | null;
  /** max(x, 0) is pooled. */
  relu: boolean;
  ties: string;
  nan: string;
  dialect: string;
  /** Batch and channels of the layer whose kept bytes are compared; the picture shows one plane of it. */
  layer: Pair;
  /** What is pinned in the picture, so that a link can point at it. */
  at: Place | null;
  /** How many windows have been walked, forward first, then backward; null when the picture is complete. */
  step: number | null;
  /** Faint outlines of all windows while nothing is lit. */
  showWindows: boolean;
  /** Which program is shown under "The same in code". */
  code: CodeTab;
  /** Image mode: 'sample' or the data URL of the visitor's own picture, already shrunk. */
  image: string;
}

export const MAX_SIDE = 16;
export const PADDINGS: readonly Padding[] = ['explicit', 'valid', 'same', 'same_lower'];
export const ROUNDINGS = ['', 'floor', 'ceil', 'ceil_drop', 'ceil_keep', 'round'] as const;
export const TIES = ['', 'first', 'last', 'split', 'all'] as const;
export const NANS = ['', 'propagate_first', 'propagate_last', 'first_place', 'greater_equal', 'ignore'] as const;
export const DIALECTS = ['', 'torch', 'tensorflow', 'tfjs', 'jax', 'onnx'] as const;

/** The worked example: the 3×3 input 1…9 under a 2×2 window at stride 1. */
export function initialState(): State {
  return {
    mode: 'grid',
    rows: 3,
    columns: 3,
    x: [1, 2, 3, 4, 5, 6, 7, 8, 9],
    dy: { rows: 2, columns: 2, values: [1, 2, 3, 4] },
    kernel: ['2', '2'],
    stride: ['1', '1'],
    dilation: ['1', '1'],
    padding: 'valid',
    pads: ['0', '0', '0', '0'],
    rounding: '',
    adaptive: null,
    relu: false,
    ties: '',
    nan: '',
    dialect: '',
    layer: ['1', '1'],
    at: null,
    step: null,
    showWindows: true,
    code: 'problem',
    image: 'sample',
  };
}

/** The values of dy for an output of this shape: kept where a place exists in both shapes, 1 where it is new. */
export function fitDy(dy: State['dy'], rows: number, columns: number): number[] {
  return Array.from({ length: rows * columns }, (_, index) => {
    const row = Math.floor(index / columns);
    const column = index % columns;
    return row < dy.rows && column < dy.columns ? dy.values[row * dy.columns + column]! : 1;
  });
}

/** The values of x on a grid of another size: kept where a place exists in both, 0 where it is new. */
export function resizeX(state: State, rows: number, columns: number): number[] {
  return Array.from({ length: rows * columns }, (_, index) => {
    const row = Math.floor(index / columns);
    const column = index % columns;
    return row < state.rows && column < state.columns ? state.x[row * state.columns + column]! : 0;
  });
}

export function numberText(value: number): string {
  if (Number.isNaN(value)) return 'nan';
  if (value === Infinity) return 'inf';
  if (value === -Infinity) return '-inf';
  return Object.is(value, -0) ? '-0' : String(value);
}

/** Reads what a person types into a cell; null when it is no number. */
export function parseNumber(text: string): number | null {
  const word = text.trim().toLowerCase().replace('−', '-').replace(',', '.');
  if (word === 'nan') return NaN;
  if (/^[+-]?(inf|infinity|∞)$/.test(word)) return word.startsWith('-') ? -Infinity : Infinity;
  if (!/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/.test(word)) return null;
  return Number(word);
}

function gridText(values: readonly number[], columns: number): string {
  const lines: string[] = [];
  for (let start = 0; start < values.length; start += columns) {
    lines.push(values.slice(start, start + columns).map(numberText).join(','));
  }
  return lines.join(';');
}

function parseGrid(text: string | null): { rows: number; columns: number; values: number[] } | null {
  if (!text) return null;
  const lines = text.split(';').map((line) => line.split(',').map(parseNumber));
  const columns = lines[0]!.length;
  if (lines.some((line) => line.length !== columns || line.some((value) => value === null))) return null;
  return { rows: lines.length, columns, values: lines.flat() as number[] };
}

function setWhenDifferent(query: URLSearchParams, key: string, value: string, plain: string): void {
  if (value !== plain) query.set(key, value);
}

export function encodeState(state: State): string {
  const plain = initialState();
  const query = new URLSearchParams();
  if (state.mode === 'image') query.set('image', state.image);
  query.set('k', state.kernel.join('x'));
  query.set('s', state.stride.join('x'));
  setWhenDifferent(query, 'p', state.padding === 'explicit' ? state.pads.join('x') : state.padding, plain.padding);
  setWhenDifferent(query, 'd', state.dilation.join('x'), plain.dilation.join('x'));
  setWhenDifferent(query, 'round', state.rounding, plain.rounding);
  if (state.adaptive) query.set('adaptive', state.adaptive.join('x'));
  if (state.relu) query.set('relu', 'on');
  setWhenDifferent(query, 'ties', state.ties, plain.ties);
  setWhenDifferent(query, 'nan', state.nan, plain.nan);
  setWhenDifferent(query, 'dialect', state.dialect, plain.dialect);
  setWhenDifferent(query, 'layer', state.layer.join('x'), plain.layer.join('x'));
  query.set('x', gridText(state.x, state.columns));
  query.set('dy', gridText(state.dy.values, state.dy.columns));
  if (state.at) query.set('at', `${state.at.grid}.${state.at.row}.${state.at.column}`);
  if (state.step !== null) query.set('step', String(state.step));
  if (!state.showWindows) query.set('windows', 'off');
  setWhenDifferent(query, 'code', state.code, plain.code);
  // Commas and semicolons are safe in a fragment and keep the address readable.
  return query.toString().replaceAll('%2C', ',').replaceAll('%3B', ';');
}

function oneOf<T extends string>(text: string | null, choices: readonly T[], fallback: T): T {
  return choices.includes(text as T) ? (text as T) : fallback;
}

function parseParts(text: string | null, count: number): string[] | null {
  if (text === null) return null;
  const parts = text.split('x');
  return parts.length === count && parts.every((part) => part.length <= 24) ? parts : null;
}

function parsePlace(text: string | null): Place | null {
  const match = /^(x|y|dy|dx)\.(\d{1,3})\.(\d{1,3})$/.exec(text ?? '');
  return match ? { grid: match[1] as GridName, row: Number(match[2]), column: Number(match[3]) } : null;
}

export function decodeState(fragment: string): State {
  const query = new URLSearchParams(fragment.replace(/^#/, ''));
  const state = initialState();
  const image = query.get('image');
  if (image === 'sample' || image?.startsWith('data:image/')) {
    state.mode = 'image';
    state.image = image;
  }
  const x = parseGrid(query.get('x'));
  if (x && x.rows <= MAX_SIDE && x.columns <= MAX_SIDE) {
    state.rows = x.rows;
    state.columns = x.columns;
    state.x = x.values;
  }
  const dy = parseGrid(query.get('dy'));
  if (dy) state.dy = dy;
  state.kernel = (parseParts(query.get('k'), 2) as Pair | null) ?? state.kernel;
  state.stride = (parseParts(query.get('s'), 2) as Pair | null) ?? state.stride;
  state.dilation = (parseParts(query.get('d'), 2) as Pair | null) ?? state.dilation;
  const padding = query.get('p');
  const pads = parseParts(padding, 4);
  if (pads) {
    state.padding = 'explicit';
    state.pads = pads as State['pads'];
  } else {
    state.padding = oneOf(padding, PADDINGS, state.padding);
  }
  state.rounding = oneOf(query.get('round'), ROUNDINGS, '');
  state.adaptive = parseParts(query.get('adaptive'), 2) as Pair | null;
  state.relu = query.get('relu') === 'on';
  state.ties = oneOf(query.get('ties'), TIES, '');
  state.nan = oneOf(query.get('nan'), NANS, '');
  state.dialect = oneOf(query.get('dialect'), DIALECTS, '');
  state.layer = (parseParts(query.get('layer'), 2) as Pair | null) ?? state.layer;
  state.at = parsePlace(query.get('at'));
  const step = query.get('step');
  state.step = step !== null && /^\d{1,4}$/.test(step) ? Number(step) : null;
  state.showWindows = query.get('windows') !== 'off';
  state.code = oneOf(query.get('code'), CODE_TABS, state.code);
  return state;
}
