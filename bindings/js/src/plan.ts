// Plan and Engine: the one face of both engines. Checks the arrays it is given (type and length), makes the results, and
// leaves the work to the engine behind it.
import type {
  Dtype, Engine, EngineKind, ForwardOptions, ForwardResult, Jacobian, Numbering, Op, Plan, PlanInfo, PlanOptions, Problem,
  ProblemSpec, Values,
} from './api/types';
import { inOurWords, keyOf, numberingCode, packProblem, packText, show, truth, unpackInfo, unpackSpec } from './problem';
import { invalid, OP, PoolgradError, type PackedProblem, type PlanHandle, type Raw } from './raw';

type ValuesConstructor = { new (length: number): Values; from(source: ArrayLike<number>): Values; name: string };

const ARRAYS: Record<Dtype, ValuesConstructor> = {
  f32: Float32Array, f64: Float64Array, f16: Uint16Array, bf16: Uint16Array, i8: Int8Array, u8: Uint8Array,
  i32: Int32Array,
};

/** A new array; what JavaScript says where it has no memory for it is put into a sentence. */
function allocated<T>(name: string, length: number, type: new (length: number) => T): T {
  try {
    return new type(length);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new PoolgradError('OUT_OF_MEMORY', `${name} needs ${length} elements; JavaScript has no memory for an array of so many`);
  }
}

// By name: an array that was made in another frame or context has a constructor of its own.
function isA(wanted: ValuesConstructor, values: unknown): values is Values {
  return ArrayBuffer.isView(values) && (values as Values)[Symbol.toStringTag] === wanted.name;
}

function converted(name: string, values: ArrayLike<number>, dtype: Dtype): Values {
  const array = new ARRAYS[dtype](values.length);
  const rounds = dtype === 'f32' || dtype === 'f64';
  for (let i = 0; i < array.length; ++i) {
    const value = values[i] as number;
    if (typeof value !== 'number') throw invalid(`${name}[${i}] is ${show(value)}; it must be a number`);
    array[i] = value;
    if (array[i] !== value && (!rounds || Math.abs(array[i] as number) === Infinity)) {
      throw invalid(`${name}[${i}] is ${value}; ${dtype} values come in a ${ARRAYS[dtype].name}, which cannot hold it`);
    }
  }
  return array;
}

// A typed array is taken as it is, and must then be the right one; a plain list of numbers is converted.
function input(name: string, values: ArrayLike<number>, dtype: Dtype, length: number, info: PlanInfo): Values {
  const wanted = ARRAYS[dtype];
  if (values === null || typeof values !== 'object' || typeof values.length !== 'number') {
    throw invalid(`${name} is ${show(values)}; it must be a ${wanted.name}`);
  }
  if (values.length !== length) {
    throw invalid(`${name} has ${values.length} elements; "${info.problem}" expects ${length}`);
  }
  if (isA(wanted, values)) return values;
  if (ArrayBuffer.isView(values)) {
    throw invalid(`${name} is a ${values.constructor.name}; ${dtype} values come in a ${wanted.name}`);
  }
  return converted(name, values, dtype);
}

function output(name: string, given: Values | undefined, dtype: Dtype, length: number, info: PlanInfo): Values {
  if (given === undefined) return allocated(name, length, ARRAYS[dtype]);
  if (!isA(ARRAYS[dtype], given)) {
    throw invalid(`${name} is not a ${ARRAYS[dtype].name}; results are written only into the problem's own type`);
  }
  return input(name, given, dtype, length, info);
}

type Named = readonly [name: string, array: ArrayBufferView | null];

// As the core refuses it. It cannot see it where an engine hands it copies, which would then overwrite each other.
function ownMemory([name, written]: Named, ...others: Named[]): void {
  for (const [other, array] of others) {
    if (written === null || array === null || written.buffer !== array.buffer) continue;
    if (written.byteOffset >= array.byteOffset + array.byteLength || array.byteOffset >= written.byteOffset + written.byteLength) continue;
    throw invalid(`${name} and ${other} overlap; ${name} is written, so it must have memory of its own`);
  }
}

/** Numbers beyond 2^53 do not occur: no tensor is that long. */
function toNumbers(wide: BigInt64Array): Float64Array {
  const halves = new Int32Array(wide.buffer, wide.byteOffset, 2 * wide.length);
  const numbers = new Float64Array(wide.length);
  for (let i = 0; i < numbers.length; ++i) {
    numbers[i] = (halves[2 * i + 1] as number) * 4294967296 + ((halves[2 * i] as number) >>> 0);
  }
  return numbers;
}

function toWide(name: string, numbers: ArrayLike<number>): BigInt64Array {
  const wide = new BigInt64Array(numbers.length);
  for (let i = 0; i < wide.length; ++i) {
    const n = numbers[i] as number;
    if (!Number.isSafeInteger(n)) throw invalid(`${name}[${i}] is ${show(n)}; it must be an integer`);
    wide[i] = BigInt(n);
  }
  return wide;
}

function checkOptions(options: object, known: readonly string[]): void {
  if (options === null || typeof options !== 'object') throw invalid(`options is ${show(options)}; it must be an object`);
  for (const name of Object.keys(options)) {
    if (!known.includes(name)) throw invalid(`options has ${show(name)}, which is no option; there is ${known.join(', ')}`);
  }
}

const leftBehind = new FinalizationRegistry<{ raw: Raw; handle: PlanHandle }>(({ raw, handle }) => raw.destroy(handle));

class PlanOnEngine implements Plan {
  readonly info: PlanInfo;
  readonly engine: Engine;
  readonly #raw: Raw;
  #handle: PlanHandle | null;

  constructor(engine: Engine, raw: Raw, problem: PackedProblem, algorithm: string | null) {
    const handle = inOurWords(() => raw.create(problem, algorithm));
    this.engine = engine;
    this.#raw = raw;
    this.#handle = handle;
    leftBehind.register(this, { raw, handle }, this);
    this.info = Object.freeze(unpackInfo(problem, raw.format(problem), raw.info(handle)));
  }

  get disposed(): boolean {
    return this.#handle === null;
  }

  get #plan(): PlanHandle {
    if (this.#handle === null) throw invalid(`the plan for "${this.info.problem}" was disposed of; make a new one`);
    return this.#handle;
  }

  #x(name: string, values: ArrayLike<number>): Values {
    return input(name, values, this.info.dtype, this.info.xElements, this.info);
  }
  #y(name: string, values: ArrayLike<number>): Values {
    return input(name, values, this.info.dtype, this.info.yElements, this.info);
  }
  #newX(name: string, given?: Values): Values {
    return output(name, given, this.info.dtype, this.info.xElements, this.info);
  }
  #newY(name: string, given?: Values): Values {
    return output(name, given, this.info.dtype, this.info.yElements, this.info);
  }
  // Average pooling keeps no routes; max pooling needs all their bytes.
  #routes(routes: Uint8Array | null | undefined): Uint8Array | null {
    return this.info.kind === 'avg' ? null : this.#routeBytes('routes', routes, 'max pooling needs the Uint8Array that forward returned');
  }
  #routeBytes(name: string, routes: Uint8Array | null | undefined, wanted: string): Uint8Array {
    if (!isA(Uint8Array, routes)) throw invalid(`${name} is ${show(routes)}; ${wanted}`);
    if (routes.length !== this.info.routeBytes) {
      throw invalid(`${name} has ${routes.length} bytes; "${this.info.problem}" expects ${this.info.routeBytes}`);
    }
    return routes as Uint8Array;
  }
  // Null where none are kept.
  #newRoutes({ routes, routesOut }: ForwardOptions): Uint8Array | null {
    const kept = truth('routes', routes ?? true) === 1;
    if (this.info.kind === 'max' && kept) {
      return this.#routeBytes('routesOut', routesOut ?? allocated('routes', this.info.routeBytes, Uint8Array), 'routes are written into a Uint8Array');
    }
    if (routesOut != null) throw invalid(`routesOut was given; ${kept ? 'average pooling has no routes' : 'routes: false keeps none'}`);
    return null;
  }

  explain(): string {
    return this.#raw.explain(this.#plan);
  }

  algorithm(op: Op): string | null {
    if (!Object.hasOwn(OP, op)) throw invalid(`op is "${String(op)}"; it must be one of ${Object.keys(OP).join(', ')}`);
    return this.#raw.algorithm(this.#plan, OP[op]);
  }

  forward(x: ArrayLike<number>, options: ForwardOptions = {}): ForwardResult {
    checkOptions(options, ['y', 'routes', 'routesOut']);
    const source = this.#x('x', x);
    const y = this.#newY('y', options.y);
    const routes = this.#newRoutes(options);
    ownMemory(['y', y], ['x', source], ['routesOut', routes]);
    ownMemory(['routesOut', routes], ['x', source]);
    this.#raw.forward(this.#plan, source, y, routes);
    return { y, routes };
  }

  backward(dy: ArrayLike<number>, routes: Uint8Array | null, dx?: Values): Values {
    const [source, kept, result] = [this.#y('dy', dy), this.#routes(routes), this.#newX('dx', dx)];
    ownMemory(['dx', result], ['dy', source], ['routes', kept]);
    this.#raw.backward(this.#plan, source, kept, result);
    return result;
  }

  backwardX(dy: ArrayLike<number>, x: ArrayLike<number>, dx?: Values): Values {
    const [source, values, result] = [this.#y('dy', dy), this.#x('x', x), this.#newX('dx', dx)];
    ownMemory(['dx', result], ['dy', source], ['x', values]);
    this.#raw.backwardX(this.#plan, source, values, result);
    return result;
  }

  gather(tx: ArrayLike<number>, routes: Uint8Array | null, ty?: Values): Values {
    const [source, kept, result] = [this.#x('tx', tx), this.#routes(routes), this.#newY('ty', ty)];
    ownMemory(['ty', result], ['tx', source], ['routes', kept]);
    this.#raw.gather(this.#plan, source, kept, result);
    return result;
  }

  unpool(y: ArrayLike<number>, routes: Uint8Array | null, x?: Values): Values {
    const [source, kept, result] = [this.#y('y', y), this.#maxRoutes(routes), this.#newX('x', x)];
    ownMemory(['x', result], ['y', source], ['routes', kept]);
    this.#raw.unpool(this.#plan, source, kept, result);
    return result;
  }

  indices(routes: Uint8Array | null, numbering: Numbering): Float64Array {
    const wide = allocated('indices', this.info.yElements, BigInt64Array);
    this.#raw.routesToIndices(this.#plan, this.#maxRoutes(routes), numberingCode(numbering), wide);
    return toNumbers(wide);
  }

  routesFromIndices(indices: ArrayLike<number>, numbering: Numbering): Uint8Array {
    const routes = allocated('routes', this.info.routeBytes, Uint8Array);
    this.#raw.routesFromIndices(this.#plan, this.#indices(indices), numberingCode(numbering), this.#maxRoutes(routes));
    return routes;
  }

  unpoolIndices(y: ArrayLike<number>, indices: ArrayLike<number>, numbering: Numbering,
                indexShape?: readonly number[]): Values {
    if (indexShape !== undefined && indexShape?.length !== this.info.rank) {
      throw invalid(`indexShape is ${show(indexShape)}; "${this.info.problem}" has ${this.info.rank} spatial axes`);
    }
    const [source, wide] = [this.#y('y', y), this.#indices(indices)];
    const shape = indexShape === undefined ? null : toWide('indexShape', indexShape);
    const x = this.#newX('x');
    inOurWords(() => this.#raw.unpoolIndices(this.#plan, source, wide, numberingCode(numbering), shape, x));
    return x;
  }

  jacobian(routes: Uint8Array | null): Jacobian {
    const kept = this.#routes(routes);
    const rowStart = allocated('rowStart', this.info.yElements + 1, BigInt64Array);
    this.#raw.jacobian(this.#plan, kept, rowStart, null, null);
    const count = Number(rowStart[this.info.yElements]);
    const columns = allocated('columns', count, BigInt64Array);
    const values = allocated('values', count, Float64Array);
    this.#raw.jacobian(this.#plan, kept, rowStart, columns, values);
    return { rowStart: toNumbers(rowStart), columns: toNumbers(columns), values };
  }

  dispose(): void {
    if (this.#handle === null) return;
    leftBehind.unregister(this);
    this.#raw.destroy(this.#handle);
    this.#handle = null;
  }

  #maxRoutes(routes: Uint8Array | null): Uint8Array {
    const kept = this.#routes(routes);
    if (kept === null) throw invalid(`"${this.info.problem}" is average pooling, which has no routes`);
    return kept;
  }

  #indices(indices: ArrayLike<number>): BigInt64Array {
    if (indices === null || typeof indices !== 'object' || typeof indices.length !== 'number') {
      throw invalid(`indices is ${show(indices)}; it must be a list of integers`);
    }
    if (indices.length !== this.info.yElements) {
      throw invalid(`indices has ${indices.length} elements; "${this.info.problem}" expects ${this.info.yElements}`);
    }
    return toWide('indices', indices);
  }
}

const CACHED_PLANS = 64;

export class EngineOnRaw implements Engine {
  readonly kind: EngineKind;
  readonly version: string;
  readonly simdTarget: string;
  readonly threads: number;
  readonly #raw: Raw;
  readonly #cache = new Map<string, PlanOnEngine>();  // in order of last use

  constructor(raw: Raw) {
    this.#raw = raw;
    this.kind = raw.kind;
    this.version = raw.version();
    this.simdTarget = raw.simdTarget();
    this.threads = raw.defaultThreads();
  }

  plan(problem: Problem, options: PlanOptions = {}): PlanOnEngine {
    checkOptions(options, ['algorithm']);
    const { algorithm } = options;
    if (algorithm !== undefined && typeof algorithm !== 'string') {
      throw invalid(`algorithm is ${show(algorithm)}; it must be the name of one that explain() lists`);
    }
    return new PlanOnEngine(this, this.#raw, packProblem(this.#raw, problem), algorithm ?? null);
  }

  cachedPlan(problem: Problem): Plan {
    const packed = typeof problem === 'string' ? null : packProblem(this.#raw, problem);
    const key = packed === null ? problem as string : keyOf(packed);
    let plan = this.#cache.get(key);
    this.#cache.delete(key);
    if (plan === undefined || plan.disposed) {
      plan = new PlanOnEngine(this, this.#raw, packed ?? packProblem(this.#raw, problem), null);
      if (this.#cache.size >= CACHED_PLANS) this.#cache.delete(this.#cache.keys().next().value as string);
    }
    this.#cache.set(key, plan);
    return plan;
  }

  parse(text: string): ProblemSpec {
    return unpackSpec(packText(this.#raw, text));
  }

  format(problem: Problem): string {
    return inOurWords(() => this.#raw.format(packProblem(this.#raw, problem)));
  }

  memoryBytes(): number {
    return this.#raw.memoryBytes();
  }
}
