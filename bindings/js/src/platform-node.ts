// Node: the module and the addon lie beside this bundle, which is CommonJS, so that __dirname is there.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Addon } from './native-raw';

export function wasmBytes(): Uint8Array<ArrayBuffer> {
  return new Uint8Array(readFileSync(join(__dirname, '..', 'poolgrad.wasm')));
}

export function loadAddon(): Addon {
  const folder = `${process.platform}-${process.arch}`;
  try {
    return require(join(__dirname, '..', '..', 'prebuilds', folder, 'poolgrad.node')) as Addon;
  } catch (error) {
    throw new Error(`the native engine was not built for ${folder} (${(error as Error).message}); ` +
                    'run "npm run build:native" in the package, or use the wasm engine');
  }
}
