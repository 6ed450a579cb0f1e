// The package as a user meets it: packed, installed into an empty project from the tarball, imported, required, type-checked.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { engineKinds, hasNative } from './common.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
const project = mkdtempSync(path.join(tmpdir(), 'poolgrad-'));
const run = (command, args, options = {}) =>
  execFileSync(command, args, { cwd: project, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'], ...options });
const node = (source, file, env = {}) => {
  writeFileSync(path.join(project, file), source);
  return run(process.execPath, [file], { env: { ...process.env, ...env } }).trim();
};
let packed, unpackedSize;

before(() => {
  const [{ filename, files, unpackedSize: bytes }] = JSON.parse(run('npm', ['pack', '--json', '--ignore-scripts', '--pack-destination', project], { cwd: root }));
  packed = files.map((f) => f.path);
  unpackedSize = bytes;
  writeFileSync(path.join(project, 'package.json'), JSON.stringify({ name: 'empty', private: true }));
  const tfjs = ['tfjs', 'tfjs-core', 'tfjs-backend-cpu', 'tfjs-backend-wasm'].map((name) => `@tensorflow/${name}@4.22.0`);
  run('npm', ['install', '--ignore-scripts', '--prefer-offline', '--no-audit', '--no-fund', `./${filename}`, ...tfjs]);
});
after(() => rmSync(project, { recursive: true, force: true }));

test('the tarball holds what is needed and nothing else', () => {
  const wanted = ['README.md', 'LICENSE', 'package.json', 'dist/poolgrad.wasm', 'dist/poolgrad-heap.wasm', 'dist/node/index.cjs', 'dist/node/index.mjs',
                  'dist/node/tfjs.cjs', 'dist/node/tfjs.mjs', 'dist/browser/index.mjs', 'dist/browser/tfjs.mjs',
                  'dist/types/index.d.ts', 'dist/types/tfjs/index.d.ts'];
  for (const file of wanted) assert.ok(packed.includes(file), `${file} is missing`);
  assert.deepEqual(packed.filter((f) => !/^(dist|prebuilds)\/|^(README\.md|LICENSE|package\.json)$/.test(f)), []);
});

test('its licence is the project\'s', () => {
  const installed = path.join(project, 'node_modules', 'poolgrad');
  assert.equal(readFileSync(path.join(installed, 'LICENSE'), 'utf8'), readFileSync(path.join(root, '..', '..', 'LICENSE'), 'utf8'));
  const { license } = JSON.parse(readFileSync(path.join(installed, 'package.json'), 'utf8'));
  assert.ok(readFileSync(path.join(installed, 'LICENSE'), 'utf8').startsWith(`${license} License`), license);
});

// Reported, not asserted: most of it is the native engine, which is as large as the compiler and the targets make it.
test('how large it is unpacked', (t) => {
  t.diagnostic(`${(unpackedSize / 1e6).toFixed(1)} MB (wanted: 8)`);
  assert.ok(unpackedSize > 0);
});

test('the WebAssembly modules stay under 300 kB', () => {
  for (const name of ['poolgrad.wasm', 'poolgrad-heap.wasm']) {
    assert.ok(statSync(path.join(root, 'dist', name)).size < 300000, name);
  }
});

test('it works there by import and by require, with every engine', () => {
  for (const kind of engineKinds) {
    const use = `console.log(JSON.stringify([...poolgrad.maxPool('max f32 nchw 1x1x3x3 k2 s1', [1,2,3,4,5,6,7,8,9]).y, poolgrad.loadEngineSync().kind]));`;
    const env = { POOLGRAD_ENGINE: kind };
    assert.equal(node(`import * as poolgrad from 'poolgrad';\n${use}`, 'use.mjs', env), `[5,6,8,9,"${kind}"]`);
    assert.equal(node(`const poolgrad = require('poolgrad');\n${use}`, 'use.cjs', env), `[5,6,8,9,"${kind}"]`);
  }
});

test('poolgrad/tfjs works there by import and by require', () => {
  const use = `
    const x = tf.tensor4d([1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 3, 3, 1]);
    const [dx] = tf.grads((t) => tf.maxPool(t, 2, 1, 'valid'))([x]);
    console.log(JSON.stringify([...dx.dataSync()]));`;
  const want = '[0,0,0,0,1,1,0,1,1]';
  assert.equal(node(`import * as tf from '@tensorflow/tfjs-core';\nimport 'poolgrad/tfjs';\n${use}`, 'tf.mjs'), want);
  assert.equal(node(`const tf = require('@tensorflow/tfjs-core');\nrequire('poolgrad/tfjs');\n${use}`, 'tf.cjs'), want);
});

test('without the addon it falls back to WebAssembly, and says why when asked for native', { skip: !hasNative }, () => {
  const prebuilds = path.join(project, 'node_modules', 'poolgrad', 'prebuilds');
  run('mv', [prebuilds, `${prebuilds}.away`]);
  try {
    const source = `import { loadEngineSync } from 'poolgrad';
      console.log(loadEngineSync().kind);
      try { loadEngineSync('native'); } catch (error) { console.log(error.message); }`;
    const [kind, message] = node(source, 'fallback.mjs').split('\n');
    assert.equal(kind, 'wasm');
    assert.match(message, /^the native engine was not built for /);
  } finally {
    run('mv', [`${prebuilds}.away`, prebuilds]);
  }
});

// `node10` is what older projects have; it knows no exports, only main, types and typesVersions.
const RESOLUTIONS = [['node16', 'node16'], ['esnext', 'bundler'], ['esnext', 'node10']];

function typeCheck(files, ...flags) {
  const tsc = path.join(root, 'node_modules', 'typescript', 'bin', 'tsc');
  for (const [module, resolution] of RESOLUTIONS) {
    const args = ['--noEmit', '--strict', '--target', 'es2022', '--module', module, '--moduleResolution', resolution, ...flags, ...files];
    try {
      run(process.execPath, [tsc, ...args]);
    } catch (error) {
      assert.fail(`tsc ${args.join(' ')}\n${error.stdout}`);
    }
  }
}

test('its types are checked under every module resolution', () => {
  writeFileSync(path.join(project, 'types.ts'), `
    import { loadEngineSync, maxPool, PoolgradError, type Engine, type Plan } from 'poolgrad';
    const engine: Engine = loadEngineSync('wasm');
    const plan: Plan = engine.plan({ shape: [1, 1, 3, 3], kernel: 2, ties: 'split', padding: [[0, 1], [1, 0]] });
    engine.plan({ shape: [1, 1, 7, 7], adaptive: [3, 2], relu: true });
    engine.plan({ shape: [1, 1, 7, 7], kernel: [0, 2], starts: [[0, 3], null], sizes: [[3, 4], null] });
    export const taps: number = plan.info.taps;
    export const y: ArrayLike<number> = maxPool('max f32 nchw 1x1x3x3 k2', [1]).y;
    const forward = plan.forward([1]);
    plan.unpool(forward.y, forward.routes);
    // @ts-expect-error: average pooling has none
    export const bytes: number = forward.routes.length;
    // @ts-expect-error: there is no such rule
    engine.plan({ shape: [1, 1, 3, 3], kernel: 2, ties: 'both' });
    export const code: string = new PoolgradError('INVALID_ARGUMENT', '').code;
  `);
  // Ours alone: checking what the language and TensorFlow.js bring takes six times as long. (`none` is no folder.)
  typeCheck(['types.ts'], '--skipDefaultLibCheck', '--typeRoots', 'none');
});

test('the programs of the README run, and pass the type checker as they are; so do the types of poolgrad/tfjs', () => {
  const readme = readFileSync(path.join(project, 'node_modules', 'poolgrad', 'README.md'), 'utf8');
  const programs = [...readme.matchAll(/```js\n([^]*?)```/g)].map(([, program]) => program);
  assert.equal(programs.length, 4);
  const files = programs.map((program, at) => {
    node(program, `readme-${at}.mjs`);
    writeFileSync(path.join(project, `readme-${at}.ts`), program);
    return `readme-${at}.ts`;
  });
  writeFileSync(path.join(project, 'layer.ts'), `
    import * as tf from '@tensorflow/tfjs';
    import { fuseReluMaxPool, register, registered, reluMaxPool, reluMaxPool3d, unregister, type FusedPair, type RegisterOptions } from 'poolgrad/tfjs';
    export const image: tf.Tensor3D = reluMaxPool(tf.zeros([4, 4, 1]) as tf.Tensor3D, [2, 2], 2, 'same');
    export const volume: tf.Tensor5D = reluMaxPool3d(tf.zeros([1, 4, 4, 4, 1]) as tf.Tensor5D, 2, 2, 0, 'ceil', 'NDHWC');
    export const pairs: FusedPair[] = fuseReluMaxPool(tf.sequential(), { back: true });
    export const more: FusedPair[] = fuseReluMaxPool(tf.model({ inputs: [], outputs: [] }));
    // @ts-expect-error: a tensor is no model
    fuseReluMaxPool(tf.zeros([1]));
    const options: RegisterOptions = { engine: 'wasm', backends: ['cpu'] };
    export const kind: 'native' | 'wasm' = register(options).kind;
    export const names: string[] = registered();
    // @ts-expect-error: it is called backends
    register({ backend: 'wasm' });
    unregister();
  `);
  typeCheck(['layer.ts', ...files], '--skipLibCheck');  // the types of TensorFlow.js do not pass
});

// The least of several runs: what the package costs, not what else the machine was doing. Reported, never asserted: a busy
// machine is not a fault of the package. (Wanted: less than 150 ms.)
function leastMilliseconds(source, env) {
  const runs = Array.from({ length: 3 }, () => Number(node(source, 'time.mjs', env)));
  return Math.min(...runs);
}

for (const kind of engineKinds) {
  test(`from import to the first result (${kind}): works in a fresh process, and how long it takes`, (t) => {
    const bare = leastMilliseconds(`
      const start = performance.now();
      const { maxPool } = await import('poolgrad');
      const { y } = maxPool('max f32 nchw 1x1x3x3 k2 s1', [1, 2, 3, 4, 5, 6, 7, 8, 9]);
      console.log(String(y) === '5,6,8,9' ? performance.now() - start : NaN);`, { POOLGRAD_ENGINE: kind });
    const layer = leastMilliseconds(`
      const tf = await import('@tensorflow/tfjs-core');
      await import('@tensorflow/tfjs-backend-cpu');
      const x = tf.ones([1, 3, 3, 1]);
      const start = performance.now();
      await import('poolgrad/tfjs');
      const y = tf.maxPool(x, 2, 1, 'valid').dataSync();
      console.log(String(y) === '1,1,1,1' ? performance.now() - start : NaN);`, { POOLGRAD_ENGINE: kind });
    t.diagnostic(`poolgrad ${bare.toFixed(0)} ms, poolgrad/tfjs ${layer.toFixed(0)} ms`);
    assert.ok(bare > 0 && layer > 0, 'the results were wrong');
  });
}
