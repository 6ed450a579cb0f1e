// import 'poolgrad/tfjs': poolgrad's kernels take the place of TensorFlow.js's own on its cpu backend. register() again to
// choose the engine or to take the wasm backend too; unregister() puts the stock kernels and gradients back.
//
// TensorFlow.js keeps one registry per process or page, however often its modules are loaded; so is what we must put back.
import {
  getGradient, getKernel, registerGradient, registerKernel, unregisterGradient, unregisterKernel, type GradConfig,
  type KernelConfig,
} from '@tensorflow/tfjs-core';
import '@tensorflow/tfjs-backend-cpu';
import { loadEngineSync, type Engine, type EngineKind } from 'poolgrad';
import { GRADIENTS } from './gradients';
import { engineInHeap } from './heap';
import { cpuHost, wasmHost, type CpuBackend, type WasmBackend } from './hosts';
import { KERNELS, kernelFunc } from './kernels';

export { fuseReluMaxPool, type FuseOptions, type FusedPair, type FusableModel } from './fuse';
export { reluMaxPool, reluMaxPool3d, type DimRoundingMode, type Pad } from './relu';

export type BackendName = 'cpu' | 'wasm';

export interface RegisterOptions {
  /** Which engine computes; 'auto' (the default) is native where it was built. */
  engine?: EngineKind | 'auto';
  /** Which backends of TensorFlow.js to serve: ['cpu'] by default. 'wasm' needs @tensorflow/tfjs-backend-wasm imported. */
  backends?: readonly BackendName[];
}

interface Replaced {
  kernels: { name: string; backend: BackendName; stock: KernelConfig | undefined }[];
  gradients: { name: string; stock: GradConfig | undefined }[];
}

const SHARED = Symbol.for('poolgrad.tfjs.replaced');
const shared = globalThis as { [SHARED]?: Replaced };

// The native engine reads TensorFlow.js's heap as it is; the WebAssembly engine has to live in it.
function engineFor(backend: WasmBackend, engine: Engine): Engine {
  return engine.kind === 'native' ? engine : engineInHeap(backend) ?? engine;
}

function replaceKernel(name: string, backend: BackendName, engine: Engine, replaced: Replaced): void {
  const stock = getKernel(name, backend) as KernelConfig | undefined;
  if (stock !== undefined) unregisterKernel(name, backend);
  replaced.kernels.push({ name, backend, stock });
  const func = backend === 'cpu'
    ? kernelFunc(name, () => engine, (b) => cpuHost(b as CpuBackend))
    : kernelFunc(name, (b) => engineFor(b as WasmBackend, engine), (b) => wasmHost(b as WasmBackend));
  registerKernel({
    kernelName: name, backendName: backend, kernelFunc: func,
    // The stock kernel is set up when the backend starts, so that it works when it is put back.
    setupFunc: stock?.setupFunc, disposeFunc: stock?.disposeFunc,
  });
}

function replaceGradient(config: GradConfig, replaced: Replaced): void {
  const stock = getGradient(config.kernelName) as GradConfig | undefined;
  if (stock !== undefined) unregisterGradient(config.kernelName);
  replaced.gradients.push({ name: config.kernelName, stock });
  registerGradient(config);
}

const OPTIONS: readonly (keyof RegisterOptions)[] = ['engine', 'backends'];

/** What to serve; whatever is wrong with the options is said before anything is replaced. */
function backendsOf(options: RegisterOptions): readonly BackendName[] {
  if (typeof options !== 'object' || options === null) {
    throw new Error(`register was given ${JSON.stringify(options)}; it takes an object with ${OPTIONS.join(' and ')}`);
  }
  for (const name of Object.keys(options)) {
    if (!(OPTIONS as readonly string[]).includes(name)) {
      throw new Error(`register was given the option "${name}"; it takes ${OPTIONS.join(' and ')}`);
    }
  }
  const backends = options.backends ?? ['cpu'];
  if (!Array.isArray(backends)) {
    throw new Error(`backends is ${JSON.stringify(backends)}; it must be a list of cpu and wasm`);
  }
  for (const backend of backends) {
    if (backend !== 'cpu' && backend !== 'wasm') {
      throw new Error(`backends holds ${JSON.stringify(backend)}; poolgrad serves cpu and wasm`);
    }
    if (getKernel('Identity', backend) == null) {
      throw new Error(`the ${backend} backend of TensorFlow.js is not loaded; import @tensorflow/tfjs-backend-${backend} first`);
    }
  }
  return [...new Set(backends)];
}

/** Takes the place of the stock pooling kernels and gradients. Called by the import itself, with no options. */
export function register(options: RegisterOptions = {}): Engine {
  const backends = backendsOf(options);
  const engine = loadEngineSync(options.engine);
  unregister();
  const replaced: Replaced = { kernels: [], gradients: [] };
  for (const backend of backends) {
    for (const name of KERNELS) replaceKernel(name, backend, engine, replaced);
  }
  for (const config of GRADIENTS) replaceGradient(config, replaced);
  shared[SHARED] = replaced;
  return engine;
}

/** Puts back what register() replaced. Does nothing when nothing is registered. */
export function unregister(): void {
  const replaced = shared[SHARED];
  if (replaced === undefined) return;
  for (const { name, backend, stock } of replaced.kernels) {
    unregisterKernel(name, backend);
    if (stock !== undefined) registerKernel(stock);
  }
  for (const { name, stock } of replaced.gradients) {
    unregisterGradient(name);
    if (stock !== undefined) registerGradient(stock);
  }
  delete shared[SHARED];
}

/** The kernels now served by poolgrad, as "backend/name". */
export function registered(): string[] {
  return (shared[SHARED]?.kernels ?? []).map(({ name, backend }) => `${backend}/${name}`);
}

register();
