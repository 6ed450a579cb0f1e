// What lights up in the picture: for a place that is pointed at, for an output that is being walked, or for a line of the
// derivation. Pure data from the library's result; drawing is picture.ts's work.
import type { Pooled } from './pool';
import type { GridName, Place } from './state';

/** covered: inside a lit window. winner: the input that won. output: the y it became. idle: its window covers the place
 * but routes nothing to it. gradient: carries or receives a message. */
export type Role = 'covered' | 'winner' | 'output' | 'idle' | 'gradient' | 'tied';

export interface Outline {
  output: number;
  /** gives: routes to the lit place. idle: covers it only. */
  kind: 'gives' | 'idle';
}

export interface Arrow {
  direction: 'forward' | 'backward';
  input: number;
  output: number;
}

export interface Lighting {
  roles: Record<GridName, Map<number, Role>>;
  outlines: Outline[];
  arrows: Arrow[];
}

/** Lines of the derivation, each with its own light. */
export type LineName = 'window' | 'winner' | 'local' | 'chain' | 'message' | 'disjoint' | 'ties' | 'relu' | 'matrix';

function dark(): Lighting {
  return {
    roles: { x: new Map(), y: new Map(), dy: new Map(), dx: new Map() },
    outlines: [],
    arrows: [],
  };
}

export function isInput(grid: GridName): boolean {
  return grid === 'x' || grid === 'dx';
}

export function placeIndex(place: Place, pooled: Pooled): number | null {
  const rows = isInput(place.grid) ? pooled.rows : pooled.outRows;
  const columns = isInput(place.grid) ? pooled.columns : pooled.outColumns;
  return place.row < rows && place.column < columns ? place.row * columns + place.column : null;
}

function addOutput(light: Lighting, pooled: Pooled, output: number, directions: readonly Arrow['direction'][]): void {
  const { roles } = light;
  const routed = pooled.winners[output]!.length > 0;
  light.outlines.push({ output, kind: routed ? 'gives' : 'idle' });
  for (const input of pooled.windows[output]!) if (!roles.x.has(input)) roles.x.set(input, 'covered');
  for (const { input } of pooled.winners[output]!) {
    roles.x.set(input, 'winner');
    if (directions.includes('backward')) roles.dx.set(input, 'gradient');
    for (const direction of directions) light.arrows.push({ direction, input, output });
  }
  if (directions.includes('forward')) roles.y.set(output, routed ? 'output' : 'idle');
  if (directions.includes('backward')) roles.dy.set(output, routed ? 'gradient' : 'idle');
}

export function lightOutput(
  pooled: Pooled,
  output: number,
  directions: readonly Arrow['direction'][] = ['forward', 'backward'],
): Lighting {
  const light = dark();
  addOutput(light, pooled, output, directions);
  return light;
}

export function lightInput(pooled: Pooled, input: number): Lighting {
  const light = dark();
  const { roles } = light;
  for (const output of pooled.coveredBy[input]!) {
    const gives = pooled.winners[output]!.some((winner) => winner.input === input);
    light.outlines.push({ output, kind: gives ? 'gives' : 'idle' });
    roles.y.set(output, gives ? 'output' : 'idle');
    roles.dy.set(output, gives ? 'gradient' : 'idle');
    if (gives) {
      light.arrows.push({ direction: 'forward', input, output }, { direction: 'backward', input, output });
    }
  }
  const wins = light.arrows.length > 0;
  roles.x.set(input, wins ? 'winner' : 'covered');
  roles.dx.set(input, wins ? 'gradient' : 'covered');
  return light;
}

export function lightPlace(pooled: Pooled, place: Place): Lighting | null {
  const index = placeIndex(place, pooled);
  if (index === null) return null;
  return isInput(place.grid) ? lightInput(pooled, index) : lightOutput(pooled, index);
}

/** The output a lesson should point at first: one with more than one covered input and a winner, else the first. */
export function exampleOutput(pooled: Pooled): number | null {
  const found = pooled.winners.findIndex((winners, o) => winners.length > 0 && pooled.windows[o]!.length > 1);
  return found >= 0 ? found : pooled.winners.length > 0 ? 0 : null;
}

/** The input a lesson should point at: the one most windows route to, and among those the one most windows cover. */
export function exampleInput(pooled: Pooled): number | null {
  const wins = pooled.wins;
  let best: number | null = null;
  for (let input = 0; input < wins.length; input += 1) {
    if (
      best === null ||
      wins[input]! > wins[best]! ||
      (wins[input] === wins[best] && pooled.coveredBy[input]!.length > pooled.coveredBy[best]!.length)
    ) {
      best = input;
    }
  }
  return best;
}

export function tiedOutputs(pooled: Pooled): number[] {
  return pooled.tied.flatMap((tied, output) => (tied.length > 1 ? [output] : []));
}

/** Outputs whose window has no winner. */
export function unrouted(pooled: Pooled): number[] {
  return pooled.winners.flatMap((winners, output) => (winners.length ? [] : [output]));
}

export function lightLine(pooled: Pooled, line: LineName, output: number | null, input: number | null): Lighting {
  const all = pooled.windows.keys();
  const light = dark();
  switch (line) {
    case 'window':
      return output === null ? light : lightOutput(pooled, output, ['forward']);
    case 'winner':
      for (const o of all) {
        light.roles.y.set(o, 'output');
        for (const { input: i } of pooled.winners[o]!) {
          light.roles.x.set(i, 'winner');
          light.arrows.push({ direction: 'forward', input: i, output: o });
        }
      }
      return light;
    case 'local':
      return output === null ? light : lightOutput(pooled, output);
    case 'chain':
    case 'message':
      return input === null ? light : lightInput(pooled, input);
    case 'disjoint':
      pooled.coveredBy.forEach((outputs, i) => {
        if (outputs.length === 1) light.roles.x.set(i, 'covered');
        if (outputs.length > 1) light.roles.x.set(i, 'tied');
      });
      for (const o of all) light.outlines.push({ output: o, kind: 'gives' });
      return light;
    case 'ties':
      for (const o of tiedOutputs(pooled)) {
        light.outlines.push({ output: o, kind: 'gives' });
        light.roles.y.set(o, 'output');
        light.roles.dy.set(o, 'gradient');
        for (const i of pooled.tied[o]!) light.roles.x.set(i, 'tied');
        for (const { input: i } of pooled.winners[o]!) {
          light.roles.dx.set(i, 'gradient');
          light.arrows.push({ direction: 'backward', input: i, output: o });
        }
      }
      return light;
    case 'relu':
      for (const o of unrouted(pooled)) {
        light.outlines.push({ output: o, kind: 'idle' });
        light.roles.y.set(o, 'idle');
        light.roles.dy.set(o, 'idle');
        for (const i of pooled.windows[o]!) light.roles.x.set(i, 'covered');
      }
      return light;
    case 'matrix':
      for (const o of all) {
        light.roles.dy.set(o, 'gradient');
        for (const { input: i } of pooled.winners[o]!) {
          light.roles.dx.set(i, 'gradient');
          light.arrows.push({ direction: 'backward', input: i, output: o });
        }
      }
      return light;
  }
}
