// A pool that Node and the page both run: overlapping windows, odd sizes, values at and below zero, ties.
export const attrs = { filterSize: 3, strides: 2, pad: 'same' };
export const shape = [2, 33, 31, 24];

/** Quarters from -16 to 4, in no order, the same everywhere. */
export function input() {
  return Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, i) => ((i * 48271) % 81) / 4 - 16);
}

export function upstream(length) {
  return Float32Array.from({ length }, (_, i) => ((i * 16807) % 127) / 64 - 1);
}
