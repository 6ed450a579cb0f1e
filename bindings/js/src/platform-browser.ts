// Browsers: the module travels inside the script, so that no bundler or server needs to know about it; there is no addon.
import type { Addon } from './native-raw';
import base64 from '../dist/poolgrad.wasm';

export function wasmBytes(): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
}

export function loadAddon(): Addon {
  throw new Error('the native engine runs in Node only; use the wasm engine');
}
