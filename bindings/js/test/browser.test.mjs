// The WebAssembly engine in Chromium, under TensorFlow.js's wasm backend: inside its memory where that is not shared, by
// copies where the page is cross-origin isolated and TensorFlow.js runs threads. The bits are those of Node.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import * as esbuild from 'esbuild';
import { attrs, input, shape, upstream } from './browser/problem.mjs';
import { outcomeOf } from './chromium.mjs';
import * as oracle from './oracle.mjs';

const require = createRequire(import.meta.url);
const tfjsFolder = path.dirname(require.resolve('@tensorflow/tfjs-backend-wasm'));
let server, script;

before(async () => {
  const { outputFiles } = await esbuild.build({
    entryPoints: [fileURLToPath(new URL('browser/page.mjs', import.meta.url))], bundle: true, format: 'esm', write: false,
    platform: 'browser', define: { process: 'undefined' }, logLevel: 'error',
    external: ['fs', 'path', 'os', 'worker_threads', 'perf_hooks', 'crypto', 'util', 'string_decoder'],
  });
  script = outputFiles[0].contents;
  // Under /isolated/ the page may share memory between threads.
  server = createServer(async (request, response) => {
    const headers = request.url.startsWith('/isolated/')
      ? { 'cross-origin-opener-policy': 'same-origin', 'cross-origin-embedder-policy': 'require-corp' } : {};
    const name = path.basename(request.url);
    const send = (type, body) => response.writeHead(200, { ...headers, 'content-type': type }).end(body);
    if (name === 'page.js') return send('text/javascript', script);
    if (name.endsWith('.wasm')) return send('application/wasm', await readFile(path.join(tfjsFolder, name)));
    if (name === 'favicon.ico') return response.writeHead(204).end();
    return send('text/html', '<!doctype html><title>test</title><script type="module" src="page.js"></script>');
  });
  await new Promise((listening) => { server.listen(0, '127.0.0.1', listening); });
});
after(() => server.close());

const g = oracle.geometry(shape, attrs);
const x = input();
const { y, winner } = oracle.maxPool(x, g);
const dx = oracle.spread(upstream(y.length), winner, x.length);

for (const [folder, isolated] of [['plain', false], ['isolated', true]]) {
  test(`a ${folder} page ${isolated ? 'copies' : 'works inside the memory of TensorFlow.js'}`, async () => {
    const { outcome } = await outcomeOf(`http://127.0.0.1:${server.address().port}/${folder}/`);
    assert.equal(outcome.error, undefined);
    assert.equal(outcome.kind, 'wasm');
    assert.equal(outcome.simdTarget, 'WASM');
    assert.equal(outcome.registered, 28);
    assert.equal(outcome.isolated, isolated);
    assert.equal(outcome.copied, isolated);
    assert.deepEqual(outcome.y, [...y]);
    assert.deepEqual(outcome.dx, [...dx]);
  });
}
