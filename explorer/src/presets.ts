// The examples a visitor can start from. Each is a whole state, so it can be linked to like any other.
import { initialState, type State } from './state';

export interface Preset {
  id: string;
  title: string;
  /** What to look at; read out and shown as a tooltip. */
  says: string;
  state: State;
}

function preset(id: string, title: string, says: string, changes: Partial<State>): Preset {
  return { id, title, says, state: { ...initialState(), ...changes } };
}

function grid(rows: number[][]): Pick<State, 'rows' | 'columns' | 'x'> {
  return { rows: rows.length, columns: rows[0]!.length, x: rows.flat() };
}

function gradient(rows: number[][]): State['dy'] {
  return { rows: rows.length, columns: rows[0]!.length, values: rows.flat() };
}

/** A fixed pattern of small whole numbers that has no tie inside neighbouring cells: x = 7r + 5c mod 23. */
function pattern(side: number): number[][] {
  return Array.from({ length: side }, (_, r) => Array.from({ length: side }, (__, c) => (r * 7 + c * 5 + r * c) % 23));
}

export const PRESETS: readonly Preset[] = [
  preset('worked', 'Worked example', 'The input 1 to 9 under a 2×2 window at stride 1: the windows overlap.', {}),
  preset('disjoint', 'No overlap', 'A 4×4 input under a 2×2 window at stride 2: every input lies in one window.', {
    ...grid([[1, 3, 2, 1], [4, 6, 5, 0], [3, 1, 1, 2], [7, 2, 4, 8]]),
    stride: ['2', '2'],
    dy: gradient([[1, 2], [3, 4]]),
  }),
  preset('overlap', 'Shared winner', 'One large value wins every 3×3 window that covers it: its messages add up.', {
    ...grid([[1, 0, 2, 1, 0], [3, 1, 2, 0, 1], [0, 2, 9, 1, 2], [1, 0, 3, 2, 0], [2, 1, 0, 1, 4]]),
    kernel: ['3', '3'],
    dy: gradient([[1, 2, 3], [4, 5, 6], [7, 8, 9]]),
    at: { grid: 'x', row: 2, column: 2 },
  }),
  preset('ties', 'Ties after ReLU', 'ReLU leaves zeros, and zeros tie. Change the tie rule and watch dx.', {
    ...grid([[0, 0, 3, 3], [0, 0, 0, 3], [5, 0, 0, 0], [5, 5, 0, 0]]),
    stride: ['2', '2'],
    dy: gradient([[4, 6], [12, 8]]),
    ties: 'split',
  }),
  preset('relu', 'ReLU in front', 'max(x, 0) is pooled: where nothing is above 0 there is no route, and the gradient ends.', {
    ...grid([[-3, -1, 2, -4], [-2, -5, 1, 3], [4, -1, -2, -6], [-7, 2, -1, -3]]),
    stride: ['2', '2'],
    dy: gradient([[1, 2], [3, 4]]),
    relu: true,
  }),
  preset('adaptive', 'Adaptive', 'Five rows to three, seven columns to four: windows of different sizes that overlap.', {
    ...grid(pattern(7).slice(0, 5)),
    adaptive: ['3', '4'],
    dy: gradient([[1, 2, 3, 4], [5, 6, 7, 8], [9, 1, 2, 3]]),
  }),
  preset('nan', 'NaN', 'Where a NaN goes depends on whose rule is asked: change the dialect.', {
    ...grid([[NaN, 2, 3, 4], [5, 6, NaN, 8], [9, NaN, 1, 2], [NaN, 4, 7, 3]]),
    stride: ['2', '2'],
    dy: gradient([[1, 2], [3, 4]]),
  }),
  preset('ceil', 'Padding and ceil', 'With ceil, a last window reaches past the input. Compare drop and keep.', {
    ...grid(pattern(6)),
    kernel: ['3', '3'],
    stride: ['2', '2'],
    padding: 'explicit',
    pads: ['1', '1', '1', '1'],
    rounding: 'ceil_drop',
    dy: gradient([[1, 2, 3, 4], [5, 6, 7, 8], [9, 1, 2, 3], [4, 5, 6, 7]]),
  }),
  preset('dilation', 'Dilation', 'A 3×3 window with dilation 2 looks at every second cell of a 5×5 square.', {
    ...grid(pattern(7)),
    kernel: ['3', '3'],
    dilation: ['2', '2'],
    dy: gradient([[1, 2, 3], [4, 5, 6], [7, 8, 9]]),
    at: { grid: 'y', row: 1, column: 1 },
  }),
  preset('large', '16×16', 'A larger grid under a 3×3 window at stride 2.', {
    ...grid(pattern(16)),
    kernel: ['3', '3'],
    stride: ['2', '2'],
    padding: 'same',
    dy: gradient([[1]]),
    showWindows: false,
  }),
  preset('image', 'An image', 'A picture of your own, pooled, and its gradient as a heat map.', {
    mode: 'image',
    kernel: ['4', '4'],
    stride: ['4', '4'],
  }),
];
