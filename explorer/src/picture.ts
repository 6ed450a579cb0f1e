// The picture: x, y, dy and dx as four grids, with windows outlined and routes drawn over them.
//
// It is a pile of SVG sheets of one size, so an arrow may cross from grid to grid and the export is the pile. The layout is
// chosen by the width at hand: four in a row, two by two (x over dx, y over dy), or one under another on a phone.
import { GridView, NO_FRAME, type Box, type CellLook, type Frame } from './gridview';
import type { Lighting, Outline } from './lighting';
import { longNumber, shortNumber } from './numbers';
import type { Pooled } from './pool';
import { GRID_NAMES, type GridName } from './state';
import { html, setAttributes, svg } from './svg';
import { wire, type WireEnd } from './wire';

export interface PictureModel {
  pooled: Pooled;
  x: readonly number[];
  dy: readonly number[];
  dx: Float32Array;
  light: Lighting | null;
  /** Outputs already walked; both are the number of outputs when the picture is complete. */
  forwardDone: number;
  backwardDone: number;
  showWindows: boolean;
}

/** What a kind of cell has of its own: `note` follows the number where it is read out, or stands alone beside a text. */
type Own = Pick<CellLook, 'classes' | 'tint' | 'badge' | 'text'> & { note: string };

/** A look, with what it was made of. */
interface Look extends CellLook {
  value: number;
  columns: number;
  note: string;
}

interface Arrangement {
  name: 'row' | 'square' | 'stack';
  lines: readonly (readonly GridName[])[];
  /** The smallest cell for which this arrangement is worth taking. */
  smallest: number;
}

const ARRANGEMENTS: readonly Arrangement[] = [
  { name: 'row', lines: [['x', 'y', 'dy', 'dx']], smallest: 27 },
  { name: 'square', lines: [['x', 'y'], ['dx', 'dy']], smallest: 21 },
  { name: 'stack', lines: [['x'], ['y'], ['dy'], ['dx']], smallest: 0 },
];
const LARGEST_CELL = 58;
const COLUMN_GAP = 34;
const LINE_GAP = 18;

function windowFrame({ info, rows, columns, outRows, outColumns }: Pooled): Frame {
  const reach = (axis: 0 | 1, out: number) => info.byTable[axis] ? 0 :
    (out - 1) * info.stride[axis]! - info.padLo[axis]! + (info.kernel[axis]! - 1) * info.dilation[axis]! + 1;
  return {
    top: Math.max(0, info.padLo[0]!),
    left: Math.max(0, info.padLo[1]!),
    bottom: Math.max(0, reach(0, outRows) - rows),
    right: Math.max(0, reach(1, outColumns) - columns),
  };
}

export class Picture {
  readonly node: HTMLElement;
  readonly grids: Record<GridName, GridView>;
  private readonly windows = svg('svg', { class: 'sheet', 'aria-hidden': 'true' });
  private readonly lit = svg('g');
  private readonly routes = svg('g');
  private readonly overlay = svg('svg', { class: 'sheet', 'aria-hidden': 'true' }, [this.lit, this.routes]);
  private model: PictureModel | null = null;
  private layoutKey = '';
  private width = 0;
  /** Of the dx in the looks: what tints are shares of. */
  private largest = 0;
  private looks: Record<GridName, Look[]> = { x: [], y: [], dy: [], dx: [] };

  constructor(private readonly host: HTMLElement) {
    this.grids = {
      x: new GridView('x', 'x', 'Input x', true),
      y: new GridView('y', 'y', 'Output y', false),
      dy: new GridView('dy', 'dy', 'Gradient dy that comes in', true),
      dx: new GridView('dx', 'dx', 'Gradient dx that goes on', false),
    };
    this.node = html('div', { class: 'picture', role: 'group', 'aria-label': 'The grids x, y, dy and dx' }, [
      ...GRID_NAMES.map((name) => this.grids[name].node),
      this.windows,
      this.overlay,
    ]);
    host.append(this.node);
  }

  render(model: PictureModel): void {
    const before = this.model;
    this.model = model;
    const { pooled } = model;
    const shapes = `${pooled.rows}×${pooled.columns}`;
    const outs = `${pooled.outRows}×${pooled.outColumns}`;
    this.grids.x.setShape(pooled.rows, pooled.columns, windowFrame(pooled), `input, ${shapes}`);
    this.grids.y.setShape(pooled.outRows, pooled.outColumns, NO_FRAME, `output, ${outs}`);
    this.grids.dy.setShape(pooled.outRows, pooled.outColumns, NO_FRAME, 'gradient in');
    this.grids.dx.setShape(pooled.rows, pooled.columns, NO_FRAME, 'gradient out');
    this.layOut();
    // One class on the whole dims what is not lit: a class on each of a thousand cells would cost a frame.
    this.node.classList.toggle('has-light', model.light !== null);
    this.fill(model, before);
    this.drawWindows(model);
    this.drawLight(model);
  }

  /** To be called when the host's width changed. Kept, because asking for it amid changes costs a layout of the page. */
  resize(): void {
    this.width = this.host.clientWidth;
    if (this.model && this.width > 0) this.render(this.model);
  }

  private cellSide(lines: Arrangement['lines'], width: number): number {
    const perColumn = lines[0]!.map((_, at) => Math.max(...lines.map((line) => {
      const { columns, frame } = this.grids[line[at]!];
      return frame.left + columns + frame.right;
    })));
    const room = width - perColumn.length * 16 - (perColumn.length - 1) * COLUMN_GAP - 4;
    const rows = lines.reduce((sum, line) => sum + Math.max(...line.map((name) => {
      const grid = this.grids[name];
      return grid.frame.top + grid.rows + grid.frame.bottom;
    })), 0);
    // Two lines of grids should fit on a screen; one under another is for phones, which scroll.
    const tallest = lines.length > 2 ? LARGEST_CELL : Math.max(22, Math.floor((window.innerHeight - 230) / rows));
    return Math.min(LARGEST_CELL, tallest, Math.floor(room / perColumn.reduce((a, b) => a + b, 0)));
  }

  private layOut(): void {
    this.width ||= this.host.clientWidth;
    const width = Math.max(240, this.width);
    const key = [width, ...GRID_NAMES.flatMap((name) => {
      const { rows, columns, frame } = this.grids[name];
      return [rows, columns, frame.top, frame.bottom, frame.left, frame.right];
    })].join();
    if (key === this.layoutKey) return;
    this.layoutKey = key;
    const arrangement = ARRANGEMENTS.find(({ lines, smallest }) => this.cellSide(lines, width) >= smallest)!;
    const side = Math.max(8, this.cellSide(arrangement.lines, width));
    const sizes = arrangement.lines.map((line) => line.map((name) => this.grids[name].measure(side)));
    const columnWidths = arrangement.lines[0]!.map((_, at) => Math.max(...sizes.map((line) => line[at]!.width)));
    const used = columnWidths.reduce((a, b) => a + b, 0) + (columnWidths.length - 1) * COLUMN_GAP;
    const left = Math.max(2, (width - used) / 2);
    let y = 2;
    arrangement.lines.forEach((line, at) => {
      let x = left;
      line.forEach((name, column) => {
        this.grids[name].place(x, y, side);
        x += columnWidths[column]! + COLUMN_GAP;
      });
      y += Math.max(...sizes[at]!.map((size) => size.height)) + LINE_GAP;
    });
    const height = y - LINE_GAP + 6;
    setAttributes(this.node, { style: `--width: ${width}px; aspect-ratio: ${width} / ${height}`, 'data-arrangement': arrangement.name });
    for (const sheet of this.node.querySelectorAll('.sheet')) setAttributes(sheet, { viewBox: `0 0 ${width} ${height}` });
  }

  /** The look of every cell before any light falls on it. */
  private baseLooks({ pooled, x, dy, dx, forwardDone, backwardDone }: PictureModel, last: PictureModel | null): Record<GridName, Look[]> {
    const largest = dx.reduce((most, value) => (Number.isFinite(value) ? Math.max(most, Math.abs(value)) : most), 0);
    const complete = forwardDone >= pooled.y.length;
    // Between two whole pictures of one shape, few cells change: the others are not even described again.
    const whole = last && complete && last.forwardDone >= pooled.y.length && backwardDone === last.backwardDone &&
      last.pooled.y.length === pooled.y.length ? last.pooled : null;
    const looks = (name: GridName, values: ArrayLike<number>, own: (index: number, value: number) => Partial<Own>,
        keeps: (index: number, then: Pooled) => boolean) => {
      const { columns } = this.grids[name];
      const before = this.looks[name];
      return Array.from(values, (value, index): Look => {
        const kept = before[index];
        if (whole && kept && Object.is(kept.value, value) && kept.columns === columns && keeps(index, whole)) return kept;
        const { classes = '', tint = 0, badge = '', note = '', text } = own(index, value);
        // Most cells stay as they are: what is the same object is not written again.
        if (kept && Object.is(kept.value, value) && kept.columns === columns && kept.classes === classes && kept.tint === tint &&
            kept.badge === badge && kept.note === note) return kept;
        const where = `row ${Math.floor(index / columns)}, column ${index % columns}`;
        const label = `${name} at ${where}: ${text ? '' : longNumber(value)}${note}`;
        return { value, columns, classes, tint, badge, note, text: text ?? shortNumber(value), label };
      });
    };
    const routed = (output: number) => pooled.winners[output]!.length > 0;
    const walked = (index: number) => complete ||
      pooled.coveredBy[index]!.some((o) => o < forwardDone && pooled.winners[o]!.some((w) => w.input === index));
    const routesStay = (output: number, then: Pooled) => routed(output) === then.winners[output]!.length > 0;
    const tintsStay = largest === this.largest;
    this.largest = largest;
    return {
      x: looks('x', x, (index) => {
        const wins = walked(index) ? pooled.wins[index]! : 0;
        return {
          classes: wins ? 'wins' : '',
          badge: wins > 1 ? `×${wins}` : '',
          note: `, in ${pooled.coveredBy[index]!.length} of the windows, wins ${pooled.wins[index]}`,
        };
      }, (index, then) => pooled.wins[index] === then.wins[index] && pooled.coveredBy[index]!.length === then.coveredBy[index]?.length),
      y: looks('y', pooled.y, (index) => {
        if (index >= forwardDone) return { text: '·', note: 'not yet computed', classes: 'waiting' };
        return routed(index) ? {} : { classes: 'no-route', note: ', no route' };
      }, routesStay),
      dy: looks('dy', dy, (index) => {
        if (backwardDone > 0 && index >= backwardDone) return { classes: 'waiting' };
        return routed(index) || index >= forwardDone ? {} : { classes: 'no-route', note: ', goes nowhere' };
      }, routesStay),
      dx: looks('dx', dx, (_, value) => {
        if (value === 0) return { classes: 'zero' };
        const share = largest > 0 && Number.isFinite(value) ? Math.abs(value) / largest : 0;
        return { classes: 'receives', tint: share > 0 ? 0.1 + 0.5 * share : 0 };
      }, () => tintsStay),
    };
  }

  /** Writes all cells when numbers changed, and only the cells that were or are lit when just the light moved. */
  private fill(model: PictureModel, before: PictureModel | null): void {
    const parts = ['pooled', 'x', 'dy', 'dx', 'forwardDone', 'backwardDone'] as const;
    const moved = before !== null && parts.every((part) => before[part] === model[part]);
    if (!moved) this.looks = this.baseLooks(model, before);
    for (const name of GRID_NAMES) {
      const roles = model.light?.roles[name];
      const looks = this.looks[name];
      const touched = moved
        ? new Set([...(before.light?.roles[name].keys() ?? []), ...(roles?.keys() ?? [])])
        : looks.keys();
      for (const index of touched) {
        const look = looks[index]!;
        const role = roles?.get(index);
        this.grids[name].update(index, role ? { ...look, classes: `${look.classes} lit ${role}` } : look);
      }
    }
  }

  /** The rectangle a window spans on x, padding included. */
  private windowBox(pooled: Pooled, output: number, inset: number): Box {
    const { stride, padLo, kernel, dilation, byTable } = pooled.info;
    if (byTable.some(Boolean)) return this.tableBox(pooled, output, inset);
    const row = Math.floor(output / pooled.outColumns) * stride[0]! - padLo[0]!;
    const column = (output % pooled.outColumns) * stride[1]! - padLo[1]!;
    const box = this.grids.x.boxOf(row, column);
    const extent = (axis: 0 | 1) => ((kernel[axis]! - 1) * dilation[axis]! + 1) * box.width;
    return { x: box.x + inset, y: box.y + inset, width: extent(1) - 2 * inset, height: extent(0) - 2 * inset };
  }

  /** The same of a window by table, which lies inside x: from its first input to its last. */
  private tableBox({ windows, columns }: Pooled, output: number, inset: number): Box {
    const corner = (input: number) => this.grids.x.boxOf(Math.floor(input / columns), input % columns);
    const [from, to] = [corner(windows[output]!.at(0)!), corner(windows[output]!.at(-1)!)];
    return { x: from.x + inset, y: from.y + inset, width: to.x + to.width - from.x - 2 * inset, height: to.y + to.height - from.y - 2 * inset };
  }

  private outline(pooled: Pooled, output: number, className: string, inset: number): SVGRectElement {
    return svg('rect', { ...this.windowBox(pooled, output, inset), rx: 6, class: className });
  }

  private drawWindows({ pooled, light, showWindows }: PictureModel): void {
    this.windows.replaceChildren();
    if (light || !showWindows) return;
    for (let output = 0; output < pooled.y.length; output += 1) {
      const name = pooled.winners[output]!.length ? 'window-faint' : 'window-faint no-route';
      this.windows.append(this.outline(pooled, output, name, this.spread(pooled, output)));
    }
  }

  /** Overlapping windows get different insets, so that their outlines do not hide one another. */
  private spread(pooled: Pooled, output: number): number {
    if (pooled.coveredBy.every((outputs) => outputs.length < 2)) return 0.5;
    const row = Math.floor(output / pooled.outColumns);
    const column = output % pooled.outColumns;
    return -1 + ((row % 2) * 2 + (column % 2)) * 2.2;
  }

  private drawLight({ pooled, light }: PictureModel): void {
    const many = (light?.outlines.length ?? 0) > 1;
    const order = (outline: Outline) => (outline.kind === 'gives' ? 1 : 0);
    const outlines = [...(light?.outlines ?? [])].sort((a, b) => order(a) - order(b));
    this.fillWith(this.lit, outlines, () => svg('rect', { rx: 6 }), (box, { output, kind }) =>
      setAttributes(box, { ...this.windowBox(pooled, output, many ? this.spread(pooled, output) : 0), class: `window-lit ${kind}` }));
    const vertical = this.node.dataset['arrangement'] === 'stack';
    const route = () => svg('g', {}, [svg('path', { class: 'wire' }), svg('path', { class: 'wire-marks' })]);
    this.fillWith(this.routes, light?.arrows ?? [], route, (group, { direction, input, output }) => {
      const [from, to] = direction === 'forward'
        ? [this.end('x', input), this.end('y', output)]
        : [this.end('dy', output), this.end('dx', input)];
      const { path, marks } = wire(from, to, vertical);
      setAttributes(group, { class: `route ${direction}` });
      setAttributes(group.firstElementChild!, { d: path });
      setAttributes(group.lastElementChild!, { d: marks });
    });
  }

  /** One child for each item. Those there are written again: light that moves on costs a few attributes. */
  private fillWith<N extends Element, T>(parent: Element, items: readonly T[], make: () => N, write: (child: N, item: T) => void): void {
    while (parent.childElementCount > items.length) parent.lastElementChild!.remove();
    items.forEach((item, at) => write((parent.children[at] ?? parent.appendChild(make())) as N, item));
  }

  private end(name: GridName, index: number): WireEnd {
    return { cell: this.grids[name].cellBox(index), grid: this.grids[name].cellsBox() };
  }
}

