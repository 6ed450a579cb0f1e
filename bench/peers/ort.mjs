// ONNX Runtime on the CPU, answering the questions described in cell.h: MaxPool (fwd), MaxPool with Indices (train).
// It has no gradient and no channels last. Argument 2 is `ort`, or `ort_global` for GlobalMaxPool where the window
// covers the plane. Outputs are given, so that nothing is allocated in the timed call. The models are written by hand.
import { createRequire } from "node:module";
import path from "node:path";
import readline from "node:readline";

const require = createRequire(path.join(process.env.POOLGRAD_PEERS_NODE ?? process.cwd(), "package.json"));
const ort = require("onnxruntime-node");
const variant = process.argv[2] ?? "ort";
const SHORTEST_SAMPLE = 20e-6,
  FEWEST_SAMPLES = 5,
  PATIENCE = 8;

// Protocol buffers, as far as ONNX models need them: varints, and length-delimited fields.
const varint = (n) => {
  const bytes = [];
  for (let rest = BigInt.asUintN(64, BigInt(n)); ; rest >>= 7n) {
    if (rest < 128n) return Buffer.from([...bytes, Number(rest)]);
    bytes.push(Number(rest & 127n) | 128);
  }
};
const number = (field, n) => Buffer.concat([varint(field << 3), varint(n)]);
const chunk = (field, body) => {
  const bytes = Buffer.from(body);
  return Buffer.concat([varint((field << 3) | 2), varint(bytes.length), bytes]);
};
const join = (...parts) => Buffer.concat(parts.flat());

const ELEMENT = { f32: 1, f16: 10, i64: 7 };
const attributeInts = (name, ints) =>
  chunk(
    5,
    join(
      chunk(1, name),
      number(20, 7),
      ints.map((i) => number(8, i)),
    ),
  );
const attributeInt = (name, i) => chunk(5, join(chunk(1, name), number(20, 2), number(3, i)));
const valueInfo = (field, name, type, dims) =>
  chunk(
    field,
    join(
      chunk(1, name),
      chunk(2, chunk(1, join(number(1, type), chunk(2, join(dims.map((d) => chunk(1, number(1, d)))))))),
    ),
  );

function model(cell, xDims, yDims) {
  const axes = cell.axes;
  const indices = cell.op === "train";
  const attributes =
    variant === "ort_global"
      ? []
      : [
          attributeInts(
            "kernel_shape",
            axes.map((a) => a.kernel),
          ),
          attributeInts(
            "strides",
            axes.map((a) => a.stride),
          ),
          attributeInts(
            "dilations",
            axes.map((a) => a.dilation),
          ),
          attributeInts("pads", [...axes.map((a) => a.padLo), ...axes.map((a) => a.padHi)]),
          attributeInt("ceil_mode", 0),
        ];
  const node = join(
    chunk(1, "x"),
    chunk(2, "y"),
    indices ? chunk(2, "i") : [],
    chunk(4, variant === "ort_global" ? "GlobalMaxPool" : "MaxPool"),
    attributes,
  );
  const graph = join(
    chunk(1, node),
    chunk(2, "pool"),
    valueInfo(11, "x", ELEMENT[cell.dtype], xDims),
    valueInfo(12, "y", ELEMENT[cell.dtype], yDims),
    indices ? valueInfo(12, "i", ELEMENT.i64, yDims) : [],
  );
  return join(number(1, 8), chunk(7, graph), chunk(8, join(chunk(1, ""), number(2, 12))));
}

function parse(line) {
  const words = line.trim().split(/\s+/);
  const [op, dtype, layout] = words;
  const [threads, seconds, sets, batch, channels, rank] = words.slice(3, 9).map(Number);
  const numbers = words.slice(9).map(Number);
  const axes = [0, 7, 14].slice(3 - rank).map((at) => {
    const [inside, out, kernel, stride, padLo, padHi, dilation] = numbers.slice(at, at + 7);
    return { inside, out, kernel, stride, padLo, padHi: Math.max(padHi, 0), dilation };
  });
  return { op, dtype, layout, threads, seconds, sets, batch, channels, axes };
}

function randomTensor(dtype, dims) {
  const count = dims.reduce((a, b) => a * b, 1);
  if (dtype === "f16")
    return new ort.Tensor(
      "float16",
      Uint16Array.from({ length: count }, () => (Math.random() * 65536) & 0xbbff),
      dims,
    );
  return new ort.Tensor(
    "float32",
    Float32Array.from({ length: count }, () => Math.random() * 2 - 1),
    dims,
  );
}

function emptyTensor(dtype, dims) {
  const count = dims.reduce((a, b) => a * b, 1);
  if (dtype === "i64") return new ort.Tensor("int64", new BigInt64Array(count), dims);
  return dtype === "f16"
    ? new ort.Tensor("float16", new Uint16Array(count), dims)
    : new ort.Tensor("float32", new Float32Array(count), dims);
}

// The rule of cli/timing.h.
async function measure(seconds, sets, call) {
  const now = () => Number(process.hrtime.bigint()) / 1e9;
  let index = 0,
    start = now();
  while (index === 0 || (index < sets && now() - start < PATIENCE * seconds)) await call(index++);
  start = now();
  await call(index++);
  const repeats = Math.floor(SHORTEST_SAMPLE / Math.max(now() - start, 1e-9)) + 1;
  const samples = [],
    begin = now();
  for (
    let elapsed = 0;
    elapsed < seconds || (samples.length < FEWEST_SAMPLES && elapsed < PATIENCE * seconds);
    elapsed = now() - begin
  ) {
    start = now();
    for (let r = 0; r < repeats; ++r) await call(index++);
    samples.push((now() - start) / repeats);
  }
  samples.sort((a, b) => a - b);
  const at = (q) => samples[Math.floor(q * (samples.length - 1) + 0.5)];
  return [at(0.5) * 1e3, (at(0.75) - at(0.25)) / at(0.5)];
}

async function answer(cell) {
  if (cell.layout !== "nchw") throw new Error("no channels last");
  if (!(cell.op === "fwd" || (cell.op === "train" && variant === "ort"))) throw new Error("no gradient");
  if (!(cell.dtype in ELEMENT)) throw new Error("no such type");
  if (variant === "ort_global" && cell.axes.some((a) => a.kernel !== a.inside || a.padLo !== 0))
    throw new Error("the window does not cover the plane");
  const xDims = [cell.batch, cell.channels, ...cell.axes.map((a) => a.inside)];
  const yDims = [cell.batch, cell.channels, ...cell.axes.map((a) => a.out)];
  const session = await ort.InferenceSession.create(model(cell, xDims, yDims), {
    intraOpNumThreads: cell.threads,
    interOpNumThreads: 1,
    logSeverityLevel: 3,
  });
  const first = randomTensor(cell.dtype, xDims);
  const sets = Array.from({ length: cell.sets }, (_, i) => ({
    feeds: { x: i === 0 ? first : new ort.Tensor(first.type, first.data.slice(), xDims) },
    fetches: { y: emptyTensor(cell.dtype, yDims), ...(cell.op === "train" ? { i: emptyTensor("i64", yDims) } : {}) },
  }));
  const result = await measure(cell.seconds, cell.sets, (i) =>
    session.run(sets[i % cell.sets].feeds, sets[i % cell.sets].fetches),
  );
  await session.release();
  return result;
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  try {
    const [ms, spread] = await answer(parse(line));
    console.log(`${ms.toFixed(6)} ${spread.toFixed(4)}`);
  } catch (error) {
    console.log(`no ${String(error.message).replace(/\s+/g, " ").slice(0, 200)}`);
  }
}
