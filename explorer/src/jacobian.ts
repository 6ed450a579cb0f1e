// The Jacobian as a matrix picture: one row per output, one column per input. A filled square is a derivative that is not
// zero, a faint one an input that the window covers but that did not win. All squares of a kind are one path, so a
// 256 × 256 matrix stays cheap to draw.
import type { Pooled } from './pool';
import { setAttributes, svg } from './svg';

const UNIT = 10;

export class JacobianView {
  readonly node: SVGSVGElement;
  private readonly lines = svg('path', { class: 'jacobian-lines' });
  private readonly covered = svg('path', { class: 'jacobian-covered' });
  private readonly entries = svg('g', { class: 'jacobian-entries' });
  private readonly lit = svg('g', { class: 'jacobian-lit' });
  private readonly frame = svg('rect', { class: 'jacobian-frame' });
  private pooled: Pooled | null = null;
  private drawn = '';

  constructor(host: HTMLElement, private readonly onPoint: (output: number | null) => void) {
    this.node = svg('svg', { class: 'jacobian', role: 'img' }, [
      this.frame, this.lines, this.covered, this.lit, this.entries,
    ]);
    host.append(this.node);
    this.node.addEventListener('pointermove', (event) => this.point(event));
    this.node.addEventListener('pointerleave', () => this.onPoint(null));
  }

  private point(event: PointerEvent): void {
    if (!this.pooled) return;
    const box = this.node.getBoundingClientRect();
    const row = Math.floor(((event.clientY - box.top) / box.height) * this.pooled.y.length);
    this.onPoint(row >= 0 && row < this.pooled.y.length ? row : null);
  }

  render(pooled: Pooled, litOutputs: ReadonlySet<number>, litInput: number | null): void {
    this.pooled = pooled;
    const rows = pooled.windows.length;
    const columns = pooled.coveredBy.length;
    const entries = pooled.winners.flatMap((winners, output) => winners.map((winner) => ({ output, ...winner })));
    const key = JSON.stringify([rows, columns, pooled.info.problem, entries.map((e) => [e.output, e.input])]);
    if (key !== this.drawn) {
      this.drawn = key;
      this.draw(pooled, rows, columns, entries);
    }
    this.lit.replaceChildren(
      ...[...litOutputs].map((o) => svg('rect', { x: 0, y: o * UNIT, width: columns * UNIT, height: UNIT })),
    );
    if (litInput !== null) {
      this.lit.append(svg('rect', { x: litInput * UNIT, y: 0, width: UNIT, height: rows * UNIT }));
    }
  }

  private draw(
    pooled: Pooled,
    rows: number,
    columns: number,
    entries: readonly { output: number; input: number; weight: number }[],
  ): void {
    const size = { width: columns * UNIT, height: rows * UNIT };
    // Squares are at most 22 px; a wide matrix shrinks to the width of its card.
    setAttributes(this.node, {
      viewBox: `-1 -1 ${size.width + 2} ${size.height + 2}`,
      style: `max-width: ${columns * 22}px`,
      'aria-label':
        `The Jacobian: ${rows} rows, one per output, by ${columns} columns, one per input; ` +
        `${entries.length} of ${rows * columns} entries are not zero`,
    });
    setAttributes(this.frame, { x: 0, y: 0, ...size });
    const across = Array.from({ length: rows - 1 }, (_, at) => `M0 ${(at + 1) * UNIT}H${size.width}`);
    const down = Array.from({ length: columns - 1 }, (_, at) => `M${(at + 1) * UNIT} 0V${size.height}`);
    this.lines.setAttribute('d', rows * columns <= 4096 ? [...across, ...down].join('') : '');
    const square = (output: number, input: number, inset: number) => {
      const side = UNIT - 2 * inset;
      return `M${input * UNIT + inset} ${output * UNIT + inset}h${side}v${side}h${-side}z`;
    };
    this.covered.setAttribute(
      'd',
      pooled.windows.map((inputs, output) => inputs.map((input) => square(output, input, 1.2)).join('')).join(''),
    );
    const byWeight = new Map<number, string[]>();
    for (const { output, input, weight } of entries) {
      const group = byWeight.get(weight) ?? [];
      group.push(square(output, input, 1.2));
      byWeight.set(weight, group);
    }
    this.entries.replaceChildren(
      ...[...byWeight].map(([weight, squares]) =>
        svg('path', { d: squares.join(''), 'fill-opacity': (0.35 + 0.65 * weight).toFixed(2) }),
      ),
    );
  }
}
