// The worked example of docs/derivation.md by an installed npm package: by import and by require, with every engine it holds.
import { createRequire } from 'node:module';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import * as imported from 'poolgrad';

const require = createRequire(import.meta.url);
const folder = path.dirname(require.resolve('poolgrad/package.json'));
const { license, version } = JSON.parse(readFileSync(path.join(folder, 'package.json'), 'utf8'));
if (license !== 'MIT') throw new Error(`package.json says licence ${license}; LICENSE is MIT`);
if (!existsSync(path.join(folder, 'README.md'))) throw new Error('the tarball has no README.md');

const addon = existsSync(path.join(folder, 'prebuilds', `${process.platform}-${process.arch}`, 'poolgrad.node'));
for (const kind of addon ? ['wasm', 'native'] : ['wasm']) {
  for (const { loadEngineSync } of [imported, require('poolgrad')]) {
    const plan = loadEngineSync(kind).plan('max f32 nchw 1x1x3x3 k2 s1');
    const { y, routes } = plan.forward([1, 2, 3, 4, 5, 6, 7, 8, 9]);
    const dx = plan.backward([1, 10, 100, 1000], routes);
    if (String(y) !== '5,6,8,9' || String(dx) !== '0,0,0,0,1,10,0,100,1000') throw new Error(`${kind}: y ${y}, dx ${dx}`);
  }
  console.log(`poolgrad ${version}, ${kind}: right`);
}
