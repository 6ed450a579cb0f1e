// The server: it gives out the files of its folder and nothing else, and no address ends it.
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { serve } from '../serve.mjs';

const place = mkdtempSync(join(tmpdir(), 'poolgrad-serve-'));
let server;
before(async () => {
  mkdirSync(join(place, 'dist'));
  mkdirSync(join(place, 'dist-other'));
  writeFileSync(join(place, 'dist', 'index.html'), 'the page');
  writeFileSync(join(place, 'dist', 'a b.svg'), 'a picture');
  writeFileSync(join(place, 'secret'), 'not for you');
  writeFileSync(join(place, 'dist-other', 'secret'), 'nor this');
  server = await serve(join(place, 'dist'));
});
after(async () => {
  await server.stop();
  rmSync(place, { recursive: true, force: true });
});

/** The whole answer to one request, sent as it is: fetch would mend the address first. */
function ask(target) {
  return new Promise((resolve, reject) => {
    const socket = connect(Number(new URL(server.address).port), '127.0.0.1', () =>
      socket.write(`GET ${target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`));
    let text = '';
    socket.setEncoding('utf8').on('data', (part) => (text += part)).on('end', () => resolve(text)).on('error', reject);
  });
}

test('files of the folder are given out with their types', async () => {
  assert.match(await ask('/'), /^HTTP\/1.1 200 [^]*text\/html[^]*the page/);
  assert.match(await ask('/a%20b.svg?x=1'), /^HTTP\/1.1 200 [^]*image\/svg\+xml[^]*a picture/);
});

test('what is no address, or names no file of the folder, is answered 404, and the server goes on', async () => {
  const strange = ['/%', '/%zz', '/%ff', '/%00', '/index.html/', '/index.html/more', `/${'a'.repeat(5000)}`, '//', '//%', 'http://[', '*',
                   '/none', '/../secret', '/..%2fsecret', '/%2e%2e/secret', '/../dist-other/secret', '/..%2fdist-other/secret'];
  for (const target of strange) {
    const answer = await ask(target);
    assert.match(answer, /^HTTP\/1.1 404 /, target);
    assert.doesNotMatch(answer, /not for you|nor this/, target);
  }
  assert.match(await ask('/'), /^HTTP\/1.1 200 /);
});
