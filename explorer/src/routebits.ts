// The routes as they are stored: per line of outputs, each route's bits, and the bytes they are packed into. This reads
// the documented format (docs/routes.md) for show only; the page's own arrows come from the library's Jacobian.
import type { Pooled } from './pool';
import { html, setText } from './svg';

export interface RouteText {
  bits: string;
  meaning: string;
}

/** `width` bits of a line, starting at bit `start`; low bits of a byte come first, bytes are little-endian. */
function readBits(line: Uint8Array, start: number, width: number): bigint {
  let value = 0n;
  for (let bit = 0; bit < width; bit += 1) {
    const at = start + bit;
    if ((line[at >> 3]! >> (at & 7)) & 1) value |= 1n << BigInt(bit);
  }
  return value;
}

/** One route in words: `11` is tap 3; a mask names every tap it holds. */
export function routeText(line: Uint8Array, at: number, info: Pooled['info']): RouteText {
  const code = readBits(line, at * info.routeBits, info.routeBits);
  const bits = code.toString(2).padStart(info.routeBits, '0');
  if (info.routeMasks) {
    const taps = Array.from({ length: info.taps }, (_, tap) => tap).filter((tap) => (code >> BigInt(tap)) & 1n);
    return { bits, meaning: taps.length ? `taps ${taps.join(', ')}` : 'no route' };
  }
  const none = info.mayHaveNoRoute && code === (1n << BigInt(info.routeBits)) - 1n;
  return { bits, meaning: none ? 'no route' : `tap ${code}` };
}

interface Chip {
  node: HTMLElement;
  bits: HTMLElement;
  meaning: HTMLElement;
}

/** The lines are built once per shape; after that only what changed is written. */
export class RouteBitsView {
  private chips: Chip[] = [];
  private hexes: HTMLElement[] = [];
  private shape = '';
  private lit: ReadonlySet<number> = new Set();
  /** The problem and the bytes that each line was written from. */
  private written: string[] = [];

  constructor(private readonly host: HTMLElement, private readonly summary: HTMLElement) {}

  render(pooled: Pooled, lit: ReadonlySet<number>): void {
    const { info, outRows, outColumns } = pooled;
    const shape = `${outRows}x${outColumns}`;
    if (shape !== this.shape) {
      this.shape = shape;
      this.build(outRows, outColumns);
    }
    this.write(pooled);
    for (const output of this.lit) this.chips[output]?.node.classList.remove('lit');
    for (const output of lit) this.chips[output]?.node.classList.add('lit');
    this.lit = lit;
    const kind = info.routeMasks ? `one bit for each of ${info.taps} taps, in whole bytes` : `the number of the winning tap`;
    setText(
      this.summary,
      `${info.routeBits} bits for each of ${outRows * outColumns} outputs (${kind}); every line of y begins at a byte. ` +
        `In all ${info.routeBytes} bytes.`,
    );
  }

  private build(rows: number, columns: number): void {
    this.chips = [];
    this.hexes = [];
    this.written = [];
    const lines = Array.from({ length: rows }, (_, row) => {
      const chips = Array.from({ length: columns }, () => {
        const bits = html('span', { class: 'route-bits' });
        const meaning = html('span', { class: 'route-meaning' });
        const node = html('li', { class: 'route-chip' }, [bits, meaning]);
        this.chips.push({ node, bits, meaning });
        return node;
      });
      const hex = html('code', { class: 'route-hex' });
      this.hexes.push(hex);
      return html('div', { class: 'route-line' }, [
        html('span', { class: 'route-row' }, [`line ${row}`]),
        html('ul', { class: 'route-chips', 'aria-label': `routes of line ${row}` }, chips),
        hex,
      ]);
    });
    this.host.replaceChildren(...lines);
  }

  private write({ info, routes, outRows, outColumns }: Pooled): void {
    const lineBytes = routes.length / outRows;
    this.hexes.forEach((hex, row) => {
      const line = routes.subarray(row * lineBytes, (row + 1) * lineBytes);
      const bytes = Array.from(line, (byte) => byte.toString(16).padStart(2, '0')).join(' ');
      const from = `${info.problem} ${bytes}`;
      if (from === this.written[row]) return;
      this.written[row] = from;
      setText(hex, bytes);
      for (let column = 0; column < outColumns; column += 1) {
        const { bits, meaning } = routeText(line, column, info);
        const chip = this.chips[row * outColumns + column]!;
        setText(chip.bits, bits);
        setText(chip.meaning, meaning);
      }
    });
  }
}
