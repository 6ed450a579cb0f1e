// Everything a hand can do to the grids: point, pin, type, paint, and move with the keys.
//
// Pointing lights a cell, a click pins it, a double click, Enter or any digit opens a small text field over it. With the
// paint tool a drag writes the brush's value. The keys follow the ARIA grid pattern: arrows, Home, End, Ctrl with both.
import type { Picture } from './picture';
import { numberText, parseNumber, type GridName, type Place } from './state';
import { html } from './svg';

export interface EditTarget {
  valueAt(place: Place): number;
  setValue(place: Place, value: number): void;
  point(place: Place | null): void;
  pin(place: Place): void;
  unpin(): void;
  isPinned(place: Place): boolean;
  /** Runs several of these and draws once, at the end. */
  together(act: () => void): void;
  /** The brush's value while painting, else null. */
  brush(): number | null;
}

function placeOf(node: Element | null): Place | null {
  const cell = node?.closest<SVGGElement>('[role="gridcell"]');
  if (!cell) return null;
  return {
    grid: cell.dataset['grid'] as GridName,
    row: Number(cell.dataset['row']),
    column: Number(cell.dataset['column']),
  };
}

const MOVES: Record<string, readonly [number, number]> = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
};

export class Editing {
  private readonly field = html('input', { class: 'cell-editor', type: 'text', hidden: '', spellcheck: 'false' });
  private editing: Place | null = null;
  private painting = false;

  constructor(host: HTMLElement, private readonly picture: Picture, private readonly target: EditTarget) {
    host.append(this.field);
    const node = picture.node;
    node.addEventListener('pointerover', (event) => this.target.point(placeOf(event.target as Element)));
    node.addEventListener('pointerleave', () => this.target.point(null));
    // A formula that grows under the picture must not scroll the cell it speaks of away from the pointer.
    node.addEventListener('pointerenter', () => (document.body.style.overflowAnchor = 'none'));
    node.addEventListener('pointerleave', () => (document.body.style.overflowAnchor = ''));
    // On the host: the cell under its text field stays lit.
    host.addEventListener('focusin', (event) => {
      if (event.target !== this.field) this.target.point(placeOf(event.target as Element));
    });
    host.addEventListener('focusout', (event) => {
      // From cell to cell the light moves with the next focusin; going dark in between would redraw everything twice.
      if (!host.contains(event.relatedTarget as Node | null)) this.target.point(null);
    });
    node.addEventListener('pointerdown', (event) => this.press(event));
    node.addEventListener('pointermove', (event) => this.drag(event));
    window.addEventListener('pointerup', () => (this.painting = false));
    node.addEventListener('click', (event) => this.click(event));
    node.addEventListener('dblclick', (event) => this.open(placeOf(event.target as Element), null));
    node.addEventListener('keydown', (event) => this.key(event));
    this.field.addEventListener('keydown', (event) => this.fieldKey(event));
    this.field.addEventListener('blur', () => this.close(true));
  }

  private editable(place: Place | null): place is Place {
    return place !== null && this.picture.grids[place.grid].editable;
  }

  private press(event: PointerEvent): void {
    const place = placeOf(event.target as Element);
    const brush = this.target.brush();
    if (brush === null || !this.editable(place)) return;
    event.preventDefault();
    this.painting = true;
    this.target.setValue(place, brush);
  }

  private drag(event: PointerEvent): void {
    if (!this.painting) return;
    const brush = this.target.brush();
    // A touch keeps reporting the cell it began on, so the cell is looked up by position.
    const place = placeOf(document.elementFromPoint(event.clientX, event.clientY));
    if (brush !== null && this.editable(place)) this.target.setValue(place, brush);
  }

  private click(event: MouseEvent): void {
    const place = placeOf(event.target as Element);
    if (!place || this.target.brush() !== null) return;
    this.focus(place);
    const touch = (event as PointerEvent).pointerType === 'touch';
    if (!this.target.isPinned(place)) this.target.pin(place);
    else if (touch && this.editable(place)) this.open(place, null);
    else if (event.detail < 2) this.target.unpin();
  }

  private focus(place: Place): void {
    const grid = this.picture.grids[place.grid];
    grid.setTabStop(place.row, place.column);
    grid.cellNode(place.row, place.column)?.focus({ preventScroll: true });
  }

  private move(place: Place, rows: number, columns: number): void {
    const grid = this.picture.grids[place.grid];
    this.focus({
      grid: place.grid,
      row: Math.min(grid.rows - 1, Math.max(0, place.row + rows)),
      column: Math.min(grid.columns - 1, Math.max(0, place.column + columns)),
    });
  }

  private key(event: KeyboardEvent): void {
    const place = placeOf(event.target as Element);
    if (!place || event.altKey || event.metaKey) return;
    const grid = this.picture.grids[place.grid];
    const step = MOVES[event.key];
    const handled = () => event.preventDefault();
    if (step) {
      handled();
      this.move(place, ...step);
    } else if (event.key === 'Home') {
      handled();
      this.move(place, event.ctrlKey ? -grid.rows : 0, -grid.columns);
    } else if (event.key === 'End') {
      handled();
      this.move(place, event.ctrlKey ? grid.rows : 0, grid.columns);
    } else if (event.key === ' ') {
      handled();
      if (this.target.isPinned(place)) this.target.unpin();
      else this.target.pin(place);
    } else if (event.key === 'Escape') {
      this.target.unpin();
    } else if (this.editable(place) && !event.ctrlKey) {
      if (event.key === 'Enter' || event.key === 'F2') {
        handled();
        this.open(place, null);
      } else if (/^[-+.\dniNI∞]$/.test(event.key)) {
        handled();
        this.open(place, event.key);
      }
    }
  }

  /** Opens the text field over a cell, with its value, or with the first letter typed. */
  private open(place: Place | null, typed: string | null): void {
    if (!this.editable(place)) return;
    const grid = this.picture.grids[place.grid];
    const cell = grid.cellNode(place.row, place.column);
    if (!cell) return;
    const box = grid.boxOf(place.row, place.column);
    const width = Math.max(46, box.width);
    Object.assign(this.field.style, {
      left: `${box.x + (box.width - width) / 2}px`,
      top: `${box.y}px`,
      width: `${width}px`,
      height: `${Math.max(26, box.height)}px`,
    });
    this.editing = place;
    this.field.hidden = false;
    this.field.setAttribute('aria-label', `${place.grid} at row ${place.row}, column ${place.column}`);
    this.field.value = typed ?? numberText(this.target.valueAt(place));
    this.field.focus({ preventScroll: true });
    if (typed === null) this.field.select();
  }

  /** Takes what was typed if it is a number; anything else leaves the cell as it was. The focus goes to a cell at this distance,
   * if one is given: first, because a change of focus lays the page out, which costs little while nothing has changed. The field is
   * hidden last, so that the focus is never nowhere. */
  private close(keep: boolean, step?: readonly [number, number]): void {
    const place = this.editing;
    if (!place) return;
    this.editing = null;
    const value = keep ? parseNumber(this.field.value) : null;
    this.target.together(() => {
      if (step) this.move(place, ...step);
      if (value !== null) this.target.setValue(place, value);
    });
    this.field.hidden = true;
  }

  private fieldKey(event: KeyboardEvent): void {
    if (!this.editing) return;
    const after: Record<string, readonly [number, number]> = {
      Enter: [1, 0],
      ArrowDown: [1, 0],
      ArrowUp: [-1, 0],
      Tab: [0, event.shiftKey ? -1 : 1],
    };
    const step = after[event.key];
    if (step) {
      event.preventDefault();
      this.close(true, step);
    } else if (event.key === 'Escape') {
      this.close(false, [0, 0]);
    }
  }
}
