// What differs between Node and a browser: where the module's bytes come from, and whether there is an addon. The build puts
// platform-node.ts or platform-browser.ts in this file's place; both keep to this interface.
import type { Addon } from './native-raw';

/** The bytes of poolgrad.wasm. */
export declare function wasmBytes(): Uint8Array<ArrayBuffer>;
/** The addon; throws a full sentence where there is none. */
export declare function loadAddon(): Addon;
