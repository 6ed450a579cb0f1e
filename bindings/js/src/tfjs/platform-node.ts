import { readFileSync } from 'node:fs';
import { join } from 'node:path';

export function heapModuleBytes(): Uint8Array<ArrayBuffer> {
  return new Uint8Array(readFileSync(join(__dirname, '..', 'poolgrad-heap.wasm')));
}
