// examples/tfjs-train, in Node and in Chromium: our kernels are there, the losses fall, they are those of the stock kernels, and
// the page's are those of Node, bit for bit.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { outcomeOf } from './chromium.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
const example = path.resolve(root, '../../examples/tfjs-train');

// In place of "npm install" there: the same packages, which are here already.
const modules = path.join(example, 'node_modules');
if (!existsSync(modules)) {
  mkdirSync(modules);
  symlinkSync(path.relative(modules, root), path.join(modules, 'poolgrad'));
  for (const name of ['@tensorflow', 'esbuild']) {
    symlinkSync(path.relative(modules, path.join(root, 'node_modules', name)), path.join(modules, name));
  }
}

function check({ before, after, same, registered }) {
  assert.ok(same, 'the losses before and after differ');
  assert.deepEqual(after.losses, before.losses);
  assert.ok(after.losses.length >= 10);
  assert.ok(after.losses.at(-1) < 0.5 * after.losses[0], `the loss went from ${after.losses[0]} to ${after.losses.at(-1)}`);
  assert.ok(registered.includes('cpu/MaxPool') && registered.includes('cpu/MaxPoolGrad'));
  assert.ok(after.poolingMilliseconds < before.poolingMilliseconds);
}

const inNode = JSON.parse(execFileSync(process.execPath, ['train.mjs', '--json'],
                                       { cwd: example, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }));

test('in Node', () => check(inNode));

test('in a page', async () => {
  const server = spawn(process.execPath, ['serve.mjs', '0'], { cwd: example, stdio: ['ignore', 'pipe', 'inherit'] });
  try {
    const url = await new Promise((resolve, reject) => {
      server.stdout.once('data', (data) => resolve(String(data).trim()));
      server.once('exit', () => reject(new Error('serve.mjs ended before it listened')));
    });
    const { outcome, text } = await outcomeOf(url);
    check(outcome);
    assert.deepEqual(outcome.after.losses, inNode.after.losses);
    assert.match(text, /Every loss is the same to the bit\./);
  } finally {
    server.kill();
  }
});
