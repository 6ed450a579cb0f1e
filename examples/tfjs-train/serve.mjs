// Bundles the page and serves it.
//   node serve.mjs [PORT]       (8000; 0 takes any free port). Prints the address once it listens.
import { createServer } from 'node:http';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import * as esbuild from 'esbuild';

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const { outputFiles: [script] } = await esbuild.build({
  entryPoints: [here('page/page.mjs')], bundle: true, format: 'esm', target: 'es2022', minify: true, write: false,
  logLevel: 'error',
});

const pages = {
  '/': ['text/html; charset=utf-8', await readFile(here('page/index.html'))],
  '/page.js': ['text/javascript; charset=utf-8', script.contents],
};
const server = createServer((request, response) => {
  const [type, body] = pages[request.url] ?? [];
  response.writeHead(body ? 200 : 404, { 'content-type': type ?? 'text/plain' });
  response.end(body ?? 'There is nothing here.\n');
});
server.listen(Number(process.argv[2] ?? 8000), '127.0.0.1', () => {
  console.log(`http://127.0.0.1:${server.address().port}/`);
});
