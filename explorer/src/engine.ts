// Starts the library: its WebAssembly module travels inside the page, compressed, so the page needs no second request and
// also opens from a file.
import type { Engine } from '../../bindings/js/src/api/types';
import { engineFromModule } from '../../bindings/js/src/load';
import packed from 'virtual:poolgrad-wasm';

async function unpack(base64: string): Promise<ArrayBuffer> {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Response(stream).arrayBuffer();
}

export async function startEngine(): Promise<Engine> {
  return engineFromModule(await WebAssembly.compile(await unpack(packed)));
}
