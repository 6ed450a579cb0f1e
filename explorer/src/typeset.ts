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

const PLAIN_CLASS = 'katex plain-terms';

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

const pieces = new Map<string, Element>();

/** The piece as it is kept: to be copied. */
function set(tex: string): Element {
  let piece = pieces.get(tex);
  if (!piece) {
    if (pieces.size >= MOST_PIECES) pieces.clear();
    const plain = plainTerms(tex);
    const holder = html('template');
    holder.innerHTML = plain === null ? katex.renderToString(`\\displaystyle ${tex}`, OPTIONS) : `<span class="${PLAIN_CLASS}">${plain}</span>`;
    piece = holder.content.firstElementChild!;
    pieces.set(tex, piece);
  }
  return piece;
}

/** Writes into one tree of elements and texts what another of the same build says; false where the builds differ. */
function become(node: Node, like: Node): boolean {
  if (node.nodeName !== like.nodeName || node.childNodes.length !== like.childNodes.length) return false;
  if (node instanceof Element) {
    const { className } = like as Element;
    if (node.className !== className) node.className = className;
  } else if (node.nodeValue !== like.nodeValue) {
    node.nodeValue = like.nodeValue;
  }
  let [at, from] = [node.firstChild, like.firstChild];
  for (; at && from; at = at.nextSibling, from = from.nextSibling) if (!become(at, from)) return false;
  return true;
}

/** Plain terms are rewritten where they stand, as new elements would cost a line of them a millisecond. */
function writeLine(host: Element, line: readonly string[], old: readonly string[]): void {
  while (host.childElementCount > line.length) host.lastElementChild!.remove();
  line.forEach((tex, at) => {
    if (tex === old[at]) return;
    const there = host.children[at];
    const piece = set(tex);
    if (!there) host.append(piece.cloneNode(true));
    else if (piece.className !== PLAIN_CLASS || there.className !== PLAIN_CLASS || !become(there, piece)) there.replaceWith(piece.cloneNode(true));
  });
}

export class FormulaView {
  /** The lines on the page; none for the hint, null before anything is there. */
  private shown: Formula['tex'] | null = null;
  private announceTimer = 0;

  constructor(private readonly host: HTMLElement, private readonly announce: HTMLElement) {}

  show(formula: Formula | null): void {
    const plain = formula?.plain ?? '';
    this.host.dataset['plain'] = plain;
    const lines = formula?.tex ?? [];
    if (JSON.stringify(lines) === JSON.stringify(this.shown)) return;
    const old = this.shown ?? [];
    if (lines.length === 0) {
      this.host.replaceChildren(html('p', { class: 'hint' }, [HINT]));
    } else {
      if (!old.length) this.host.replaceChildren();
      while (this.host.childElementCount > lines.length) this.host.lastElementChild!.remove();
      while (this.host.childElementCount < lines.length) this.host.append(html('div', { class: 'formula-line' }));
      lines.forEach((line, at) => writeLine(this.host.children[at]!, line, old[at] ?? []));
    }
    this.shown = lines;
    window.clearTimeout(this.announceTimer);
    this.announceTimer = window.setTimeout(() => setText(this.announce, plain), 250);
  }
}
