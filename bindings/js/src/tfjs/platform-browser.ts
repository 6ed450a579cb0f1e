import base64 from '../../dist/poolgrad-heap.wasm';

export function heapModuleBytes(): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
}
