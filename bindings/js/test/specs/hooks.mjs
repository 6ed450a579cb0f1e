// Module hooks that let Node load the specs inside @tensorflow/tfjs-core/dist as they were published: ES modules without a
// file extension in their imports and without "type": "module". What the specs call `tf` becomes the CommonJS bundle that
// backends and plug-ins require, so that all share one registry and one engine.
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

let dist;  // file URL of .../tfjs-core/dist/

export function initialize(data) {
  dist = data.dist;
}

const isBundle = (url) => url.endsWith('.node.js');

export async function resolve(specifier, context, next) {
  if (!specifier.startsWith('.') || !context.parentURL?.startsWith(dist)) return next(specifier, context);
  let url = new URL(specifier, context.parentURL).href;
  if (url === `${dist}index`) url = `${dist}tf-core.node.js`;
  else if (!url.endsWith('.js')) url = existsSync(fileURLToPath(`${url}.js`)) ? `${url}.js` : `${url}/index.js`;
  return { url, format: isBundle(url) ? 'commonjs' : 'module', shortCircuit: true };
}

export async function load(url, context, next) {
  return next(url, url.startsWith(dist) && !isBundle(url) ? { ...context, format: 'module' } : context);
}
