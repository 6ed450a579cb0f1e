// Builds dist/: for Node one CommonJS bundle per entry and an ES module that passes its exports on (so that import and require
// give the same engine), for browsers one ES module per entry with the WebAssembly inside it, and the types. Also brings the
// project's licence here, because a package holds only what is in its own folder.
// Assumes the modules are in dist/ already (build-wasm.sh).
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as esbuild from 'esbuild';

process.chdir(fileURLToPath(new URL('.', import.meta.url)));
const require = createRequire(import.meta.url);

const entries = { index: 'src/index.ts', tfjs: 'src/tfjs/index.ts' };

// './platform' means this platform's file in the same folder.
const platform = (name) => ({
  name: 'platform',
  setup: (build) => build.onResolve({ filter: /^\.\/platform$/ }, ({ resolveDir }) => (
    { path: join(resolveDir, `platform-${name}.ts`) })),
});

// The TensorFlow.js layer takes the engine from the package itself, so that both entries share one.
const common = {
  entryPoints: entries, bundle: true, target: 'es2022', external: ['poolgrad', '@tensorflow/*'], legalComments: 'none',
};

for (const folder of ['node', 'browser', 'types']) rmSync(`dist/${folder}`, { recursive: true, force: true });
mkdirSync('dist/node', { recursive: true });
copyFileSync('../../LICENSE', 'LICENSE');

await esbuild.build({
  ...common, platform: 'node', format: 'cjs', outdir: 'dist/node', outExtension: { '.js': '.cjs' },
  plugins: [platform('node')],
});
await esbuild.build({
  ...common, platform: 'browser', format: 'esm', outdir: 'dist/browser', outExtension: { '.js': '.mjs' },
  plugins: [platform('browser')], loader: { '.wasm': 'base64' },
});

// esbuild knows what each entry exports; the ES modules for Node name exactly that.
const { metafile } = await esbuild.build({
  ...common, platform: 'node', format: 'esm', outdir: 'dist/node', write: false, metafile: true,
  plugins: [platform('node')],
});
for (const [file, output] of Object.entries(metafile.outputs)) {
  const name = file.replace(/^.*\/|\.js$/g, '');
  writeFileSync(`dist/node/${name}.mjs`,
                `import all from './${name}.cjs';\nexport const { ${output.exports.join(', ')} } = all;\n`);
}

// A configuration of its own: in tsconfig.json its paths would lead every bundler that meets the package into src/.
const tsc = spawnSync(process.execPath, [require.resolve('typescript/bin/tsc'), '-p', 'tsconfig.types.json'], { stdio: 'inherit' });
process.exit(tsc.status ?? 1);
