// Runs the pooling specs that ship inside @tensorflow/tfjs-core, and prints their counts as one line of JSON.
//   node test/specs/run.mjs BACKEND ENGINE [wrong]      BACKEND: cpu or wasm; ENGINE: native or wasm; wrong: results are one off (cpu)
// Jasmine's constructor puts describe, it and expect where the specs look for them.
import { createRequire, register } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import Jasmine from 'jasmine';

const [backend, engine, wrong] = process.argv.slice(2);
const SPECS = ['max_pool', 'max_pool_with_argmax', 'max_pool_3d', 'pool', 'avg_pool', 'avg_pool_3d'];

const require = createRequire(import.meta.url);
globalThis.require = require;  // jasmine_util.js calls it from an ES module
const dist = `${pathToFileURL(path.dirname(require.resolve('@tensorflow/tfjs-core'))).href}/`;
register('./hooks.mjs', import.meta.url, { data: { dist } });

require('@tensorflow/tfjs-backend-cpu');
if (backend === 'wasm') require('@tensorflow/tfjs-backend-wasm');
const { register: takePlace, registered } = require('poolgrad/tfjs');
const used = takePlace({ engine, backends: [backend] });
if (used.kind !== engine) throw new Error(`the ${used.kind} engine came instead of the ${engine} engine`);
if (wrong) {
  const { getKernel, registerKernel, unregisterKernel } = require('@tensorflow/tfjs-core');
  for (const [backendName, kernelName] of registered().map((path) => path.split('/'))) {
    const { kernelFunc } = getKernel(kernelName, backendName);
    unregisterKernel(kernelName, backendName);
    registerKernel({ kernelName, backendName, kernelFunc: (call) => {
      const results = kernelFunc(call);
      for (const { dataId } of [results].flat()) {
        const data = call.backend.data.get(dataId);
        data.values = data.values.map((value) => value + 1);
      }
      return results;
    } });
  }
}

const jasmineRun = new Jasmine();
jasmineRun.env.configure({ random: false });
// The bare core has neither gradients nor chained ops (x.pool()); these write into the shared registries. Gradients that are
// there already are ours, and must stay.
const { getGradient, registerGradient } = require('@tensorflow/tfjs-core');
const ours = ['MaxPool', 'MaxPool3D', 'AvgPool', 'AvgPool3D'].map(getGradient).filter(Boolean);
await import(`${dist}register_all_gradients.js`);
ours.forEach(registerGradient);
await import(`${dist}public/chained_ops/register_all_chained_ops.js`);
const { setTestEnvs } = await import(`${dist}jasmine_util.js`);
setTestEnvs([{ name: backend, backendName: backend, isDataSync: true }]);
for (const spec of SPECS) await import(`${dist}ops/${spec}_test.js`);

const suites = {};
const failures = [];
jasmineRun.env.addReporter({
  specDone: ({ fullName, description, status, failedExpectations }) => {
    const suite = fullName.slice(0, -description.length).trim().split(' ')[0];
    suites[suite] ??= 0;
    if (status === 'passed') ++suites[suite];
    else failures.push(`${fullName}: ${status} ${failedExpectations.map((e) => e.message).join('; ')}`);
  },
});
await jasmineRun.env.execute();
console.log(JSON.stringify({ passed: Object.values(suites).reduce((a, b) => a + b, 0), suites, failures }));
process.exit(0);
