// The settings of the page as the library's one-line problem. Nothing is checked here: what cannot be right is refused by
// the library, in its own words.
import type { Pair, State } from './state';

export interface Shape {
  /** Text where it was typed. */
  batch: number | string;
  channels: number | string;
  rows: number;
  columns: number;
  layout: 'nchw' | 'nhwc';
}

export function gridShape(state: State): Shape {
  return { batch: 1, channels: 1, rows: state.rows, columns: state.columns, layout: 'nchw' };
}

function pair(letter: string, [rows, columns]: Pair): string {
  return rows === columns ? `${letter}${rows}` : `${letter}${rows}x${columns}`;
}

function paddingWord(state: State): string {
  if (state.padding !== 'explicit') return state.padding === 'valid' ? '' : state.padding;
  const [top, bottom, left, right] = state.pads;
  if (top === bottom && left === right) return pair('p', [top, left]);
  return `p${top}:${bottom}x${left}:${right}`;
}

function shapeWord({ batch, channels, rows, columns, layout }: Shape): string {
  return layout === 'nchw' ? `${batch}x${channels}x${rows}x${columns}` : `${batch}x${rows}x${columns}x${channels}`;
}

function geometryWords(state: State): string[] {
  if (state.adaptive) return [`adaptive=${state.adaptive.join('x')}`, state.dialect];
  return [
    pair('k', state.kernel),
    pair('s', state.stride),
    paddingWord(state),
    state.dilation.every((d) => d === '1') ? '' : pair('d', state.dilation),
    state.rounding,
    state.dialect,
  ];
}

export function problemText(state: State, shape: Shape): string {
  const rules = [state.relu && 'relu', state.ties && `ties=${state.ties}`, state.nan && `nan=${state.nan}`];
  const words = ['max', 'f32', shape.layout, shapeWord(shape), ...geometryWords(state), ...rules];
  return words.filter(Boolean).join(' ');
}

/** The same windows under average pooling. Its Jacobian has an entry for every input a window covers, so it tells the page
 * which inputs that is without any window arithmetic here. */
export function coverageText(state: State, shape: Shape): string {
  return ['avg', 'f32', shape.layout, shapeWord(shape), ...geometryWords(state)].filter(Boolean).join(' ');
}
