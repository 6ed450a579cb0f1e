// The native engine: Node's addon (native/addon.cc) is the C ABI on typed arrays in place, with all of the machine's threads.
import { PoolgradError, type Raw } from './raw';

export interface Addon {
  /** The engine's functions; each throws new PoolgradError(status, sentence) when the core refuses. */
  open(error: typeof PoolgradError): Omit<Raw, 'kind' | 'memoryBytes'>;
}

type Run = (...given: unknown[]) => void;

/** Which arguments each operation writes. */
const WRITTEN: Partial<Record<keyof Raw, readonly number[]>> = {
  forward: [2, 3], backward: [3], backwardX: [3], gather: [3], unpool: [3], jacobian: [2, 3, 4], routesToIndices: [3], routesFromIndices: [3],
  unpoolIndices: [5],
};

function isShared(value: unknown): value is Uint8Array {
  return ArrayBuffer.isView(value) && !(value.buffer instanceof ArrayBuffer);
}

// Not the array's own method: a Buffer's gives a view.
const { slice } = Uint8Array.prototype;

/** `run` with copies in place of arrays in shared memory, which Node's addons cannot reach. */
function throughCopies(run: Run, written: readonly number[]): Run {
  return (...given) => {
    if (!given.some(isShared)) return run(...given);
    const copies = given.map((value) => (isShared(value) ? slice.call(value) : value));
    run(...copies);
    for (const at of written) {
      const to = given[at];
      if (isShared(to)) to.set(copies[at] as Uint8Array);
    }
  };
}

export function nativeRaw(addon: Addon): Raw {
  const raw: Raw = { ...addon.open(PoolgradError), kind: 'native', memoryBytes: () => 0 };
  const functions = raw as unknown as Record<string, Run>;
  for (const [name, written] of Object.entries(WRITTEN)) functions[name] = throughCopies(functions[name] as Run, written);
  return raw;
}
