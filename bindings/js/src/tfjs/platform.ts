// Where the module for TensorFlow.js's heap comes from; the build puts platform-node.ts or platform-browser.ts in its place.

/** The bytes of poolgrad-heap.wasm, the caller's own to change. */
export declare function heapModuleBytes(): Uint8Array<ArrayBuffer>;
