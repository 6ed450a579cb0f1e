// One grid of the picture as SVG: cells with their numbers, row and column labels, keyboard reachable as an ARIA grid.
//
// A cell is one focusable group; exactly one cell of a grid is in the tab order, arrow keys move it (edit.ts). Positions
// are in the picture's own pixels, so that arrows and outlines can be drawn over all grids at once. Every row is a sheet of its
// own over the whole picture: a browser goes through all of an SVG when something in it changed, and so only through that row.
import type { GridName } from './state';
import { html, setAttributes, setText, svg } from './svg';

export interface Frame {
  /** Cells of padding drawn around the grid: on x only. */
  top: number;
  bottom: number;
  left: number;
  right: number;
}

export const NO_FRAME: Frame = { top: 0, bottom: 0, left: 0, right: 0 };

export interface CellLook {
  text: string;
  classes: string;
  label: string;
  /** 0…1: how strongly the cell is tinted. */
  tint: number;
  /** A small note in the corner, such as how many windows an input won. */
  badge: string;
}

interface Cell {
  group: SVGGElement;
  rect: SVGRectElement;
  text: SVGTextElement;
  /** Made when first shown: most cells have neither, and what is not there is not painted. */
  tint: SVGRectElement | null;
  badge: SVGTextElement | null;
  look: CellLook | null;
}

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

export const TITLE_HEIGHT = 44;
const MIN_LABELLED_CELL = 17;

export class GridView {
  readonly node: HTMLElement;
  rows = 0;
  columns = 0;
  frame: Frame = NO_FRAME;
  /** Left and top of cell (0, 0), and its side. */
  private left = 0;
  private top = 0;
  private side = 0;
  private cells: Cell[] = [];
  private readonly body = html('div', { role: 'grid' });
  private readonly labels = svg('g', { class: 'labels' });
  /** Outside the cells: a cell's name for screen readers must hold all the text inside it. */
  private readonly badges = svg('svg', { class: 'sheet', 'aria-hidden': 'true' });
  private readonly padding = svg('g', { class: 'padding' });
  private readonly title: SVGTextElement;
  private readonly subtitle: SVGTextElement;
  private tabStop = 0;

  constructor(
    readonly name: GridName,
    title: string,
    private readonly describe: string,
    readonly editable: boolean,
  ) {
    this.title = svg('text', { class: 'grid-title' }, [title]);
    this.subtitle = svg('text', { class: 'grid-subtitle' });
    this.node = html('div', { class: `grid grid-${name}` }, [
      svg('svg', { class: 'sheet', 'aria-hidden': 'true' }, [this.title, this.subtitle, this.padding, this.labels]),
      this.body,
      this.badges,
    ]);
  }

  setShape(rows: number, columns: number, frame: Frame, subtitle: string): void {
    this.frame = frame;
    setText(this.subtitle, subtitle);
    setAttributes(this.body, {
      'aria-label': `${this.describe}, ${rows} by ${columns}${this.editable ? ', editable' : ''}`,
      'aria-rowcount': rows,
      'aria-colcount': columns,
      'aria-readonly': this.editable ? null : 'true',
    });
    if (rows === this.rows && columns === this.columns) return;
    this.rows = rows;
    this.columns = columns;
    this.tabStop = 0;
    this.cells = [];
    this.body.replaceChildren();
    this.badges.replaceChildren();
    for (let row = 0; row < rows; row += 1) {
      const line = svg('svg', { class: 'sheet', role: 'row', 'aria-rowindex': row + 1 });
      for (let column = 0; column < columns; column += 1) line.append(this.makeCell(row, column).group);
      this.body.append(line);
    }
  }

  private makeCell(row: number, column: number): Cell {
    const rect = svg('rect', { class: 'cell-box' });
    const text = svg('text', { class: 'cell-text' });
    const index = row * this.columns + column;
    const group = svg(
      'g',
      {
        role: 'gridcell',
        tabindex: index === 0 ? 0 : -1,
        'aria-colindex': column + 1,
        'data-grid': this.name,
        'data-row': row,
        'data-column': column,
      },
      [rect, text],
    );
    const cell: Cell = { group, rect, text, tint: null, badge: null, look: null };
    this.cells.push(cell);
    return cell;
  }

  /** The size this grid takes with cells of this side, title and labels included. */
  measure(side: number): { width: number; height: number } {
    const { top, bottom, left, right } = this.frame;
    return {
      width: this.margin(side) + (left + this.columns + right) * side,
      height: TITLE_HEIGHT + this.margin(side) + (top + this.rows + bottom) * side,
    };
  }

  private margin(side: number): number {
    return side >= MIN_LABELLED_CELL ? 16 : 4;
  }

  place(x: number, y: number, side: number): void {
    const margin = this.margin(side);
    this.side = side;
    this.left = x + margin + this.frame.left * side;
    this.top = y + TITLE_HEIGHT + margin + this.frame.top * side;
    setAttributes(this.title, { x: x + margin, y: y + 15 });
    setAttributes(this.subtitle, { x: x + margin, y: y + 33 });
    this.cells.forEach((cell, index) => {
      const box = this.cellBox(index);
      setAttributes(cell.rect, this.inner(box));
      if (cell.tint) setAttributes(cell.tint, this.inner(box));
      setAttributes(cell.text, { x: box.x + side / 2, y: box.y + side / 2 });
      if (cell.badge) setAttributes(cell.badge, { x: box.x + side - 4, y: box.y + 10 });
      this.writeBadge(index);
      this.fitText(cell);
    });
    this.drawLabels(margin);
    this.drawPadding();
  }

  private inner({ x, y, width, height }: Box): Record<string, number> {
    const inset = this.side > 24 ? 1.5 : 0.75;
    return { x: x + inset, y: y + inset, width: width - 2 * inset, height: height - 2 * inset, rx: this.side > 24 ? 4 : 2 };
  }

  private drawLabels(margin: number): void {
    this.labels.replaceChildren();
    if (margin < 16) return;
    const first = this.boxOf(-this.frame.top, -this.frame.left);
    for (let row = 0; row < this.rows; row += 1) {
      const box = this.boxOf(row, 0);
      this.labels.append(svg('text', { x: first.x - 7, y: box.y + this.side / 2, class: 'label' }, [String(row)]));
    }
    for (let column = 0; column < this.columns; column += 1) {
      const box = this.boxOf(0, column);
      this.labels.append(svg('text', { x: box.x + this.side / 2, y: first.y - 7, class: 'label' }, [String(column)]));
    }
  }

  private drawPadding(): void {
    this.padding.replaceChildren();
    const { top, bottom, left, right } = this.frame;
    for (let row = -top; row < this.rows + bottom; row += 1) {
      for (let column = -left; column < this.columns + right; column += 1) {
        if (row >= 0 && row < this.rows && column >= 0 && column < this.columns) continue;
        const box = this.boxOf(row, column);
        this.padding.append(
          svg('rect', { x: box.x + 2.5, y: box.y + 2.5, width: this.side - 5, height: this.side - 5, rx: 3 }),
        );
      }
    }
  }

  update(index: number, look: CellLook): void {
    const cell = this.cells[index]!;
    const old = cell.look;
    if (old === look) return;
    cell.look = look;
    if (old?.classes !== look.classes) {
      cell.group.setAttribute('class', `cell ${look.classes}`);
      cell.badge?.setAttribute('class', `cell-badge ${look.classes}`);
    }
    if (old?.label !== look.label) cell.group.setAttribute('aria-label', look.label);
    if ((old?.tint ?? 0) !== look.tint) this.writeTint(index, look.tint);
    if (old?.badge !== look.badge) this.writeBadge(index);
    if (old?.text !== look.text) {
      setText(cell.text, look.text);
      this.fitText(cell);
    }
  }

  private writeTint(index: number, tint: number): void {
    const cell = this.cells[index]!;
    if (!cell.tint) {
      cell.tint = svg('rect', { class: 'cell-tint', ...this.inner(this.cellBox(index)) });
      cell.text.before(cell.tint);
    }
    cell.tint.setAttribute('fill-opacity', tint.toFixed(3));
  }

  /** A small cell has no room for one. */
  private writeBadge(index: number): void {
    const cell = this.cells[index]!;
    const text = this.side >= 38 ? (cell.look?.badge ?? '') : '';
    if (!cell.badge && text) {
      const box = this.cellBox(index);
      cell.badge = svg('text', { x: box.x + this.side - 4, y: box.y + 10, class: `cell-badge ${cell.look!.classes}` });
      this.badges.append(cell.badge);
    }
    if (cell.badge) setText(cell.badge, text);
  }

  private fitText(cell: Cell): void {
    const length = Math.max(2, cell.look?.text.length ?? 0);
    const size = Math.min(19, this.side * 0.46, (this.side * 0.86) / (length * 0.6));
    setAttributes(cell.text, { 'font-size': size.toFixed(1) });
  }

  /** Where (row, column) is drawn; places in the padding have negative or large coordinates. */
  boxOf(row: number, column: number): Box {
    return { x: this.left + column * this.side, y: this.top + row * this.side, width: this.side, height: this.side };
  }

  cellBox(index: number): Box {
    return this.boxOf(Math.floor(index / this.columns), index % this.columns);
  }

  /** Around all cells, padding left out. */
  cellsBox(): Box {
    return { x: this.left, y: this.top, width: this.columns * this.side, height: this.rows * this.side };
  }

  cellNode(row: number, column: number): SVGGElement | null {
    return this.cells[row * this.columns + column]?.group ?? null;
  }

  /** Makes this cell the grid's one stop in the tab order. */
  setTabStop(row: number, column: number): void {
    const index = row * this.columns + column;
    if (index === this.tabStop || !this.cells[index]) return;
    this.cells[this.tabStop]?.group.setAttribute('tabindex', '-1');
    this.cells[index].group.setAttribute('tabindex', '0');
    this.tabStop = index;
  }
}
