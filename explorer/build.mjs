// Builds dist/index.html, one file that needs nothing else: script, style, fonts and the WebAssembly module are inside it, so it
// works from any static server and from a file. Assumes bindings/js/dist/poolgrad.wasm was built (build.sh does it).
//
// `bundle` is also how the tests run the page's modules in Node.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import * as esbuild from 'esbuild';

const here = (path) => fileURLToPath(new URL(path, import.meta.url));

/** The module's bytes as text for the page: gzipped, in base64. */
const packedWasm = {
  name: 'packed-wasm',
  setup(build) {
    build.onResolve({ filter: /^virtual:poolgrad-wasm$/ }, () => ({ path: here('../bindings/js/dist/poolgrad.wasm'), namespace: 'packed' }));
    build.onLoad({ filter: /./, namespace: 'packed' }, ({ path }) => (
      { contents: gzipSync(readFileSync(path), { level: 9 }).toString('base64'), loader: 'text' }));
  },
};

/** The package leaves open where the module's bytes come from; here that is the page's own file. */
const ownPlatform = {
  name: 'own-platform',
  setup: (build) => build.onResolve({ filter: /^\.\/platform$/ }, ({ resolveDir }) => (
    resolveDir === here('../bindings/js/src') ? { path: here('src/platform.ts') } : null)),
};

/** The fonts our formulas use; KaTeX's style sheet names twenty in three formats. */
const FONTS = ['Main-Regular', 'Math-Italic', 'Size1-Regular', 'Size2-Regular', 'Size3-Regular', 'Size4-Regular'];

const onlyUsedFonts = {
  name: 'only-used-fonts',
  setup: (build) => build.onLoad({ filter: /katex(\.min)?\.css$/ }, ({ path }) => {
    const contents = readFileSync(path, 'utf8').replace(/@font-face\s*{[^}]*}/g, (rule) => {
      const file = /fonts\/KaTeX_([\w-]+)\.woff2/.exec(rule)?.[1];
      if (!FONTS.includes(file)) return '';
      return rule.replace(/src:[^;}]*/, `src:url(fonts/KaTeX_${file}.woff2) format("woff2")`);
    });
    return { contents, loader: 'css' };
  }),
};

/** One module of the page with all it imports: its script, and its style where it has one. */
export async function bundle(entry, options = {}) {
  const { outputFiles } = await esbuild.build({
    entryPoints: [here(entry)], bundle: true, write: false, outdir: here('dist'), format: 'esm', target: 'es2022', charset: 'utf8',
    legalComments: 'none', logLevel: 'warning', loader: { '.woff2': 'dataurl' }, plugins: [packedWasm, ownPlatform, onlyUsedFonts],
    ...options,
  });
  const text = (end) => outputFiles.find(({ path }) => path.endsWith(end))?.text ?? '';
  return { script: text('.js'), style: text('.css') };
}

function replaceOnce(text, part, by) {
  if (text.split(part).length !== 2) throw new Error(`index.html must hold ${part} once.`);
  return text.replace(part, () => by);
}

async function buildPage() {
  const { script, style } = await bundle('src/main.ts', { minify: true });
  let page = readFileSync(here('index.html'), 'utf8');
  page = replaceOnce(page, '</head>', `<style>${style.trim()}</style>\n</head>`);
  page = replaceOnce(page, '<script type="module" src="/src/main.ts"></script>',
                     `<script type="module">${script.trim().replaceAll('</script', '<\\/script')}</script>`);
  mkdirSync(here('dist'), { recursive: true });
  writeFileSync(here('dist/index.html'), page);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await buildPage();
