// The build's base64 loader turns a .wasm file into a string.
declare module '*.wasm' {
  const base64: string;
  export default base64;
}
