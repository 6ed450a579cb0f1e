// The low-level interface: the worked example through every method, the two engines against each other to the bit on random
// problems, and what is refused.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import vm from 'node:vm';
import * as poolgrad from 'poolgrad';
import { bits, bitsOfSums, engineKinds, hasNative, pick, random } from './common.mjs';

const { loadEngine, loadEngineSync, maxPoolGrad, PoolgradError } = poolgrad;
const nine = [1, 2, 3, 4, 5, 6, 7, 8, 9];

for (const kind of engineKinds) {
  const engine = loadEngineSync(kind);

  test(`${kind}: the worked example, 3x3 numbered 1 to 9, window 2x2, stride 1`, () => {
    const plan = engine.plan('max f32 nchw 1x1x3x3 k2 s1');
    const { y, routes } = plan.forward(nine);
    assert.deepEqual([...y], [5, 6, 8, 9]);
    assert.equal(plan.info.routeBits, 2);
    assert.deepEqual([...routes], [0b1111, 0b1111]);  // tap 3, four times, a byte per row
    assert.deepEqual([...plan.backward([1, 1, 1, 1], routes)], [0, 0, 0, 0, 1, 1, 0, 1, 1]);
    assert.deepEqual([...plan.backwardX([1, 2, 3, 4], nine)], [0, 0, 0, 0, 1, 2, 0, 3, 4]);
    assert.deepEqual([...plan.gather([9, 8, 7, 6, 5, 4, 3, 2, 1], routes)], [5, 4, 2, 1]);
    assert.deepEqual([...plan.unpool([1, 2, 3, 4], routes)], [0, 0, 0, 0, 1, 2, 0, 3, 4]);
    assert.deepEqual([...plan.indices(routes, 'torch')], [4, 5, 7, 8]);
    assert.deepEqual([...plan.routesFromIndices([4, 5, 7, 8], 'torch')], [...routes]);
    assert.deepEqual([...plan.unpoolIndices([1, 2, 3, 4], [0, 2, 6, 8], 'torch')], [1, 0, 2, 0, 0, 0, 3, 0, 4]);
    const { rowStart, columns, values } = plan.jacobian(routes);
    assert.deepEqual([[...rowStart], [...columns], [...values]], [[0, 1, 2, 3, 4], [4, 5, 7, 8], [1, 1, 1, 1]]);
    plan.dispose();
    assert.throws(() => plan.forward(nine), /was disposed of; make a new one$/);
  });

  test(`${kind}: a problem reads the same as text, as fields, and back`, () => {
    const text = 'max f32 nhwc 2x5x7x3 k3x2 s2x1 p1:0x0:2 d1 ceil onnx';
    const spec = engine.parse(text);
    assert.deepEqual(spec.shape, [2, 5, 7, 3]);
    assert.deepEqual(spec.padding, [[1, 0], [0, 2]]);
    assert.equal(engine.format(spec), engine.format(text));
    assert.deepEqual(engine.parse(engine.format(spec)), spec);
    const { info } = engine.plan({ shape: [2, 5, 7, 3], layout: 'nhwc', kernel: [3, 2], stride: 2, padding: 'same' });
    assert.deepEqual(info.yShape, [2, 3, 4, 3]);
    assert.deepEqual([info.padLo, info.padHi], [[1, 0], [1, 1]]);
    assert.deepEqual(engine.plan({ shape: [1, 1, 8], kernel: 2 }).info.outSize, [4]);
    assert.deepEqual(engine.plan({ shape: [1, 2, 4, 4, 4], kernel: 2 }).info.outSize, [2, 2, 2]);
  });

  test(`${kind}: relu and windows by table, as text and as fields`, () => {
    const relu = engine.plan({ shape: [1, 1, 2, 4], kernel: 2, relu: true });
    assert.equal(relu.info.problem, 'max f32 nchw 1x1x2x4 k2 s2 relu');
    assert.ok(relu.info.relu && relu.info.mayHaveNoRoute);
    const x = [-1, -2, 3, 1, -0, -4, 2, 3];
    const { y, routes } = relu.forward(x);
    assert.deepEqual([...y], [0, 3]);  // +0: nothing is above 0
    assert.deepEqual([...relu.indices(routes, 'torch')], [-1, 2]);
    assert.deepEqual([...relu.backward([5, 7], routes)], [0, 0, 7, 0, 0, 0, 0, 0]);
    assert.deepEqual([...relu.backwardX([5, 7], x)], [0, 0, 7, 0, 0, 0, 0, 0]);

    const adaptive = engine.plan({ shape: [1, 1, 5], adaptive: 3 });  // [0, 2), [1, 4), [3, 5)
    assert.deepEqual([adaptive.info.outSize, adaptive.info.byTable, adaptive.info.taps], [[3], [true], 3]);
    assert.deepEqual([...adaptive.forward([1, 9, 2, 4, 3]).y], [9, 9, 4]);
    for (const [text, fields] of [
      ['max f32 nchw 1x1x7x5 adaptive=3x2', { adaptive: [3, 2] }],
      ['max f32 nchw 1x1x7x5 k0x2 s1x2 adaptive=3x0', { adaptive: [3, 0], kernel: [0, 2], stride: [1, 2] }],
      ['max f32 nchw 1x1x7x5 k2x3 starts=0,2,5x0,1', { kernel: [2, 3], starts: [[0, 2, 5], [0, 1]] }],
      ['avg f32 nchw 1x1x7x5 k0x5 s1 starts=0,2,5x sizes=1,2,2x', { kind: 'avg', kernel: [0, 5], stride: 1, starts: [[0, 2, 5], null], sizes: [[1, 2, 2], null] }],
    ]) {
      const spec = { shape: [1, 1, 7, 5], ...fields };
      assert.equal(engine.format(spec), text);
      const parsed = engine.parse(text);
      for (const [name, value] of Object.entries(fields)) if (name !== 'stride') assert.deepEqual(parsed[name], value, text);
      assert.equal(engine.format(parsed), text);
      const ramp = Float32Array.from({ length: 35 }, (_, i) => (i * 13) % 35);
      assert.deepEqual(engine.plan(spec).forward(ramp), engine.plan(text).forward(ramp));
    }
  });

  test(`${kind}: what problems have no fields for here is refused, not forgotten`, () => {
    for (const text of ['max f32 ncw 1x1x4 k2 relu bias', 'max f32 ncw 1x1x4 k2 part=0/8:0:0']) {
      assert.throws(() => engine.plan(text), /poolgrad for JavaScript knows neither/);
    }
    assert.throws(() => engine.parse('max f32 ncw 1x1x4 k2 cuda'), { code: 'INVALID_ARGUMENT', message: /^the problem runs on a GPU, for which/ });
  });

  test(`${kind}: average pooling and ties that are split`, () => {
    const average = engine.plan('avg f32 nchw 1x1x4x4 k2 s2');
    assert.deepEqual([...average.forward(Float32Array.from({ length: 16 }, (_, i) => i)).y], [2.5, 4.5, 10.5, 12.5]);
    assert.equal(average.forward(new Float32Array(16)).routes, null);
    assert.deepEqual([...average.backward([4, 8, 12, 16], null)], [1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 4, 4, 3, 3, 4, 4]);
    const split = engine.plan('max f32 nchw 1x1x2x2 k2 ties=split');
    const { y, routes } = split.forward([3, 1, 3, 2]);
    assert.deepEqual([...y], [3]);
    assert.ok(split.info.routeMasks);
    assert.deepEqual([...split.backward([1], routes)], [0.5, 0, 0.5, 0]);
  });

  test(`${kind}: every element type travels in its own array`, () => {
    const arrays = { f32: Float32Array, f64: Float64Array, f16: Uint16Array, bf16: Uint16Array, i8: Int8Array, u8: Uint8Array,
                     i32: Int32Array };
    for (const [dtype, array] of Object.entries(arrays)) {
      const plan = engine.plan({ dtype, shape: [1, 1, 2, 2], kernel: 2 });
      const { y } = plan.forward(array.from([1, 4, 2, 3]));
      assert.ok(y instanceof array, dtype);
      assert.deepEqual([...y], [4]);
      const other = array === Float32Array ? Float64Array : Float32Array;
      assert.throws(() => plan.forward(new other(4)), { code: 'INVALID_ARGUMENT', message: new RegExp(`^x is a ${other.name}; ${dtype} values come in a ${array.name}$`) });
    }
  });

  test(`${kind}: arrays in shared memory`, () => {
    const plan = engine.plan('max f32 nchw 1x1x3x3 k2 s1');
    const shared = (length, array = Float32Array) => new array(new SharedArrayBuffer(length * array.BYTES_PER_ELEMENT));
    const [x, y, routesOut, dx] = [shared(9), shared(4), shared(2, Uint8Array), shared(9)];
    x.set(nine);
    const expected = plan.forward(nine);
    const found = plan.forward(x, { y, routesOut });
    assert.deepEqual([...y], [...expected.y]);
    assert.deepEqual([...routesOut], [...expected.routes]);
    assert.ok(found.y === y && found.routes === routesOut);
    plan.backward(y, routesOut, dx);
    assert.deepEqual([...dx], [...plan.backward(expected.y, expected.routes)]);
    assert.deepEqual([...x], [...nine]);
    const bytes = engine.plan('max u8 ncw 1x1x4 k2 bits=8');
    const [buffer, into] = [4, 2].map((length) => Buffer.from(new SharedArrayBuffer(length)));
    buffer.set([1, 5, 7, 2]);
    assert.deepEqual([...bytes.forward(buffer, { routesOut: into }).y], [5, 7]);
    assert.deepEqual([...into], [...bytes.forward([1, 5, 7, 2]).routes]);
  });

  test(`${kind}: a cached plan that was disposed of is made again`, () => {
    const text = 'max f32 nchw 1x1x3x3 k3';
    engine.cachedPlan(text).dispose();
    assert.deepEqual([...engine.cachedPlan(text).forward(nine).y], [9]);
  });

  test(`${kind}: what is wrong is refused with a full sentence`, () => {
    const plan = engine.plan('max f32 nchw 1x1x3x3 k2 s1');
    const { routes } = plan.forward(nine);
    const refused = [
      [() => engine.plan('max f32 nchw 1x1x3x3 k0'), /^kernel\[0\] is 0; every kernel size must be at least 1$/],
      [() => engine.plan({ shape: [1, 1, 3, 3], kernel: 2, stride: [1, 0] }), /^stride\[1\] is 0; every stride must be at least 1$/],
      [() => engine.plan({ shape: [1, 1, 3, 3], kernel: 2, padding: -1 }), /^padding\[0\] is -1; padding must be at least 0/],
      [() => engine.plan({ shape: [1, 1, 3, 3], kernel: 9 }), /^kernel\[0\] is 9; .* longer than the padded input, 3$/],
      [() => engine.plan({ shape: [1, 3, 3], layout: 'nchw', kernel: 2 }), /^layout is "nchw"; a shape of 3 sizes has layout ncw or nwc$/],
      [() => engine.plan({ shape: [1, 1, 3, 3], kernel: 2.5 }), /^kernel is 2.5; it must be an integer$/],
      [() => engine.plan({ shape: [1, 1, 3, 3], kernel: [2] }), /^kernel is \[2\]; it must be a number or a list of 2/],
      [() => engine.plan({ shape: [1, 1, 3, 3], kernel: 2, ties: 'both' }), /^ties is "both"; it must be one of default, first/],
      [() => engine.plan({ shape: [1, 1, 3, 3] }), /^kernel is missing; a problem needs a shape and, but for axes with adaptive or starts, a kernel$/],
      [() => engine.plan({ shape: [1, 1, 3, 3], adaptive: [2, 0] }), /^kernel is missing/],
      [() => engine.plan({ shape: [1, 1, 3, 3], adaptive: 2, kernel: 2 }), /^kernel\[0\] is 2; an axis with adaptive or starts has windows of its own/],
      [() => engine.plan({ shape: [1, 1, 3, 3], starts: [[0, 1]], kernel: 2 }), /^starts is \[\[0,1\]\]; it must be a list of 2, one per spatial axis/],
      [() => engine.plan({ shape: [1, 1, 3, 3], starts: [[], [0]], kernel: 2 }), /^starts is \[\[\],\[0\]\]; it must be a list of 2/],
      [() => engine.plan({ shape: [1, 1, 3, 3], starts: [[0], [0.5]], kernel: 2 }), /^starts\[1\]\[0\] is 0.5; it must be an integer$/],
      [() => engine.plan({ shape: [1, 1, 3, 3], starts: [[0, 2], [0]], kernel: 2 }), /^starts\[0\]\[1\] is 2; a window of 2 taps inside 3 inputs starts at 0 to 1$/],
      [() => engine.plan({ shape: [1, 1, 3, 3], starts: [[0, 1], [0]], sizes: [[1], [1]] }), /^sizes\[0\] has 1 entries; the axis has 2 windows$/],
      [() => engine.plan({ shape: [1, 1, 3, 3], adaptive: 3, starts: [[0, 1], [0]], kernel: 1 }), /^adaptive\[0\] is 3; starts\[0\] lists 2 windows$/],
      [() => engine.plan('avg f32 nchw 1x1x3x3 k2 relu'), /relu/],
      [() => engine.plan('max f32 nchw 1x1x3x3 k2', { algorithm: 'magic' }), /magic/],
      [() => engine.plan('max f33 nchw 1x1x3x3 k2'), /f33/],
      [() => plan.forward([1, 2]), /^x has 2 elements; "max f32 nchw 1x1x3x3 k2 s1" expects 9$/],
      [() => plan.backward([1, 2], routes), /^dy has 2 elements; .* expects 4$/],
      [() => plan.backward([1, 2, 3, 4], null), /^routes is null; max pooling needs the Uint8Array that forward returned$/],
      [() => plan.backward([1, 2, 3, 4], new Uint8Array(1)), /^routes has 1 bytes; .* expects 2$/],
      [() => plan.routesFromIndices([0, 5, 7, 2], 'torch'), /2/],
      [() => plan.routesFromIndices([0, 5, 7, 1.5], 'torch'), /^indices\[3\] is 1.5; it must be an integer$/],
      [() => plan.indices(routes, 'caffe'), /^numbering is "caffe"; it must be one of torch/],
      [() => plan.forward(nine, { y: new Float64Array(4) }), /^y is not a Float32Array/],
      [() => plan.forward(nine, null), /^options is null; it must be an object$/],
      [() => plan.forward(nine, { out: 1 }), /^options has "out", which is no option; there is y, routes, routesOut$/],
      [() => plan.routesFromIndices(null, 'torch'), /^indices is null; it must be a list of integers$/],
      [() => plan.routesFromIndices(new BigInt64Array(4), 'torch'), /^indices\[0\] is 0n; it must be an integer$/],
      [() => engine.plan(null), /^problem is null; it must be a text like "max f32 nchw 1x1x3x3 k2", or an object with shape and kernel$/],
      [() => engine.plan(5), /^problem is 5; it must be a text/],
      [() => engine.plan('max f32 nchw 1x1x3x3 k2\0 s1'), /^the problem is "max f32 nchw 1x1x3x3 k2\\u0000 s1"; a problem's text has no NUL in it$/],
      [() => engine.plan('max f32 nchw 1x1x3x3 k2 relu bias'), /has a bias or is a part of a longer one; poolgrad for JavaScript knows neither$/],
      [() => engine.plan('max f32 nchw 1x1x3x3 s1'), /^the problem 'max f32 nchw 1x1x3x3 s1' is too short; it has kind, type, layout, shape and windows, like max f32 nchw 1x1x3x3 k2$/],
      [() => engine.plan({ shape: [1, 1, 3, 3], kernel: 2, strides: 1 }), /^strides is 1; a problem has no such field, its fields are kind, dtype/],
      [() => engine.plan({ shape: [1, 1, 3, 3], kernel: 2n }), /^kernel is 2n; it must be a number or a list of 2/],
      [() => engine.plan({ shape: [1, 1, 3, 3], kernel: 2, relu: 'no' }), /^relu is "no"; it must be true or false$/],
      [() => engine.plan({ shape: [1, 1, 3, 3], kernel: 2, kind: 'avg', countPadding: 1 }), /^countPadding is 1; it must be true or false$/],
      [() => engine.plan({ shape: [1, 1, 3, 3], kernel: 2, routeBits: 3 }), /^routeBits is 3; it must be 0/],
      [() => engine.plan({ shape: [1, 1, 0, 3], kernel: 2 }), /^the input's size on spatial axis 0 is 0; every spatial size must be at least 1$/],
      [() => engine.plan('max f32 nchw 1x1x3x3 k2', { threads: 2 }), /^options has "threads", which is no option; there is algorithm$/],
      [() => engine.plan({ shape: [1, 1, 3, 3], kernel: 2, routeBits: 2 ** 32 + 8 }), /^routeBits is 4294967304; it must be 0/],
      [() => engine.plan({ shape: Int32Array.of(1, 1, 3, 3), kernel: 2 }), /^shape is Int32Array\(4\); it must be a list/],
      [() => engine.plan({ shape: Array(9999).fill(1), kernel: 2 }), /^shape is \[(1,)+1?\.\.\.; it must be a list of 3, 4 or 5 sizes/],
      [() => engine.plan('max f32 nchw 1x1x3x3 k2', { algorithm: 5 }), /^algorithm is 5; it must be the name of one that explain\(\) lists$/],
      [() => engine.parse(), /^problem is undefined; it must be a text like/],
      [() => plan.algorithm('toString'), /^op is "toString"; it must be one of forward, /],
      [() => plan.forward([1, 2, , 4, 5, 6, 7, 8, 9]), /^x\[2\] is undefined; it must be a number$/],
      [() => plan.forward({ length: 9, 0: '1' }), /^x\[0\] is "1"; it must be a number$/],
      [() => engine.plan('max i8 ncw 1x1x2 k2').forward([7, 300]), /^x\[1\] is 300; i8 values come in a Int8Array, which cannot hold it$/],
      [() => engine.plan('max f32 ncw 1x1x2 k2').forward([7, -1e300]), /^x\[1\] is -1e\+300; f32 values come in a Float32Array, which cannot hold it$/],
      [() => engine.plan('max f16 ncw 1x1x2 k2').forward([1.5, 0]), /^x\[0\] is 1.5; f16 values come in a Uint16Array, which cannot hold it$/],
      [() => plan.backward([1, 2, 3, 4], new Float32Array(1e6)), /^routes is Float32Array\(1000000\); max pooling needs/],
      [() => plan.forward(nine, { routesOut: new Uint16Array(2) }), /^routesOut is Uint16Array\(2\); routes are written into a Uint8Array$/],
      [() => plan.forward(nine, { routesOut: new Uint8Array(3) }), /^routesOut has 3 bytes; .* expects 2$/],
      [() => plan.forward(nine, { routes: 'no' }), /^routes is "no"; it must be true or false$/],
      [() => plan.forward(nine, { routes: false, routesOut: new Uint8Array(2) }), /^routesOut was given; routes: false keeps none$/],
      [() => plan.unpoolIndices([1, 2, 3, 4], [0, 1, 2, 3], 'torch', 4), /^indexShape is 4; .* has 2 spatial axes$/],
      [() => plan.unpoolIndices([1, 2, 3, 4], [0, 1, 2, 3], 'torch', [4, 3]), /^indexShape\[0\] is 4; /],
      [() => poolgrad.maxPool('max f32 nchw 1x1x3x3 k2', nine, kind), /^engine is "\w+"; it must be one that loadEngine gave$/],
      [() => poolgrad.maxPool({ kind: 'avg', shape: [1, 1, 3, 3], kernel: 2 }, nine, engine), /^the problem is "avg .*"; max pooling was asked for$/],
      ...[{}, null, { routes, x: nine }, { x: nine, route: routes }, { ...plan.forward(nine), shapes: [4] }].map((from) =>
        [() => maxPoolGrad('max f32 nchw 1x1x3x3 k2 s1', [1, 1, 1, 1], from, engine), /^from is .*; it must be \{ routes \} or \{ x \}$/]),
    ];
    for (const [call, message] of refused) {
      assert.throws(call, (error) => {
        assert.ok(error instanceof PoolgradError, String(call));
        assert.equal(error.code, 'INVALID_ARGUMENT');
        assert.match(error.message, message);
        return true;
      });
    }
    assert.deepEqual([...engine.plan('max f32 ncw 1x1x4 k1').forward([0.1, 1e-300, -Infinity, NaN]).y], [Math.fround(0.1), 0, -Infinity, NaN]);
    assert.throws(() => engine.plan('avg f32 nchw 1x1x4x4 k2').unpool([1, 1, 1, 1], new Uint8Array(4)), /no routes/);
    const long = engine.plan('max u8 ncw 1x1x1000000000000 k1 s1000000000000');  // longer than arrays of JavaScript get
    assert.throws(() => long.backward([1], new Uint8Array(1)), { name: 'PoolgradError', code: 'OUT_OF_MEMORY', message: /^dx needs 1000000000000 elements; / });
  });

  test(`${kind}: results can go into arrays of the caller's`, () => {
    const plan = engine.plan('max f32 nchw 1x1x3x3 k2 s1');
    const y = new Float32Array(6).subarray(1, 5), routesOut = new Uint8Array(2), dx = new Float32Array(9).fill(7);
    const result = plan.forward(Float32Array.from(nine), { y, routesOut });
    assert.equal(result.y, y);
    assert.equal(result.routes, routesOut);
    assert.deepEqual([...new Float32Array(y.buffer)], [0, 5, 6, 8, 9, 0]);
    assert.equal(plan.backward([1, 1, 1, 1], routesOut, dx), dx);
    assert.deepEqual([...dx], [0, 0, 0, 0, 1, 1, 0, 1, 1]);
    assert.equal(plan.forward(nine, { routes: false }).routes, null);
  });

  test(`${kind}: what is written overlaps nothing, even in shared memory and where the engine works on copies`, () => {
    const plan = engine.plan('max u8 ncw 1x1x4 k2 bits=8');
    const sentence = (written, other) => ({ message: `${written} and ${other} overlap; ${written} is written, so it must have memory of its own` });
    for (const memory of [new ArrayBuffer(8), new SharedArrayBuffer(8)]) {
      const at = (begin, length) => new Uint8Array(memory, begin, length);
      assert.throws(() => plan.forward(at(0, 4), { y: at(3, 2) }), sentence('y', 'x'));
      assert.throws(() => plan.forward(at(0, 4), { y: at(4, 2), routesOut: at(5, 2) }), sentence('y', 'routesOut'));
      assert.throws(() => plan.forward(at(2, 4), { routesOut: at(1, 2) }), sentence('routesOut', 'x'));
      assert.throws(() => plan.unpool(at(0, 2), at(6, 2), at(1, 4)), sentence('x', 'y'));
      assert.throws(() => plan.gather(at(0, 4), at(4, 2), at(5, 2)), sentence('ty', 'routes'));
      plan.forward(at(0, 4), { y: at(4, 2), routesOut: at(6, 2) });
    }
    const floats = engine.plan('max f32 ncw 1x1x2 k1');
    const dy = new Float32Array(2);
    assert.throws(() => floats.backward(dy, new Uint8Array(1), dy), sentence('dx', 'dy'));
    assert.throws(() => floats.backwardX(dy, dy, dy), sentence('dx', 'dy'));
  });

  test(`${kind}: arrays made in another context`, () => {
    const plan = engine.plan('max f32 nchw 1x1x3x3 k2 s1');
    const { x, y, routesOut } = vm.runInNewContext('({ x: Float32Array.of(1, 2, 3, 4, 5, 6, 7, 8, 9), y: new Float32Array(4), routesOut: new Uint8Array(2) })');
    plan.forward(x, { y, routesOut });
    assert.deepEqual([[...y], [...routesOut]], [[5, 6, 8, 9], [15, 15]]);
    assert.deepEqual([...plan.backward(y, routesOut)], [0, 0, 0, 0, 5, 6, 0, 8, 9]);
  });

  test(`${kind}: cached plans are told apart by what the problem is, not by how it is written`, () => {
    const fields = { shape: [1, 1, 3, 3], kernel: 2 };
    const plan = engine.cachedPlan(fields);
    assert.equal(engine.cachedPlan({ ...fields, kernel: [2, 2], dtype: 'f32', stride: undefined }), plan);
    class Smaller { get shape() { return [1, 1, 3, 3]; } get kernel() { return 1; } }
    class Larger { get shape() { return [1, 1, 3, 3]; } get kernel() { return 3; } }
    assert.deepEqual([new Smaller(), new Larger()].map((problem) => engine.cachedPlan(problem).info.kernel), [[1, 1], [3, 3]]);
    assert.throws(() => engine.cachedPlan({ ...fields, strides: () => 1 }), /a problem has no such field/);
  });

  test(`${kind}: one call per operation`, () => {
    const problem = { shape: [1, 1, 3, 3], kernel: 2, stride: 1 };
    const pooled = poolgrad.maxPool(problem, nine, engine), { y, shape, routes } = pooled;
    assert.deepEqual([[...y], shape], [[5, 6, 8, 9], [1, 1, 2, 2]]);
    for (const from of [{ routes }, { x: nine }, pooled]) {
      assert.deepEqual([...maxPoolGrad(problem, [1, 1, 1, 1], from, engine)], [0, 0, 0, 0, 1, 1, 0, 1, 1]);
    }
    assert.deepEqual([...poolgrad.unpool(problem, [1, 2, 3, 4], routes, engine)], [0, 0, 0, 0, 1, 2, 0, 3, 4]);
    assert.deepEqual([...poolgrad.avgPool(problem, nine, engine).y], [3, 4, 6, 7]);
    assert.deepEqual([...poolgrad.avgPoolGrad(problem, [4, 4, 4, 4], engine)], [1, 2, 1, 2, 4, 2, 1, 2, 1]);
    assert.throws(() => poolgrad.avgPool('max f32 nchw 1x1x3x3 k2', nine, engine), /avg pooling was asked for$/);
  });

  test(`${kind}: a plan that is evicted from the cache still works`, () => {
    const kept = engine.cachedPlan('max f32 nchw 1x1x3x3 k2 s1');
    assert.equal(engine.cachedPlan('max f32 nchw 1x1x3x3 k2 s1'), kept);
    for (let n = 1; n <= 70; ++n) engine.cachedPlan({ shape: [n, 1, 3, 3], kernel: 2 });
    assert.notEqual(engine.cachedPlan('max f32 nchw 1x1x3x3 k2 s1'), kept);
    assert.deepEqual([...kept.forward(nine).y], [5, 6, 8, 9]);
  });

  test(`${kind}: says what it is and what it chose`, () => {
    assert.equal(engine.kind, kind);
    assert.equal(engine.version, JSON.parse(readFileSync(new URL('../package.json', import.meta.url))).version);
    const plan = engine.plan('max f32 nhwc 8x56x56x64 k2 s2');
    assert.match(plan.explain(), new RegExp(`forward +${plan.algorithm('forward')}`));
    assert.notEqual(plan.algorithm('forward'), 'reference');
    assert.equal(engine.plan('max f32 nhwc 8x56x56x64 k2 s2', { algorithm: 'reference' }).algorithm('forward'), 'reference');
    assert.equal(engine.plan('avg f32 nhwc 1x4x4x1 k2').algorithm('unpool'), null);
  });
}

// A random problem of any layout, type, dialect and rule; null when the core refuses it.
function randomPlan(engine, next) {
  const rank = pick(next, 1, 3);
  const of = (words) => words[pick(next, 0, words.length - 1)];
  const axes = (low, high) => Array.from({ length: rank }, () => pick(next, low, high));
  const last = next() < 0.5;
  const spatial = axes(1, rank === 3 ? 7 : 14);
  const channels = pick(next, 1, 20);
  const spec = {
    kind: next() < 0.8 ? 'max' : 'avg',
    dtype: next() < 0.6 ? 'f32' : of(['f64', 'f16', 'bf16', 'i8', 'u8', 'i32']),
    layout: (last ? ['nwc', 'nhwc', 'ndhwc'] : ['ncw', 'nchw', 'ncdhw'])[rank - 1],
    shape: last ? [2, ...spatial, channels] : [2, channels, ...spatial],
    kernel: axes(1, 4), stride: axes(1, 3), dilation: next() < 0.8 ? 1 : axes(1, 2),
    padding: next() < 0.3 ? 'same' : axes(0, 2),
    rounding: of(['floor', 'ceil', 'ceil_keep', 'round']),
    ties: of(['default', 'first', 'last', 'split', 'all']),
    nan: of(['default', 'propagate_first', 'propagate_last', 'first_place', 'greater_equal', 'ignore']),
    dialect: of(['default', 'torch', 'tensorflow', 'tfjs', 'onnx']),
  };
  if (spec.kind === 'max' && next() < 0.3) spec.relu = true;
  if (next() < 0.2) Object.assign(spec, tables(next, spatial), { padding: 0, dilation: 1 });
  try {
    return engine.plan(spec);
  } catch (error) {
    assert.ok(error instanceof PoolgradError);
    return null;
  }
}

// Adaptive axes, listed windows, and now and then an axis that keeps its kernel.
function tables(next, spatial) {
  const ways = spatial.map(() => pick(next, 0, 3));
  const listed = spatial.map((size, axis) => {
    const starts = Array.from({ length: pick(next, 1, 5) }, () => pick(next, 0, size - 1)).sort((a, b) => a - b);
    return ways[axis] < 2 ? null : { starts, sizes: starts.map((start) => pick(next, 1, size - start)) };
  });
  return {
    kernel: ways.map((way) => (way === 0 ? 1 : 0)), stride: 1,
    adaptive: spatial.map((size, axis) => (ways[axis] === 1 ? pick(next, 1, size + 2) : 0)),
    ...(listed.some(Boolean) ? { starts: listed.map((axis) => axis?.starts ?? null), sizes: listed.map((axis) => axis?.sizes ?? null) } : {}),
  };
}

test('both engines give the same bits on random problems of every kind', { skip: !hasNative }, () => {
  const [native, wasm] = ['native', 'wasm'].map((kind) => loadEngineSync(kind));
  const next = random(42);
  let compared = 0;
  const seen = { relu: 0, byTable: 0 };
  while (compared < 500) {
    const one = randomPlan(native, next);
    if (one === null) continue;
    seen.relu += one.info.relu;
    seen.byTable += one.info.byTable.some(Boolean);
    const two = wasm.plan(one.info.problem);
    assert.deepEqual(two.info, one.info);
    const { dtype, kind, xElements, yElements, problem } = one.info;
    const make = { f32: Float32Array, f64: Float64Array, f16: Uint16Array, bf16: Uint16Array, i8: Int8Array, u8: Uint8Array, i32: Int32Array }[dtype];
    // Quiet NaN of both signs with payloads, -0 and infinities; f32 and f64 get their bits below.
    const special = { f32: [NaN, -0, Infinity, -Infinity], f64: [NaN, -0, Infinity, -Infinity],
                      f16: [0x7e15, 0xfe15, 0x8000, 0x7c00, 0xfc00], bf16: [0x7fd5, 0xffd5, 0x8000, 0x7f80, 0xff80] }[dtype] ?? [0];
    const half = (v) => (dtype === 'f16' ? [0xc000, 0xbc00, 0, 0x3c00, 0x4000] : [0xc000, 0xbf80, 0, 0x3f80, 0x4000])[v + 2];
    const fill = (length) => {
      const values = make.from({ length }, () => {
        if (next() < 0.05) return special[pick(next, 0, special.length - 1)];
        const v = pick(next, -2, 2);
        return dtype === 'f16' || dtype === 'bf16' ? half(v) : dtype === 'u8' ? v + 2 : v;
      });
      if (dtype === 'f32' || dtype === 'f64') {  // the upper half of each NaN: its sign, and some payload
        const words = new Uint32Array(values.buffer), step = values.BYTES_PER_ELEMENT / 4;
        values.forEach((v, i) => { if (Number.isNaN(v)) words[step * i + step - 1] |= (pick(next, 0, 1) << 31) | pick(next, 0, 0xffff); });
      }
      return values;
    };
    const x = fill(xElements), dy = fill(yElements);
    const same = (call, name) => assert.equal(bits(call(one)), bits(call(two)), `${name} of ${problem}`);
    const sameSums = (call, name) => assert.equal(bitsOfSums(call(one), dtype), bitsOfSums(call(two), dtype), `${name} of ${problem}`);
    // Windows that share no input copy dy; a NaN then keeps its bits. Sets of ties are shares, hence arithmetic.
    const { kernel, stride, dilation, routeMasks, byTable } = one.info;
    const disjoint = kernel.every((size, axis) => !byTable[axis] && stride[axis] > (size - 1) * dilation[axis]);
    const gradient = disjoint && !routeMasks ? same : sameSums;
    if (kind === 'max') {
      same((plan) => plan.forward(x).y, 'forward');
      const { routes } = one.forward(x);
      same((plan) => plan.forward(x).routes, 'routes');
      same((plan) => plan.unpool(dy, routes), 'unpool');
      same((plan) => plan.jacobian(routes).columns, 'jacobian');
      if (!routeMasks) same((plan) => plan.indices(routes, 'onnx'), 'indices');
      (routeMasks ? sameSums : same)((plan) => plan.gather(x, routes), 'gather');
      if (one.algorithm('backward')) {
        gradient((plan) => plan.backward(dy, routes), 'backward');
        gradient((plan) => plan.backwardX(dy, x), 'backwardX');
      }
    } else {
      sameSums((plan) => plan.forward(x).y, 'forward');
      if (one.algorithm('backward')) sameSums((plan) => plan.backward(dy, null), 'backward');
    }
    one.dispose();
    two.dispose();
    ++compared;
  }
  assert.ok(seen.relu > 50 && seen.byTable > 20, JSON.stringify(seen));
});

test('wasm: arrays of more than 4 GiB find no room, instead of what is left of their size', () => {
  const plan = loadEngineSync('wasm').plan('max f32 ncw 1x1x1100000000 k1 s1100000000');
  assert.throws(() => plan.unpool([1], new Uint8Array(1)), { code: 'OUT_OF_MEMORY', message: /^the WebAssembly memory has no room for 4400/ });
  assert.deepEqual([...loadEngineSync('wasm').plan('max f32 nchw 1x1x3x3 k2 s1').forward(nine).y], [5, 6, 8, 9]);
});

test('engines are shared, and can be made from a module compiled elsewhere', async () => {
  assert.equal(await loadEngine('wasm'), loadEngineSync('wasm'));
  assert.equal(loadEngineSync('auto').kind, engineKinds[0]);
  assert.throws(() => loadEngineSync('gpu'), { message: 'engine is "gpu"; it must be one of native, wasm, auto' });
  const require = createRequire(import.meta.url);
  const module = new WebAssembly.Module(readFileSync(require.resolve('poolgrad/poolgrad.wasm')));
  const own = poolgrad.engineFromModule(module);
  assert.notEqual(own, loadEngineSync('wasm'));
  assert.deepEqual([...own.plan('max f32 nchw 1x1x3x3 k2 s1').forward(nine).y], [5, 6, 8, 9]);
  assert.equal(require('poolgrad').loadEngineSync, loadEngineSync);  // import and require give one package
});
