// The one door between the page and the library: a problem and its numbers go in, everything the page draws comes out.
//
// No pooling happens here. y, routes and dx are the WebAssembly engine's; who won is read off its Jacobian; which inputs a
// window covers is read off the Jacobian of average pooling over the same windows; who tied is the Jacobian under the tie
// rule `all`. Every failure is an Error whose message is the library's own sentence.
import type { Engine, Jacobian, Plan, PlanInfo } from '../../bindings/js/src/api/types';
import { coverageText, gridShape, problemText } from './problem';
import type { State } from './state';

export interface Winner {
  input: number;
  /** The local derivative: 1, or 1/count when ties split. */
  weight: number;
}

export interface Pooled {
  info: PlanInfo;
  rows: number;
  columns: number;
  outRows: number;
  outColumns: number;
  y: Float32Array;
  routes: Uint8Array;
  /** Per output. */
  winners: Winner[][];
  windows: number[][];
  readonly tied: number[][];
  /** Per input: the outputs whose windows cover it, and how many of them it wins. */
  coveredBy: number[][];
  wins: number[];
  explain(): string;
  backward(dy: ArrayLike<number>): Float32Array;
}

/** The page draws outputs up to this many rows and columns; the library itself has no such limit. */
export const MAX_OUTPUT_SIDE = 24;

/** What `entry` makes of every entry, row by row. Plain loops: an edit comes through here twice, with a frame to spend. */
function byRow<T>({ rowStart }: Jacobian, entry: (at: number) => T): T[][] {
  const rows: T[][] = [];
  for (let row = 0; row + 1 < rowStart.length; row += 1) {
    const entries: T[] = [];
    for (let at = rowStart[row]!; at < rowStart[row + 1]!; at += 1) entries.push(entry(at));
    rows.push(entries);
  }
  return rows;
}

function columnsByRow(jacobian: Jacobian): number[][] {
  return byRow(jacobian, (at) => jacobian.columns[at]!);
}

function winnersByRow(jacobian: Jacobian): Winner[][] {
  return byRow(jacobian, (at) => ({ input: jacobian.columns[at]!, weight: jacobian.values[at]! }));
}

function forward(plan: Plan, x: Float32Array): { y: Float32Array; routes: Uint8Array } {
  const { y, routes } = plan.forward(x, { routes: true });
  return { y: y as Float32Array, routes: routes! };
}

interface Coverage {
  problem: string;
  windows: number[][];
  coveredBy: number[][];
}

let lastCoverage: Coverage | null = null;

/** Which inputs each window covers. It depends on the settings only, so an edit of a number finds it ready. */
function coverage(engine: Engine, problem: string, inputs: number): Coverage {
  if (lastCoverage?.problem === problem) return lastCoverage;
  const windows = columnsByRow(engine.cachedPlan(problem).jacobian(null));
  const coveredBy: number[][] = Array.from({ length: inputs }, () => []);
  windows.forEach((covered, output) => covered.forEach((input) => coveredBy[input]!.push(output)));
  lastCoverage = { problem, windows, coveredBy };
  return lastCoverage;
}

/** Refuses, in a sentence of the page's own, an output that is too large to draw. */
function checkDrawable(info: PlanInfo): void {
  const [rows, columns] = info.outSize as [number, number];
  if (rows > MAX_OUTPUT_SIDE || columns > MAX_OUTPUT_SIDE) {
    throw new Error(
      `The output would have ${rows} rows and ${columns} columns; this page draws at most ${MAX_OUTPUT_SIDE} of each.`,
    );
  }
}

export function pool(engine: Engine, state: State): Pooled {
  const shape = gridShape(state);
  const x = Float32Array.from(state.x);
  const plan = engine.cachedPlan(problemText(state, shape));
  const { info } = plan;
  checkDrawable(info);
  const { y, routes } = forward(plan, x);
  const winners = winnersByRow(plan.jacobian(routes));
  const { windows, coveredBy } = coverage(engine, coverageText(state, shape), x.length);
  const everyMaximum = engine.cachedPlan(problemText({ ...state, ties: 'all' }, shape));
  let tied: number[][] | null = null;
  const wins = Array.from(x, () => 0);
  winners.forEach((won) => won.forEach(({ input }) => (wins[input]! += 1)));
  const [outRows, outColumns] = info.outSize as [number, number];
  return {
    info,
    rows: state.rows,
    columns: state.columns,
    outRows,
    outColumns,
    y,
    routes,
    winners,
    windows,
    // Asked for when the hand rests, not by an edit.
    get tied() {
      return (tied ??= columnsByRow(everyMaximum.jacobian(forward(everyMaximum, x).routes)));
    },
    coveredBy,
    wins,
    explain: () => plan.explain(),
    backward: (dy) => plan.backward(Float32Array.from(dy), routes) as Float32Array,
  };
}
