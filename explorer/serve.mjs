// Serves explorer/dist on this machine only, for a look at the page and for its tests (and the site's): `node serve.mjs [port]`.
import { createReadStream, statSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';

const TYPES = {
  '.html': 'text/html; charset=utf-8', '.css': 'text/css', '.js': 'text/javascript', '.svg': 'image/svg+xml', '.png': 'image/png',
};

/** The file in `folder` that an address means; null where there is none, whatever the address holds. */
function fileOf(folder, url) {
  try {
    const path = normalize(decodeURIComponent(new URL(url, 'http://localhost').pathname));
    const file = join(folder, path.endsWith('/') ? `${path}index.html` : path);
    return file.startsWith(join(folder, '/')) && statSync(file).isFile() ? file : null;
  } catch {
    return null;  // no address, no text behind its percent signs, or no such file
  }
}

/** Starts a server over `folder`; resolves to its address and a way to stop it. Port 0 takes any free one. */
export function serve(folder, port = 0) {
  const server = createServer((request, response) => {
    const file = fileOf(folder, request.url);
    if (file === null) {
      response.writeHead(404, { 'content-type': 'text/plain; charset=utf-8' }).end(`There is no ${request.url} here.\n`);
      return;
    }
    response.writeHead(200, { 'content-type': TYPES[extname(file)] ?? 'application/octet-stream', 'cache-control': 'no-store' });
    createReadStream(file).on('error', () => response.destroy()).pipe(response);
  });
  return new Promise((resolve, reject) => {
    server.on('error', reject);
    server.listen(port, '127.0.0.1', () =>
      resolve({ address: `http://127.0.0.1:${server.address().port}/`, stop: () => new Promise((done) => server.close(done)) }),
    );
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { address } = await serve(fileURLToPath(new URL('dist', import.meta.url)), Number(process.argv[2] ?? 8765));
  console.log(`The explorer is at ${address} (Ctrl+C stops it).`);
}
