// Stands in for bindings/js/src/platform.ts in this page's build (build.mjs): the page brings the module's bytes
// itself, compressed (engine.ts), and a browser has no addon.

export function wasmBytes(): never {
  throw new Error('This page starts the engine from its own copy of the module; see engine.ts.');
}

export function loadAddon(): never {
  throw new Error('The native engine runs in Node only.');
}
