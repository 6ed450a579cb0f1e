// What the tests share: the engines there are, and repeatable random numbers.
import { loadEngineSync } from 'poolgrad';

export const hasNative = (() => {
  try {
    loadEngineSync('native');
    return true;
  } catch {
    // The native engine is optional; but where it must have been built, its absence is a failure, not a skip.
    if (process.env.POOLGRAD_EXPECT_NATIVE === '1') throw new Error('the native engine was not built');
    return false;
  }
})();

export const engineKinds = hasNative ? ['native', 'wasm'] : ['wasm'];

/** A generator of numbers in [0, 1) that gives the same ones everywhere (mulberry32). */
export function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** Whole numbers in [low, high]. */
export const pick = (next, low, high) => low + Math.floor(next() * (high - low + 1));

/** Values with many ties, some negative, and now and then a NaN or an infinity. */
export function values(next, length, { special = 0 } = {}) {
  return Float32Array.from({ length }, () => {
    if (special > 0 && next() < special) return [NaN, Infinity, -Infinity, -0][pick(next, 0, 3)];
    return pick(next, -8, 8) / 4;
  });
}

/** The bits of an array, so that a NaN equals only itself and -0 differs from 0. */
export function bits(array) {
  return Buffer.from(array.buffer, array.byteOffset, array.byteLength).toString('hex');
}

const NAN_ABOVE = { f16: 0x7c00, bf16: 0x7f80 };  // the halves travel as their bits

/** The same of sums: a NaN that arithmetic made is a NaN, and its bits are the processor's. */
export function bitsOfSums(array, dtype) {
  const limit = NAN_ABOVE[dtype];
  return bits(array.map((v) => (limit !== undefined && (v & 0x7fff) > limit ? limit + 1 : Number.isNaN(v) ? NaN : v)));
}
