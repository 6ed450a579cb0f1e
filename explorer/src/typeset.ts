// The formula of what is lit, typeset once per frame: an edit that also moves the light asks twice. A line of terms would take
// KaTeX longer than drawing a grid, and twenty elements per term; so sums of plain terms are set here, pieces that were set before
// are kept, and lines that stay are left alone.
import katex from 'katex';
import type { Formula } from './formula';
import { html, setText } from './svg';

const HINT = 'Point at an output to see its window and its route, or at an input to see the sum that makes its gradient. ' +
  'Click to pin, double-click or type to edit x and dy.';

// HTML only: screen readers get the plain line, and MathML beside it would take most of a frame to lay out.
const OPTIONS = { trust: true, strict: false, throwOnError: true, output: 'html' } as const;

/** More pieces than any one grid has. */
const MOST_PIECES = 2000;

const GROUP = '\\{((?:[^{}]|\\{[^{}]*\\})*)\\}';

/** What a sum of plain terms is made of, in the order in which it is tried. */
const PLAIN: readonly [RegExp, (found: RegExpExecArray) => string | null][] = [
  [new RegExp(`^\\\\htmlClass\\{([\\w-]+)\\}${GROUP}`), ([, name, body]) => wrapped(`class="${name!}"`, body!)],
  [new RegExp(`^\\\\phantom${GROUP}`), ([, body]) => wrapped('class="phantom"', body!)],
  [/^(d?[xy])_\{([\d,]+)\}/, ([, letter, place]) => `<i>${letter}</i><sub>${place}</sub>`],
  [/^\\cdots/, () => '⋯'],
  [/^\\cdot /, () => '\u2009⋅\u2009'],
  [/^(?:\{\} )?([+=]) ?(?:\{\})?/, ([, sign]) => ` ${sign!} `],
  [/^\\mathrm\{NaN\}/, () => 'NaN'],
  [/^\\infty ?/, () => '∞'],
  [/^-/, () => '−'],
  [/^[\d.()]+/, ([text]) => text],
  [/^ /, () => ''],
];

function wrapped(attribute: string, body: string): string | null {
  const inside = plainTerms(body);
  return inside === null ? null : `<span ${attribute}>${inside}</span>`;
}

/** Plain terms as a few elements in KaTeX's fonts; null for what only KaTeX can set. */
function plainTerms(tex: string): string | null {
  let markup = '';
  for (let rest = tex; rest !== '';) {
    const rule = PLAIN.find(([pattern]) => pattern.test(rest));
    const found = rule?.[0].exec(rest);
    const set = found ? rule![1](found) : null;
    if (set === null) return null;
    markup += set;
    rest = rest.slice(found![0].length);
  }
  return markup;
}

const pieces = new Map<string, string>();

function set(tex: string): string {
  let markup = pieces.get(tex);
  if (markup === undefined) {
    if (pieces.size >= MOST_PIECES) pieces.clear();
    const plain = plainTerms(tex);
    markup = plain === null ? katex.renderToString(`\\displaystyle ${tex}`, OPTIONS) : `<span class="katex plain-terms">${plain}</span>`;
    pieces.set(tex, markup);
  }
  return markup;
}

export class FormulaView {
  /** The lines on the page; none for the hint, null before anything is there. */
  private shown: string[] | null = null;
  private announceTimer = 0;

  constructor(private readonly host: HTMLElement, private readonly announce: HTMLElement) {}

  show(formula: Formula | null): void {
    this.host.dataset['plain'] = formula?.plain ?? '';
    const lines = formula?.tex.map((line) => line.map(set).join('')) ?? [];
    const old = this.shown;
    if (old?.length === lines.length && lines.every((line, at) => line === old[at])) return;
    this.shown = lines;
    if (lines.length === 0) {
      this.host.replaceChildren(html('p', { class: 'hint' }, [HINT]));
    } else {
      if (!old?.length) this.host.replaceChildren();
      while (this.host.childElementCount > lines.length) this.host.lastElementChild!.remove();
      while (this.host.childElementCount < lines.length) this.host.append(html('div', { class: 'formula-line' }));
      lines.forEach((line, at) => {
        if (line !== old?.[at]) this.host.children[at]!.innerHTML = line;
      });
    }
    window.clearTimeout(this.announceTimer);
    this.announceTimer = window.setTimeout(() => setText(this.announce, formula?.plain ?? ''), 250);
  }
}
