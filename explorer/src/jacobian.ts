// The Jacobian as a matrix picture: one row per output, one column per input. A filled square is a derivative that is not
// zero, a faint one an input that the window covers but that did not win. All squares of a kind are one path, so a
// 256 × 256 matrix stays cheap to draw.
import type { Pooled } from './pool';
import { setAttributes, svg } from './svg';

const UNIT = 10;
const INSET = 1.2;

function square(output: number, input: number): string {
  const side = UNIT - 2 * INSET;
  return `M${input * UNIT + INSET} ${output * UNIT + INSET}h${side}v${side}h${-side}z`;
}

export class JacobianView {
  readonly node: SVGSVGElement;
  private readonly lines = svg('path', { class: 'jacobian-lines' });
  private readonly covered = svg('path', { class: 'jacobian-covered' });
  private readonly entries = svg('g', { class: 'jacobian-entries' });
  private readonly lit = svg('g', { class: 'jacobian-lit' });
  private readonly frame = svg('rect', { class: 'jacobian-frame' });
  private pooled: Pooled | null = null;
  private drawnFrame = '';
  private drawnEntries = '';

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
    // What the windows cover changes with the settings only, who won with every edit.
    if (pooled.info.problem !== this.drawnFrame) {
      this.drawnFrame = pooled.info.problem;
      this.drawFrame(pooled, rows, columns);
    }
    const key = entries.map(({ output, input, weight }) => `${output},${input},${weight}`).join(' ');
    if (key !== this.drawnEntries) {
      this.drawnEntries = key;
      this.drawEntries(entries);
      this.node.setAttribute(
        'aria-label',
        `The Jacobian: ${rows} rows, one per output, by ${columns} columns, one per input; ` +
          `${entries.length} of ${rows * columns} entries are not zero`,
      );
    }
    this.lit.replaceChildren(
      ...[...litOutputs].map((o) => svg('rect', { x: 0, y: o * UNIT, width: columns * UNIT, height: UNIT })),
    );
    if (litInput !== null) {
      this.lit.append(svg('rect', { x: litInput * UNIT, y: 0, width: UNIT, height: rows * UNIT }));
    }
  }

  private drawFrame(pooled: Pooled, rows: number, columns: number): void {
    const size = { width: columns * UNIT, height: rows * UNIT };
    // Squares are at most 22 px; a wide matrix shrinks to the width of its card.
    setAttributes(this.node, {
      viewBox: `-1 -1 ${size.width + 2} ${size.height + 2}`,
      style: `max-width: ${columns * 22}px`,
    });
    setAttributes(this.frame, { x: 0, y: 0, ...size });
    const across = Array.from({ length: rows - 1 }, (_, at) => `M0 ${(at + 1) * UNIT}H${size.width}`);
    const down = Array.from({ length: columns - 1 }, (_, at) => `M${(at + 1) * UNIT} 0V${size.height}`);
    this.lines.setAttribute('d', rows * columns <= 4096 ? [...across, ...down].join('') : '');
    this.covered.setAttribute(
      'd',
      pooled.windows.map((inputs, output) => inputs.map((input) => square(output, input)).join('')).join(''),
    );
  }

  private drawEntries(entries: readonly { output: number; input: number; weight: number }[]): void {
    const byWeight = new Map<number, string[]>();
    for (const { output, input, weight } of entries) {
      const group = byWeight.get(weight) ?? [];
      group.push(square(output, input));
      byWeight.set(weight, group);
    }
    this.entries.replaceChildren(
      ...[...byWeight].map(([weight, squares]) =>
        svg('path', { d: squares.join(''), 'fill-opacity': (0.35 + 0.65 * weight).toFixed(2) }),
      ),
    );
  }
}
