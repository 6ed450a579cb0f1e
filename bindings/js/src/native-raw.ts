// The native engine: Node's addon (native/addon.cc) is the C ABI on typed arrays in place, with all of the machine's threads.
import { PoolgradError, type Raw } from './raw';

export interface Addon {
  /** The engine's functions; each throws new PoolgradError(status, sentence) when the core refuses. */
  open(error: typeof PoolgradError): Omit<Raw, 'kind' | 'memoryBytes'>;
}

export function nativeRaw(addon: Addon): Raw {
  return { ...addon.open(PoolgradError), kind: 'native', memoryBytes: () => 0 };
}
