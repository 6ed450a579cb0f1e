// The derivation in nine lines. Each line has its formula, a sentence, what it means for the numbers on the page right now,
// and its own light in the picture (lighting.ts).
import katex from 'katex';
import { inputName, outputName, plainWeight } from './formula';
import { exampleInput, exampleOutput, tiedOutputs, unrouted, type LineName } from './lighting';
import { count, longNumber } from './numbers';
import type { Pooled } from './pool';
import { html, setText } from './svg';

interface Line {
  name: LineName;
  title: string;
  tex: string;
  says: string;
  /** The example to go to when the current numbers do not show what the line is about. */
  preset?: string;
}

const LINES: readonly Line[] = [
  {
    name: 'window',
    title: 'The forward pass',
    tex: 'y_{kl} = \\max_{(i,j)\\in\\Omega(k,l)} x_{ij}',
    says: 'Ω(k,l) is the window of output (k,l): the inputs it looks at. The output is the largest of them; padding never takes part.',
  },
  {
    name: 'winner',
    title: 'The winner',
    tex: 'y_{kl} = x_{w(k,l)}, \\qquad \\allowbreak w(k,l) = \\operatorname*{arg\\,max}_{(i,j)\\in\\Omega(k,l)} x_{ij}',
    says: 'The maximum is taken at a place, w(k,l). As long as nobody overtakes it, the output is simply a copy of that one input.',
  },
  {
    name: 'local',
    title: 'The local derivative',
    tex: '\\frac{\\partial y_{kl}}{\\partial x_{ij}} = \\begin{cases} 1 & (i,j) = w(k,l) \\\\ 0 & \\text{otherwise} \\end{cases}',
    says: 'Nudge the winner and the output moves along with it. Nudge any other input a little and the output does not notice.',
  },
  {
    name: 'chain',
    title: 'The chain rule',
    tex: 'dx_{ij} = \\frac{\\partial L}{\\partial x_{ij}} = \\sum_{k,l} \\frac{\\partial L}{\\partial y_{kl}}\\,\\frac{\\partial y_{kl}}{\\partial x_{ij}} = \\sum_{(k,l):\\,(i,j)\\in\\Omega(k,l)} \\frac{\\partial y_{kl}}{\\partial x_{ij}}\\, dy_{kl}',
    says: 'An input can matter to every output whose window covers it, and to no other. So the sum runs over the covering windows.',
  },
  {
    name: 'message',
    title: 'The full message',
    tex: 'dx_{ij} = \\sum_{(k,l):\\,w(k,l) = (i,j)} dy_{kl}',
    says: 'Put the local derivative in: only the windows that (i,j) won are left. Windows that overlap can share a winner, and then their messages add up.',
  },
  {
    name: 'disjoint',
    title: 'Windows that do not overlap',
    tex: 'dx_{ij} = \\begin{cases} dy_{kl} & (i,j) = w(k,l) \\\\ 0 & \\text{otherwise} \\end{cases}',
    says: 'With a stride no smaller than the window, an input lies in at most one window, (k,l), so the sum has at most one term: dy is copied to the winner and everything else is 0.',
    preset: 'disjoint',
  },
  {
    name: 'ties',
    title: 'Ties',
    tex: 'g_{ij} = \\lambda_{ij}\\, dy_{kl}, \\qquad \\allowbreak \\lambda_{ij} \\ge 0, \\quad \\allowbreak \\sum_{(i,j)\\in M} \\lambda_{ij} = 1',
    says: 'Where several inputs M share the maximum, y has a kink and no derivative. Any such shares λ give a subgradient: first and last put all on one, split takes 1/|M| each. The rule all gives each the whole dy, which adds up to |M| times too much.',
    preset: 'ties',
  },
  {
    name: 'relu',
    title: 'A ReLU in front',
    tex: 'y_{kl} = \\max_{(i,j)\\in\\Omega(k,l)} \\max(x_{ij}, 0) = \\max\\Big(\\max_{(i,j)\\in\\Omega(k,l)} x_{ij},\\ 0\\Big)',
    says: 'Rectifying keeps the order of values, so it may come after the maximum. A window with nothing above 0 has no winner and no route; its dy goes nowhere. The routes then serve for both, and neither needs x.',
    preset: 'relu',
  },
  {
    name: 'matrix',
    title: 'All at once',
    tex: 'y = S\\,x, \\qquad dx = S^{\\!\\top} dy',
    says: 'Collect the local derivatives in a matrix S with one row per output. It is nearly all zeros, so it is kept as routes: which tap of its window each output took. Backward reads dy and the routes, and never x.',
  },
];

const TIE_WORDS: Record<string, string> = {
  first: 'the first of them gets all',
  last: 'the last of them gets all',
  split: 'each gets an equal share',
  all: 'each gets the whole dy',
};

/** The output and the input a line speaks of: what the visitor pinned, else a telling example. */
export interface Example {
  output: number | null;
  input: number | null;
}

/** Whether the numbers on the page are a case of this line. */
function applies(line: LineName, pooled: Pooled): boolean {
  if (line === 'disjoint') return pooled.coveredBy.every((outputs) => outputs.length < 2);
  if (line === 'relu') return pooled.info.relu;
  return line !== 'ties' || tiedOutputs(pooled).length > 0;
}

/** y with small digits: y₁₂; places past 9 are written out: y[10,3]. */
function small(letter: string, name: string): string {
  if (name.includes(',')) return `${letter}[${name}]`;
  return letter + name.replace(/\d/g, (digit) => String.fromCharCode(0x2080 + Number(digit)));
}

function here(line: LineName, pooled: Pooled, dy: ArrayLike<number>, dx: ArrayLike<number>, example: Example): string {
  const output = example.output ?? exampleOutput(pooled);
  const input = example.input ?? exampleInput(pooled);
  if (output === null || input === null) return 'Here: there is nothing to pool.';
  const y = small('y', outputName(pooled, output));
  const covering = pooled.coveredBy[input]!.length;
  const won = pooled.wins[input]!;
  const x = small('x', inputName(pooled, input));
  const target = small('dx', inputName(pooled, input));
  switch (line) {
    case 'window':
      return `Here: the window of ${y} holds ${count(pooled.windows[output]!.length, 'input')}, and ${y} = ${longNumber(pooled.y[output]!)}.`;
    case 'winner': {
      const winners = new Set(pooled.winners.flatMap((list) => list.map((winner) => winner.input)));
      return `Here: ${count(pooled.y.length, 'output')}, ${count(winners.size, 'different winner')}.`;
    }
    case 'local': {
      const names = pooled.winners[output]!.map((winner) => small('x', inputName(pooled, winner.input)));
      const weight = pooled.winners[output]![0]?.weight;
      if (weight === undefined) return `Here: nobody won the window of ${y}, so every derivative is 0.`;
      return `Here: ∂${y}/∂x is ${plainWeight(weight)} at ${names.join(' and ')} and 0 at the other inputs.`;
    }
    case 'chain':
      return `Here: ${x} lies in ${count(covering, 'window')}.`;
    case 'message':
      return `Here: ${x} lies in ${count(covering, 'window')} and wins ${won}, so ${target} = ${longNumber(dx[input]!)}.`;
    case 'disjoint': {
      const shared = pooled.coveredBy.filter((outputs) => outputs.length > 1).length;
      return shared === 0
        ? 'Here: no two windows overlap, so this is the whole story.'
        : `Here: the windows overlap. ${shared} of ${pooled.coveredBy.length} inputs lie in more than one, so the full sum is needed.`;
    }
    case 'ties': {
      const tied = tiedOutputs(pooled);
      if (tied.length === 0) return 'Here: no window has a tie.';
      return `Here: ${count(tied.length, 'window')} with a tie, and ${TIE_WORDS[pooled.info.ties] ?? ''}.`;
    }
    case 'relu': {
      if (!pooled.info.relu) return 'Here: no ReLU is in front.';
      const without = unrouted(pooled).length;
      return `Here: ${without} of ${count(pooled.y.length, 'window')} ${without === 1 ? 'has' : 'have'} nothing above 0, and no route.`;
    }
    case 'matrix': {
      const total = (values: ArrayLike<number>) => Array.from(values).reduce((a, b) => a + b, 0);
      return `Here: dy adds up to ${longNumber(total(dy))}, dx to ${longNumber(total(dx))}.`;
    }
  }
}

export class Derivation {
  private readonly notes = new Map<LineName, HTMLElement>();
  private readonly examples = new Map<LineName, HTMLElement>();

  constructor(host: HTMLElement, onLight: (line: LineName | null) => void, onPreset: (id: string) => void) {
    for (const { name, title, tex, says, preset } of LINES) {
      const formula = html('div', { class: 'line-formula' });
      // Inline in display size: a long line then breaks at its relations instead of running out of a phone.
      katex.render(`\\displaystyle ${tex}`, formula, { throwOnError: true });
      const note = html('p', { class: 'line-here' });
      this.notes.set(name, note);
      const body = html('div', { class: 'line', tabindex: 0, role: 'group', 'aria-label': title, 'data-line': name }, [
        html('h3', {}, [title]),
        formula,
        html('p', { class: 'line-says' }, [says]),
        note,
      ]);
      if (preset) {
        const example = html('button', { type: 'button' }, ['Show an example']);
        example.addEventListener('click', () => onPreset(preset));
        this.examples.set(name, example);
        body.append(example);
      }
      body.addEventListener('pointerenter', () => onLight(name));
      body.addEventListener('pointerleave', () => onLight(null));
      body.addEventListener('focusin', () => onLight(name));
      body.addEventListener('focusout', () => onLight(null));
      host.append(html('li', {}, [body]));
    }
  }

  render(pooled: Pooled, dy: ArrayLike<number>, dx: ArrayLike<number>, example: Example): void {
    for (const { name } of LINES) {
      setText(this.notes.get(name)!, here(name, pooled, dy, dx, example));
      const button = this.examples.get(name);
      if (button) button.hidden = applies(name, pooled);
    }
  }

  setLit(line: LineName | null): void {
    for (const [name, note] of this.notes) note.parentElement!.classList.toggle('lit', name === line);
  }
}
