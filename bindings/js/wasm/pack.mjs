// Turns a module linked with --emit-relocs into one that can be placed anywhere in another module's memory.
//   node wasm/pack.mjs linked.wasm packed.wasm
// The result keeps types, imports, functions and code, loses its data and all names, and gains a custom section
// "poolgrad.place" that the loader (src/tfjs/heap.ts) reads. All numbers are LEB128:
//   start, size       the addresses it was linked for: [start, start + size) hold data, zeros and stack
//   image length, image    the data, from start
//   count, words      where the image holds addresses: distances from one 32-bit word to the next
//   count, places     where the code holds addresses: 2 * distance + (1 if signed), from the start of the code section's body
import { readFileSync, writeFileSync } from 'node:fs';

const [source, target] = process.argv.slice(2);
const file = readFileSync(source);

class Reader {
  constructor(bytes) { this.bytes = bytes; this.at = 0; }
  byte() { return this.bytes[this.at++]; }
  // LEB128, unsigned or (with a sign) signed.
  number(signed = false) {
    let value = 0n, shift = 0n, byte;
    do {
      byte = this.byte();
      value |= BigInt(byte & 0x7f) << shift;
      shift += 7n;
    } while (byte & 0x80);
    return Number(signed && byte & 0x40 ? value - (1n << shift) : value);
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

const CUSTOM = 0, GLOBAL = 6, EXPORT = 7, CODE = 10, DATA = 11, DATA_COUNT = 12;
const MEMORY_ADDR_LEB = 3, MEMORY_ADDR_SLEB = 4, MEMORY_ADDR_I32 = 5;
const WITH_ADDEND = new Set([3, 4, 5, 8, 9, 11, 14, 15, 16, 17, 21, 22, 23]);
const OTHER_ADDRESSES = new Set([11, 14, 15, 16, 17, 21, 23]);  // of 64-bit, position-independent and threaded code

const sections = [];
const reader = new Reader(file);
reader.take(8);
while (!reader.done) sections.push({ id: reader.byte(), body: reader.take(reader.number()) });
const section = (id) => sections.find((s) => s.id === id);

// The addresses of exported constants are what the linker decided.
function globals() {
  const values = [];
  const g = new Reader(section(GLOBAL).body);
  for (let count = g.number(); count > 0; --count) {
    g.take(2);  // type, mutability
    if (g.byte() !== 0x41) throw new Error('a global does not start from a constant 32-bit number');
    values.push(g.number(true));
    g.byte();
  }
  const found = {};
  const e = new Reader(section(EXPORT).body);
  for (let count = e.number(); count > 0; --count) {
    const name = e.name(), kind = e.byte(), index = e.number();
    if (kind === 3) found[name] = values[index];
  }
  return found;
}

// Data segments, each with its address and where its bytes lie in the section.
function segments() {
  const d = new Reader(section(DATA).body);
  return Array.from({ length: d.number() }, () => {
    if (d.number() !== 0 || d.byte() !== 0x41) throw new Error('a data segment is not at a constant address');
    const address = d.number(true);
    d.byte();
    const length = d.number();
    const offset = d.at;
    return { address, offset, bytes: d.take(length) };
  });
}

function relocations(name) {
  for (const { id, body } of sections) {
    const r = new Reader(body);
    if (id !== CUSTOM || r.name() !== name) continue;
    r.number();  // the section they apply to
    return Array.from({ length: r.number() }, () => {
      const type = r.byte(), offset = r.number();
      r.number();  // the symbol
      if (WITH_ADDEND.has(type)) r.number(true);
      return { type, offset };
    });
  }
  return [];
}

const data = segments();
const start = Math.min(...data.map((s) => s.address));
const end = globals().__heap_base;
const image = new Uint8Array(Math.max(...data.map((s) => s.address + s.bytes.length)) - start);
for (const { address, bytes } of data) image.set(bytes, address - start);

const words = relocations('reloc.DATA').filter((r) => r.type === MEMORY_ADDR_I32).map(({ offset }) => {
  const s = data.find((d) => offset >= d.offset && offset < d.offset + d.bytes.length);
  return s.address + offset - s.offset - start;
}).sort((a, b) => a - b);
const places = relocations('reloc.CODE').filter((r) => r.type === MEMORY_ADDR_LEB || r.type === MEMORY_ADDR_SLEB)
  .map(({ type, offset }) => ({ offset, signed: Number(type === MEMORY_ADDR_SLEB) })).sort((a, b) => a.offset - b.offset);
if (places.length === 0) throw new Error(`${source} has no relocations; link it with --emit-relocs`);
const strange = [...relocations('reloc.CODE'), ...relocations('reloc.DATA')].find((r) => OTHER_ADDRESSES.has(r.type));
if (strange) throw new Error(`${source} has a relocation of type ${strange.type}, which this tool cannot move`);

const distances = (offsets) => offsets.map((offset, i) => offset - (i ? offsets[i - 1] : 0));
const place = [
  ...leb(start), ...leb(end - start), ...leb(image.length), ...image,
  ...leb(words.length), ...distances(words).flatMap(leb),
  ...leb(places.length), ...distances(places.map((p) => p.offset)).flatMap((d, i) => leb(2 * d + places[i].signed)),
];
const named = [...leb(14), ...Buffer.from('poolgrad.place'), ...place];

const kept = sections.filter(({ id }) => ![CUSTOM, DATA, DATA_COUNT].includes(id));
writeFileSync(target, Buffer.from([
  ...file.subarray(0, 8),
  ...kept.flatMap(({ id, body }) => [id, ...leb(body.length), ...body]),
  CUSTOM, ...leb(named.length), ...named,
]));
