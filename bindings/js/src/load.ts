// Which engine: the native one in Node where it was built, else WebAssembly. Each is made once and shared.
import type { Engine, EngineKind } from './api/types';
import { nativeRaw } from './native-raw';
import { EngineOnRaw } from './plan';
import { loadAddon, wasmBytes } from './platform';
import { invalid } from './raw';
import { WasmRaw } from './wasm-raw';

const made: Partial<Record<EngineKind, Engine>> = {};

function engineOf(kind: EngineKind): Engine {
  return (made[kind] ??= new EngineOnRaw(
    kind === 'native' ? nativeRaw(loadAddon()) : wasmRaw(new WebAssembly.Module(wasmBytes()))));
}

function wasmRaw(module: WebAssembly.Module): WasmRaw {
  const instance = new WebAssembly.Instance(module);
  const { memory, _initialize } = instance.exports as { memory: WebAssembly.Memory; _initialize(): void };
  _initialize();
  return new WasmRaw(instance, memory);
}

// POOLGRAD_ENGINE=native|wasm chooses for 'auto', so that a program need not be changed to compare them.
function wish(): string | undefined {
  return typeof process === 'undefined' ? undefined : process.env['POOLGRAD_ENGINE'];
}

/** The engine, now. 'auto' (the default): native where there is one, else WebAssembly. */
export function loadEngineSync(kind: EngineKind | 'auto' = 'auto'): Engine {
  const wanted = kind === 'auto' ? wish() ?? 'auto' : kind;
  if (wanted === 'native' || wanted === 'wasm') return engineOf(wanted);
  if (wanted !== 'auto') throw invalid(`engine is "${wanted}"; it must be one of native, wasm, auto`);
  try {
    return engineOf('native');
  } catch {
    return engineOf('wasm');
  }
}

/** The same without blocking the page while WebAssembly compiles. */
export async function loadEngine(kind: EngineKind | 'auto' = 'auto'): Promise<Engine> {
  const wanted = kind === 'auto' ? wish() ?? 'auto' : kind;
  if (wanted !== 'native' && made.wasm === undefined && typeof document !== 'undefined') {
    const module = await WebAssembly.compile(wasmBytes());
    made.wasm ??= new EngineOnRaw(wasmRaw(module));
  }
  return loadEngineSync(kind);
}

/** An engine of one's own from a module compiled elsewhere, e.g. by WebAssembly.compileStreaming on dist/poolgrad.wasm. */
export function engineFromModule(module: WebAssembly.Module): Engine {
  return new EngineOnRaw(wasmRaw(module));
}

/** An engine over an instance that was started elsewhere, on a memory it may share with others. */
export function engineFromInstance(instance: WebAssembly.Instance, memory: WebAssembly.Memory): Engine {
  return new EngineOnRaw(new WasmRaw(instance, memory));
}
