// The WebAssembly module pools without routes in two builds, one per maximum instruction, and chooses by the processor
// (wasm/forward_f32.cc). Both are run here against the reference, to the bit, on whatever processor this is.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { engineFromInstance } from 'poolgrad';
import { pick, random } from './common.mjs';

const module = new WebAssembly.Module(readFileSync(createRequire(import.meta.url).resolve('poolgrad/poolgrad.wasm')));

function start() {
  const instance = new WebAssembly.Instance(module);
  instance.exports._initialize();
  return instance.exports;
}

// Bits of what the rules treat apart: NaN of either sign, quiet and signalling, with payloads; infinities; -0; +0; and the
// largest numbers, whose sums overflow.
const SPECIAL = [0x7fc00000, 0xffc00000, 0x7fc01234, 0xffc54321, 0x7f800001, 0xff812345, 0x7f800000, 0xff800000, 0x80000000, 0,
                 0x7f7fffff, 0xff7fffff];

// Without negative values half of the time: those are pooled in another way.
function fill(next, array, special) {
  const bits = new Uint32Array(array.buffer, array.byteOffset, array.length);
  const low = next() < 0.5 ? -3 : 0;
  for (let i = 0; i < array.length; ++i) {
    array[i] = pick(next, low, 3);
    if (next() < special) bits[i] = SPECIAL[pick(next, 0, SPECIAL.length - 1)];
  }
}

// Small windows without gaps half of the time: those have loops of their own.
function spec(next) {
  const rank = pick(next, 1, 3);
  const axes = (low, high) => Array.from({ length: rank }, () => pick(next, low, high));
  const usual = next() < 0.5;
  const size = pick(next, 2, 3);
  return {
    layout: ['nwc', 'nhwc', 'ndhwc'][rank - 1],
    shape: [pick(next, 1, 2), ...axes(1, rank === 3 ? 6 : 13), pick(next, 2, 37)],
    kernel: usual ? Array.from({ length: rank }, (_, i) => (i < rank - 2 ? 1 : size)) : axes(1, 6),
    stride: usual ? pick(next, size - 1, 2) : axes(1, 4),
    dilation: usual || next() < 0.6 ? 1 : axes(1, 3),
    padding: next() < 0.3 ? 'same' : usual ? pick(next, 0, 1) : axes(0, 3),
    rounding: ['floor', 'ceil', 'ceil_keep', 'round'][pick(next, 0, 3)],
    ties: ['default', 'first', 'last'][pick(next, 0, 2)],
    relu: next() < 0.3,
    nan: ['default', 'propagate_first', 'propagate_last', 'first_place', 'greater_equal', 'ignore'][pick(next, 0, 5)],
  };
}

test('the module takes the maximum that is one instruction on this processor', () => {
  const passes = start().poolgrad_wasm_max_passes_nan(0);
  if (process.arch === 'arm64') assert.equal(passes, 1);
  if (process.arch === 'x64') assert.equal(passes, 0);
});

for (const passes of [0, 1]) {
  test(`f32x4.${passes ? 'max' : 'pmax'}: pooling without routes equals the reference to the bit, and writes y alone`, () => {
    const exports = start();
    exports.poolgrad_wasm_max_passes_nan(passes);
    assert.equal(exports.poolgrad_wasm_max_passes_nan(passes), passes);
    const engine = engineFromInstance({ exports }, exports.memory);
    const floats = (length) => new Float32Array(exports.memory.buffer, exports.malloc(4 * length), length);
    exports.free(exports.malloc(1 << 24));  // or the memory would grow under these views
    const next = random(77 + passes);
    let compared = 0;
    while (compared < 1500) {
      const problem = spec(next);
      let plan;
      try { plan = engine.plan(problem); } catch { continue; }
      const { xElements, yElements } = plan.info;
      if (yElements === 0) continue;
      const reference = engine.plan(problem, { algorithm: 'reference' });
      const x = floats(xElements), framed = floats(yElements + 32), wanted = floats(yElements);
      const y = framed.subarray(16, 16 + yElements);
      for (const special of [0, 0.002, 0.1, 0.6]) {
        fill(next, x, special);
        framed.fill(12345);
        plan.forward(x, { y, routes: false });
        reference.forward(x, { y: wanted, routes: false });
        const where = `${plan.info.problem}, ${special} special`;
        assert.ok(Buffer.from(y.slice().buffer).equals(Buffer.from(wanted.slice().buffer)), where);
        assert.ok(framed.every((v, i) => v === 12345 || (i >= 16 && i < 16 + yElements)), `beyond y: ${where}`);
      }
      compared += plan.algorithm('forward') === 'fwd_cl_rows' ? 1 : 0;
      [x, framed, wanted].forEach((array) => exports.free(array.byteOffset));
      plan.dispose();
      reference.dispose();
    }
  });
}
