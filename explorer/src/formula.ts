// What the picture lights up, written as the formula with its numbers: TeX for the eye, a plain line for screen readers,
// copying and tests. All numbers are the library's; the local derivatives are entries of its Jacobian.
import { isInput, placeIndex } from './lighting';
import { longNumber } from './numbers';
import type { Pooled } from './pool';
import type { Place } from './state';

export interface Formula {
  /** Lines of pieces, set side by side. Pieces come back again and again, and are typeset once (typeset.ts). */
  tex: string[][];
  plain: string;
}

/** Terms beyond this many are gathered into one remark, so that a 13×13 window stays readable. */
const MOST_TERMS = 16;

/** The message in letters, the same for every input. */
const MESSAGE = 'dx_{ij} = \\sum_{(k,l):\\,(i,j)\\in\\Omega(k,l)} \\frac{\\partial y_{kl}}{\\partial x_{ij}}\\, dy_{kl}';

function texNumber(value: number): string {
  const text = longNumber(value).replace('−', '-').replace('∞', '\\infty ');
  if (text === 'NaN') return '\\mathrm{NaN}';
  const power = /^(-?[\d.]+)e(-?\d+)$/.exec(text);
  return power ? `${power[1]}\\cdot 10^{${power[2]}}` : text;
}

function texFactor(value: number): string {
  return value < 0 || Object.is(value, -0) ? `(${texNumber(value)})` : texNumber(value);
}

/** 1/3 as a fraction: a weight is always one over a whole number. */
function texWeight(weight: number): string {
  const whole = Math.round(1 / weight);
  return weight === 0 || weight === 1 ? String(weight) : `\\tfrac{1}{${whole}}`;
}

/** 1, 0 or 1/3 as text. */
export function plainWeight(weight: number): string {
  return weight === 0 || weight === 1 ? String(weight) : `1/${Math.round(1 / weight)}`;
}

function subscript(row: number, column: number): string {
  return row > 9 || column > 9 ? `${row},${column}` : `${row}${column}`;
}

function split(index: number, columns: number): [number, number] {
  return [Math.floor(index / columns), index % columns];
}

export function outputName(pooled: Pooled, output: number): string {
  return subscript(...split(output, pooled.outColumns));
}

export function inputName(pooled: Pooled, input: number): string {
  return subscript(...split(input, pooled.columns));
}

interface Term {
  output: number;
  weight: number;
  message: number;
}

function termsOf(pooled: Pooled, dy: ArrayLike<number>, input: number): Term[] {
  return pooled.coveredBy[input]!.map((output) => ({
    output,
    weight: pooled.winners[output]!.find((winner) => winner.input === input)?.weight ?? 0,
    message: dy[output]!,
  }));
}

/** The message to one input: dx_ij as the sum over the windows that cover it. */
export function inputFormula(pooled: Pooled, dy: ArrayLike<number>, dx: ArrayLike<number>, input: number): Formula {
  const [row, column] = split(input, pooled.columns);
  const name = subscript(row, column);
  const place = `dx[${row},${column}]`;
  const all = termsOf(pooled, dy, input);
  if (all.length === 0) {
    return { tex: [[MESSAGE], [`dx_{${name}} = 0`]], plain: `${place} = 0: no window covers this input` };
  }
  const shown = all.length > MOST_TERMS ? all.filter((term) => term.weight !== 0).slice(0, MOST_TERMS) : all;
  const hidden = all.length - shown.length;
  const term = (weight: number, factor: string) =>
    `\\htmlClass{${weight === 0 ? 'term-idle' : 'term-gives'}}{${texWeight(weight)}\\cdot ${factor}}`;
  const symbols = shown.map(({ output, weight }) => term(weight, `dy_{${outputName(pooled, output)}}`));
  const numbers = shown.map(({ weight, message }) => term(weight, texFactor(message)));
  // Each piece ends with its sign, where a line may break; {} stands for what follows, so that the sign keeps its space.
  const sum = (terms: string[]) => {
    const all = hidden > 0 ? [...terms, '\\htmlClass{term-idle}{\\cdots}'] : terms.length > 0 ? terms : ['0'];
    return all.map((piece, at) => (at + 1 < all.length ? `${piece} + {}` : piece));
  };
  const plainTerms = shown.map(({ weight, message }) => `${plainWeight(weight)}·${longNumber(message)}`);
  const plainRest = hidden > 0 ? ` + ${hidden} more` : '';
  const result = dx[input]!;
  return {
    tex: [
      [MESSAGE],
      [`dx_{${name}} = {}`, ...sum(symbols)],
      [`\\phantom{dx_{${name}}} = {}`, ...sum(numbers), `{} = \\htmlClass{term-result}{${texNumber(result)}}`],
    ],
    plain: `${place} = ${plainTerms.join(' + ') || '0'}${plainRest} = ${longNumber(result)}`,
  };
}

/** One window: its maximum, who won, and what that makes of the local derivative. */
export function outputFormula(pooled: Pooled, x: ArrayLike<number>, dy: ArrayLike<number>, output: number): Formula {
  const [row, column] = split(output, pooled.outColumns);
  const name = subscript(row, column);
  const covered = pooled.windows[output]!;
  const winners = pooled.winners[output]!;
  const value = pooled.y[output]!;
  const shown = covered.slice(0, 2 * MOST_TERMS);
  const values = shown.map((input) => {
    const text = texNumber(x[input]!);
    return winners.some((winner) => winner.input === input) ? `\\htmlClass{term-wins}{${text}}` : text;
  });
  if (covered.length > shown.length) values.push('\\cdots');
  const { relu } = pooled.info;
  if (relu) values.unshift(winners.length ? '0' : '\\htmlClass{term-wins}{0}');
  const plainValues = [...(relu ? ['0'] : []), ...covered.map((input) => longNumber(x[input]!))].join(', ');
  const pooledValue = relu ? '\\max(x_{ij}, 0)' : 'x_{ij}';
  const forward =
    `y_{${name}} = \\max_{(i,j)\\in\\Omega(${row},${column})} ${pooledValue} = \\max\\{${values.join(', ')}\\} ` +
    `= \\htmlClass{term-wins}{${texNumber(value)}}`;
  const plain = `y[${row},${column}] = max{${plainValues}} = ${longNumber(value)}`;
  if (winners.length === 0) {
    return {
      tex: [[forward], [`\\frac{\\partial y_{${name}}}{\\partial x_{ij}} = 0 \\quad\\text{everywhere: no route}`]],
      plain: `${plain}; ${relu ? 'nothing is above 0' : 'nobody won'}, so dy[${row},${column}] goes nowhere`,
    };
  }
  const routes = winners.slice(0, 4).map(
    ({ input, weight }) =>
      `\\frac{\\partial y_{${name}}}{\\partial x_{${inputName(pooled, input)}}} = \\htmlClass{term-wins}{${texWeight(weight)}}`,
  );
  const messages = winners.slice(0, 4).map(({ input, weight }) => {
    const factor = weight === 1 ? '' : `${texWeight(weight)}\\cdot `;
    return `dx_{${inputName(pooled, input)}} \\mathrel{{+}{=}} \\htmlClass{term-gives}{${factor}${texFactor(dy[output]!)}}`;
  });
  const more = winners.length > 4 ? ',\\ \\ldots' : '';
  const plainWinners = winners.map(({ input, weight }) => {
    const [i, j] = split(input, pooled.columns);
    return `x[${i},${j}]${weight === 1 ? '' : ` (weight ${plainWeight(weight)})`}`;
  });
  return {
    tex: [[forward], [`${routes.join(',\\quad ')}${more}`], [`${messages.join(',\\quad ')}${more}`]],
    plain: `${plain}, won by ${plainWinners.join(' and ')}; dy[${row},${column}] = ${longNumber(dy[output]!)} goes there`,
  };
}

export function placeFormula(
  pooled: Pooled,
  x: ArrayLike<number>,
  dy: ArrayLike<number>,
  dx: ArrayLike<number>,
  place: Place,
): Formula | null {
  const index = placeIndex(place, pooled);
  if (index === null) return null;
  return isInput(place.grid) ? inputFormula(pooled, dy, dx, index) : outputFormula(pooled, x, dy, index);
}
