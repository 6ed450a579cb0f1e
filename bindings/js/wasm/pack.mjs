// Makes a module that can be placed anywhere in another module's memory, from the same module linked for two places.
//   node wasm/pack.mjs here.wasm there.wasm packed.wasm
// The two were linked 2^26 bytes apart, above 2^28 and below 2^31, where every address takes five bytes of LEB128. So they have
// the same length, and differ only where they hold addresses: bit 26, in the fourth byte of each. All of this is checked.
//
// The result keeps types, imports, functions and code, loses its data, and gains a custom section "poolgrad.place" that the
// loader (src/tfjs/heap.ts) reads. All numbers are LEB128:
//   start, size            the addresses it was linked for: [start, start + size) hold data, zeros and stack
//   image length, image    the data, from start
//   count, words           where the image holds addresses, 32 bits each: distances from one to the next
//   count, places          where the code holds addresses: the same, from the start of the code section's body
import { readFileSync, writeFileSync } from 'node:fs';

const [here, there, target] = process.argv.slice(2);
const APART = 2 ** 26;
const CUSTOM = 0, IMPORT = 2, GLOBAL = 6, EXPORT = 7, CODE = 10, DATA = 11, DATA_COUNT = 12;
const I32_CONST = 0x41;

class Reader {
  constructor(bytes) { this.bytes = bytes; this.at = 0; }
  byte() { return this.bytes[this.at++]; }
  number() {
    let value = 0, scale = 1, byte;
    do {
      byte = this.byte();
      value += (byte & 0x7f) * scale;
      scale *= 128;
    } while (byte & 0x80);
    return value;
  }
  take(length) { return this.bytes.subarray(this.at, (this.at += length)); }
  name() { return Buffer.from(this.take(this.number())).toString(); }
  get done() { return this.at >= this.bytes.length; }
}

function leb(value) {
  const bytes = [];
  do {
    bytes.push((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
    value >>>= 7;
  } while (value);
  return bytes;
}

function sectionsOf(file) {
  const reader = new Reader(readFileSync(file));
  reader.take(8);
  const sections = [];
  while (!reader.done) sections.push({ id: reader.byte(), body: reader.take(reader.number()) });
  return sections;
}
const bodyOf = (sections, id) => sections.find((s) => s.id === id).body;

/** The value of an exported global that is a constant address. */
function exportedGlobal(sections, wanted) {
  const globals = new Reader(bodyOf(sections, GLOBAL));
  const values = Array.from({ length: globals.number() }, () => {
    globals.take(2);  // type, mutability
    if (globals.byte() !== I32_CONST) throw new Error('a global does not start from a constant 32-bit number');
    const value = globals.number();
    globals.byte();
    return value;
  });
  const exports = new Reader(bodyOf(sections, EXPORT));
  for (let count = exports.number(); count > 0; --count) {
    const name = exports.name(), kind = exports.byte(), index = exports.number();
    if (kind === 3 && name === wanted) return values[index];
  }
  throw new Error(`the module does not export ${wanted}`);
}

/** All data as one piece, from the first segment's address. */
function imageOf(sections) {
  const data = new Reader(bodyOf(sections, DATA));
  const segments = Array.from({ length: data.number() }, () => {
    if (data.number() !== 0 || data.byte() !== I32_CONST) throw new Error('a data segment is not at a constant address');
    const address = data.number();
    data.byte();
    return { address, bytes: data.take(data.number()) };
  });
  const start = Math.min(...segments.map((s) => s.address));
  const image = Buffer.alloc(Math.max(...segments.map((s) => s.address + s.bytes.length)) - start);
  for (const { address, bytes } of segments) image.set(bytes, address - start);
  return { start, image };
}

/** Where the addresses begin in which a and b differ; `read` gives the number at such a place. */
function addresses(what, a, b, read) {
  if (a.length !== b.length) throw new Error(`the ${what} of ${here} and ${there} differ in length`);
  const places = [];
  for (let i = 0; i < a.length; ++i) {
    if (a[i] === b[i]) continue;
    const place = i - 3;
    if (read(b, place) - read(a, place) !== APART) throw new Error(`the ${what} differ at ${i} by something that is no address`);
    places.push(place);
    i = place + 4;
  }
  return places;
}

function readFiveBytes(bytes, at) {
  const reader = new Reader(bytes);
  reader.at = at;
  const value = reader.number();
  return reader.at === at + 5 ? value : NaN;
}

/** The import section with the memory's least size taken down to one page. */
function importsForAnyMemory(body) {
  const reader = new Reader(body);
  const parts = [];
  const count = reader.number();
  for (let i = 0; i < count; ++i) {
    const begin = reader.at;
    reader.name();
    reader.name();
    const kind = reader.byte();
    if (kind === 0) reader.number();
    else if (kind !== 2) throw new Error(`import ${i} is neither a function nor a memory`);
    const head = [...body.subarray(begin, reader.at)];
    if (kind === 2) {
      if (reader.number() !== 0) throw new Error('the imported memory has a limit or is shared');
      reader.number();
      head.push(0, 1);
    }
    parts.push(...head);
  }
  return [...leb(count), ...parts];
}

const first = sectionsOf(here), second = sectionsOf(there);
const { start, image } = imageOf(first);
const words = addresses('data', image, imageOf(second).image, (bytes, at) => bytes.readUInt32LE(at));
const places = addresses('code', bodyOf(first, CODE), bodyOf(second, CODE), readFiveBytes);
const size = exportedGlobal(first, '__heap_base') - start;

const distances = (offsets) => [...leb(offsets.length), ...offsets.flatMap((offset, i) => leb(offset - (i ? offsets[i - 1] : 0)))];
const named = [...leb(14), ...Buffer.from('poolgrad.place'), ...leb(start), ...leb(size), ...leb(image.length), ...image,
               ...distances(words), ...distances(places)];
const kept = first.filter(({ id }) => ![CUSTOM, DATA, DATA_COUNT].includes(id))
  .map(({ id, body }) => ({ id, body: id === IMPORT ? importsForAnyMemory(body) : body }));
writeFileSync(target, Buffer.from([
  ...readFileSync(here).subarray(0, 8),
  ...kept.flatMap(({ id, body }) => [id, ...leb(body.length), ...body]),
  CUSTOM, ...leb(named.length), ...named,
]));
