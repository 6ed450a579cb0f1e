// Builds the page as one file that needs nothing else: scripts, styles, fonts and the WebAssembly module are inside it, so it
// works from any static server and from a file. Assumes bindings/js/dist/poolgrad.wasm was built (build.sh does it).
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { defineConfig, type Plugin } from 'vite';

const WASM_FILE = fileURLToPath(new URL('../bindings/js/dist/poolgrad.wasm', import.meta.url));
const WASM_MODULE = 'virtual:poolgrad-wasm';

function packedWasm(): Plugin {
  return {
    name: 'packed-wasm',
    resolveId: (id) => (id === WASM_MODULE ? `\0${WASM_MODULE}` : null),
    load(id) {
      if (id !== `\0${WASM_MODULE}`) return null;
      this.addWatchFile(WASM_FILE);
      return `export default ${JSON.stringify(gzipSync(readFileSync(WASM_FILE), { level: 9 }).toString('base64'))};`;
    },
  };
}

/** The package leaves open where the module's bytes come from; here that is the page's own file. */
function ownPlatform(): Plugin {
  return {
    name: 'own-platform',
    enforce: 'pre',
    resolveId: (id, importer) =>
      id === './platform' && importer?.includes('/bindings/js/src/')
        ? fileURLToPath(new URL('src/platform.ts', import.meta.url))
        : null,
  };
}

/** The fonts our formulas use; KaTeX's style sheet names twenty in three formats. */
const FONTS = ['Main-Regular', 'Math-Italic', 'Size1-Regular', 'Size2-Regular', 'Size3-Regular', 'Size4-Regular'];

function onlyUsedFonts(): Plugin {
  return {
    name: 'only-used-fonts',
    enforce: 'pre',
    transform(code, id) {
      if (!id.includes('katex') || !id.split('?')[0]!.endsWith('.css')) return null;
      return code.replace(/@font-face\s*{[^}]*}/g, (rule) => {
        const file = /fonts\/KaTeX_([\w-]+)\.woff2/.exec(rule)?.[1];
        if (!file || !FONTS.includes(file)) return '';
        return rule.replace(/src:[^;}]*/, `src:url(fonts/KaTeX_${file}.woff2) format("woff2")`);
      });
    },
  };
}

/** Moves every script and style into index.html. */
function singleFile(): Plugin {
  return {
    name: 'single-file',
    enforce: 'post',
    generateBundle(_, bundle) {
      const page = bundle['index.html'];
      if (page?.type !== 'asset') throw new Error('The build made no index.html.');
      let text = String(page.source);
      for (const [name, part] of Object.entries(bundle)) {
        if (part.type === 'chunk') {
          const script = part.code.replaceAll('</script', '<\\/script');
          text = text.replace(new RegExp(`<script[^>]*src="[^"]*${part.fileName}"[^>]*></script>`), '');
          text = text.replace('</body>', () => `<script type="module">${script}</script>\n</body>`);
        } else if (name.endsWith('.css')) {
          const link = new RegExp(`<link[^>]*href="[^"]*${part.fileName}"[^>]*>`);
          text = text.replace(link, () => `<style>${String(part.source)}</style>`);
        } else {
          continue;
        }
        delete bundle[name];
      }
      page.source = text;
      const left = Object.keys(bundle).filter((name) => name !== 'index.html');
      if (left.length) throw new Error(`The page must be one file, but the build also made ${left.join(', ')}.`);
    },
  };
}

export default defineConfig({
  base: './',
  build: { target: 'es2022', assetsInlineLimit: 1 << 20, cssCodeSplit: false, modulePreload: false, reportCompressedSize: false },
  plugins: [packedWasm(), ownPlatform(), onlyUsedFonts(), singleFile()],
});
