// The shape of a route: a wire that leaves its cell into the gap below it, runs there to the edge of the grid, crosses to the
// other grid in one curve, and runs in the gap below the target's row. It never crosses a number, and wires to one target
// join on the way. Stacked grids turn the same drawing by a quarter.
import type { Box } from './gridview';

export interface WireEnd {
  cell: Box;
  /** All cells of the grid the cell belongs to. */
  grid: Box;
}

export interface Point {
  x: number;
  y: number;
}

export interface Wire {
  path: string;
  /** A dot where the wire meets each of its two cells, and an arrow head in the middle of the crossing: one path, as a route is many nodes. */
  marks: string;
}

interface Span {
  start: number;
  size: number;
}

/** The box seen along the direction of travel and across it. */
function turn(box: Box, vertical: boolean): { along: Span; across: Span } {
  const wide = { start: box.x, size: box.width };
  const tall = { start: box.y, size: box.height };
  return vertical ? { along: tall, across: wide } : { along: wide, across: tall };
}

const text = ({ x, y }: Point) => `${x.toFixed(1)} ${y.toFixed(1)}`;

function dot({ x, y }: Point, radius: number): string {
  const [r, across] = [radius.toFixed(1), (2 * radius).toFixed(1)];
  return `M${text({ x: x - radius, y })}a${r} ${r} 0 1 0 ${across} 0a${r} ${r} 0 1 0 -${across} 0z`;
}

function head(middle: Point, along: Point): string {
  const length = Math.hypot(along.x, along.y) || 1;
  const [cos, sin] = [along.x / length, along.y / length];
  const at = (x: number, y: number) => text({ x: middle.x + x * cos - y * sin, y: middle.y + x * sin + y * cos });
  return `M${at(-5, -4.5)}L${at(5, 0)}L${at(-5, 4.5)}z`;
}

export function wire(from: WireEnd, to: WireEnd, vertical: boolean): Wire {
  const [fromCell, fromGrid, toCell, toGrid] = [from.cell, from.grid, to.cell, to.grid].map((box) => turn(box, vertical));
  const ahead = toGrid!.along.start > fromGrid!.along.start;
  const point = (along: number, across: number): Point => (vertical ? { x: across, y: along } : { x: along, y: across });
  const centre = (span: Span) => span.start + span.size / 2;
  const far = (span: Span) => span.start + span.size;
  const fromAcross = far(fromCell!.across);
  const toAcross = far(toCell!.across);
  const exitAlong = ahead ? far(fromGrid!.along) : fromGrid!.along.start;
  const entryAlong = ahead ? toGrid!.along.start : far(toGrid!.along);
  const middleAlong = (exitAlong + entryAlong) / 2;
  const start = point(centre(fromCell!.along), fromAcross);
  const end = point(centre(toCell!.along), toAcross);
  const exit = point(exitAlong, fromAcross);
  const entry = point(entryAlong, toAcross);
  const pulls = [point(middleAlong, fromAcross), point(middleAlong, toAcross)] as const;
  // The tangent of a cubic at its middle.
  const tangent = { x: entry.x - exit.x + pulls[1].x - pulls[0].x, y: entry.y - exit.y + pulls[1].y - pulls[0].y };
  const middle = { x: (exit.x + entry.x) / 2, y: (exit.y + entry.y) / 2 };
  const radius = Math.min(3.4, from.cell.width * 0.11);
  return {
    path: `M${text(start)} L${text(exit)} C${text(pulls[0])} ${text(pulls[1])} ${text(entry)} L${text(end)}`,
    marks: dot(start, radius) + dot(end, radius) + head(middle, tangent),
  };
}
