// Numbers as people read them: short in a cell, exact enough in a sum.

const MINUS = '−';

function special(value: number): string | null {
  if (Number.isNaN(value)) return 'NaN';
  if (value === Infinity) return '∞';
  if (value === -Infinity) return `${MINUS}∞`;
  if (Object.is(value, -0)) return `${MINUS}0`;
  return null;
}

/** At most `digits` significant digits, no trailing zeros, a real minus sign. */
export function shortNumber(value: number, digits = 3): string {
  const word = special(value);
  if (word) return word;
  const magnitude = Math.abs(value);
  let text: string;
  if (Number.isInteger(value) && magnitude < 10 ** Math.max(digits, 4)) {
    text = String(magnitude);
  } else if (magnitude >= 1e5 || magnitude < 1e-3) {
    text = magnitude.toExponential(1).replace('e+', 'e');
  } else {
    text = String(Number(magnitude.toPrecision(digits)));
  }
  return value < 0 ? MINUS + text : text;
}

/** For sums: six significant digits show an f32 as it was meant. */
export function longNumber(value: number): string {
  return shortNumber(value, 6);
}

const BYTE_UNITS = ['bytes', 'kB', 'MB', 'GB', 'TB'] as const;

export function byteText(bytes: number): string {
  let unit = 0;
  let amount = bytes;
  while (amount >= 1000 && unit < BYTE_UNITS.length - 1) {
    amount /= 1000;
    unit += 1;
  }
  if (unit === 0) return `${bytes} byte${bytes === 1 ? '' : 's'}`;
  return `${Number(amount.toPrecision(3))} ${BYTE_UNITS[unit]}`;
}

/** 'one window', '4 windows'. */
export function count(amount: number, noun: string): string {
  return amount === 1 ? `one ${noun}` : `${amount} ${noun}s`;
}
