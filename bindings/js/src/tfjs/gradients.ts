// The gradients of the pooling kernels. Those that TensorFlow.js has are registered again, because its own drop
// dimRoundingMode; those that it lacks close the circle: the gradient of a pool's gradient is a gather, whose gradient is the
// pool's gradient again, so derivatives of any order exist.
import { engine, zeros, zerosLike, type GradConfig, type NamedAttrMap, type NamedTensorMap, type Tensor } from '@tensorflow/tfjs-core';
import { AVERAGE_TRANSPOSE, GATHER, RELU_MAX_POOL, RELU_MAX_POOL_GATHER, RELU_MAX_POOL_GRAD } from './kernels';

function run(kernel: string, inputs: NamedTensorMap, attrs: NamedAttrMap): Tensor {
  return engine().runKernel(kernel, inputs, attrs) as Tensor;
}

function maxPool(kernelName: string, gradKernel: string): GradConfig {
  return {
    kernelName, inputsToSave: ['x'], outputsToSave: [true],
    gradFunc: (dy, saved, attrs) => {
      const [input, output] = saved as [Tensor, Tensor];
      return { x: () => run(gradKernel, { dy: dy as Tensor, input, output }, attrs) };
    },
  };
}

// The indexes are whole numbers: only the pooled values carry a gradient.
function maxPoolWithArgmax(): GradConfig {
  return {
    kernelName: 'MaxPoolWithArgmax', inputsToSave: ['x'], outputsToSave: [true, false],
    gradFunc: (dy, saved, attrs) => {
      const [input, output] = saved as [Tensor, Tensor];
      return { x: () => run('MaxPoolGrad', { dy: (dy as Tensor[])[0] as Tensor, input, output }, attrs) };
    },
  };
}

// dx is linear in dy, and does not change with small changes of the input that leave the winners alone.
function maxPoolGrad(kernelName: string): GradConfig {
  return {
    kernelName, inputsToSave: ['input', 'output'],
    gradFunc: (ddx, saved, attrs) => {
      const [input, output] = saved as [Tensor, Tensor];
      return {
        dy: () => run(GATHER, { tx: ddx as Tensor, input, output }, attrs),
        input: () => zerosLike(input),
        output: () => zerosLike(output),
      };
    },
  };
}

function gather(): GradConfig {
  return {
    kernelName: GATHER, inputsToSave: ['input', 'output'],
    gradFunc: (dty, saved, attrs) => {
      const [input, output] = saved as [Tensor, Tensor];
      const gradKernel = input.rank === 5 ? 'MaxPool3DGrad' : 'MaxPoolGrad';
      return {
        tx: () => run(gradKernel, { dy: dty as Tensor, input, output }, attrs),
        input: () => zerosLike(input),
        output: () => zerosLike(output),
      };
    },
  };
}

function avgPool(kernelName: string, gradKernel: string): GradConfig {
  return {
    kernelName, inputsToSave: ['x'],
    gradFunc: (dy, saved, attrs) => {
      const [input] = saved as [Tensor];
      return { x: () => run(gradKernel, { dy: dy as Tensor, input }, attrs) };
    },
  };
}

function avgPoolGrad(kernelName: string): GradConfig {
  return {
    kernelName, inputsToSave: ['dy', 'input'],
    gradFunc: (ddx, saved, attrs) => {
      const [dy, input] = saved as [Tensor, Tensor];
      return {
        dy: () => run(AVERAGE_TRANSPOSE, { tx: ddx as Tensor, output: dy }, attrs),
        input: () => zerosLike(input),
      };
    },
  };
}

function avgTranspose(): GradConfig {
  return {
    kernelName: AVERAGE_TRANSPOSE, inputsToSave: ['tx', 'output'],
    gradFunc: (dty, saved, attrs) => {
      const [tx, output] = saved as [Tensor, Tensor];
      const gradKernel = tx.rank === 5 ? 'AvgPool3DGrad' : 'AvgPoolGrad';
      return { tx: () => run(gradKernel, { dy: dty as Tensor, input: tx }, attrs), output: () => zerosLike(output) };
    },
  };
}

// Routes are all it keeps: not x, which the layer before may let go of, and not y.
function reluMaxPool(): GradConfig {
  return {
    kernelName: RELU_MAX_POOL, outputsToSave: [false, true],
    gradFunc: (dy, [routes], attrs) => ({ x: () => run(RELU_MAX_POOL_GRAD, { dy: (dy as Tensor[])[0] as Tensor, routes: routes as Tensor }, attrs) }),
  };
}

// dx = S' dy and ty = S tx are each other's gradient; routes are whole numbers and have none.
function reluMaxProduct(kernelName: string, input: string, transposed: string, transposedInput: string): GradConfig {
  return {
    kernelName, inputsToSave: ['routes'],
    gradFunc: (d, [routes], attrs) => ({
      [input]: () => run(transposed, { [transposedInput]: d as Tensor, routes: routes as Tensor }, attrs),
      routes: () => zeros((routes as Tensor).shape),
    }),
  };
}

export const GRADIENTS: readonly GradConfig[] = [
  maxPool('MaxPool', 'MaxPoolGrad'),
  maxPool('MaxPool3D', 'MaxPool3DGrad'),
  maxPoolWithArgmax(),
  maxPoolGrad('MaxPoolGrad'),
  maxPoolGrad('MaxPool3DGrad'),
  gather(),
  avgPool('AvgPool', 'AvgPoolGrad'),
  avgPool('AvgPool3D', 'AvgPool3DGrad'),
  avgPoolGrad('AvgPoolGrad'),
  avgPoolGrad('AvgPool3DGrad'),
  avgTranspose(),
  reluMaxPool(),
  reluMaxProduct(RELU_MAX_POOL_GRAD, 'dy', RELU_MAX_POOL_GATHER, 'tx'),
  reluMaxProduct(RELU_MAX_POOL_GATHER, 'tx', RELU_MAX_POOL_GRAD, 'dy'),
];
