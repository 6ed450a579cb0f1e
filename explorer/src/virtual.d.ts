// Made by build.mjs at build time.
declare module 'virtual:poolgrad-wasm' {
  /** poolgrad.wasm, gzipped, as base64. */
  const packed: string;
  export default packed;
}
