// Where a backend keeps its tensors. A kernel says what it reads and what it makes; the host lends it typed arrays of both.
import type { TensorInfo } from '@tensorflow/tfjs-core';

export type Array1 = Float32Array | Int32Array | Uint8Array;
export type TensorType = 'float32' | 'int32' | 'bool';
export interface Wanted { shape: number[]; dtype: TensorType }

/** Gives the array of a tensor. It is good until something is allocated: what makes a plan, or pools into arrays of its own, may grow the heap
 * that the tensors lie in, which detaches every array taken before. */
export type Lent = () => Array1;

export interface Host {
  /** Makes the outputs, then calls `run` with the arrays of everything, each to be asked for where it is used. */
  compute(inputs: TensorInfo[], outputs: Wanted[], run: (inputs: Lent[], outputs: Lent[]) => void): TensorInfo[];
  /** The same data under the same shape: a copy that costs nothing. */
  share(x: TensorInfo): TensorInfo;
}

const ARRAYS = { float32: Float32Array, int32: Int32Array, bool: Uint8Array };

export function elements(shape: readonly number[]): number {
  return shape.reduce((product, size) => product * size, 1);
}

/** What the kernels use of TensorFlow.js's cpu backend. */
export interface CpuBackend {
  readSync(dataId: object): Array1;
  makeTensorInfo(shape: number[], dtype: string, values: Array1): TensorInfo;
  incRef(dataId: object): void;
}

export function cpuHost(backend: CpuBackend): Host {
  // A cast that loses nothing, as of int32 to float32, leaves the values in the array they had.
  const read = ({ dataId, dtype }: TensorInfo): Array1 => {
    const values = backend.readSync(dataId);
    const wanted = ARRAYS[dtype as TensorType];
    return values instanceof wanted ? values : wanted.from(values);
  };
  return {
    compute(inputs, outputs, run) {
      const made = outputs.map(({ shape, dtype }) => new ARRAYS[dtype](elements(shape)));
      run(inputs.map((x) => () => read(x)), made.map((array) => () => array));
      return outputs.map(({ shape, dtype }, i) => backend.makeTensorInfo(shape, dtype, made[i] as Array1));
    },
    share(x) {
      backend.incRef(x.dataId);
      return { dataId: x.dataId, shape: x.shape, dtype: x.dtype };
    },
  };
}

/** What the kernels use of TensorFlow.js's wasm backend. */
export interface WasmBackend {
  typedArrayFromHeap(x: TensorInfo): Array1;
  makeOutput(shape: number[], dtype: string): TensorInfo;
  incRef(dataId: object): void;
  wasm: {
    asm?: { memory?: WebAssembly.Memory };
    _malloc(bytes: number): number;
    _free(address: number): void;
  };
}

export function wasmHost(backend: WasmBackend): Host {
  return {
    compute(inputs, outputs, run) {
      const made = outputs.map(({ shape, dtype }) => backend.makeOutput(shape, dtype));
      const view = (x: TensorInfo): Lent => () => backend.typedArrayFromHeap(x);
      run(inputs.map(view), made.map(view));
      return made;
    },
    share(x) {
      backend.incRef(x.dataId);
      return { dataId: x.dataId, shape: x.shape, dtype: x.dtype };
    },
  };
}
