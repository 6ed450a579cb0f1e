// fuseReluMaxPool(model): where a ReLU of a tfjs-layers model feeds one max pool and nothing else, the pool becomes both and the
// ReLU nothing, so that training keeps routes where it kept the pool's input and output, and the ReLU's input.
//
// Nothing of a layer's configuration changes: two methods are laid over those of its class, and taken away again by
// { back: true }. So a fused model is saved and loaded as what it was. TensorFlow.js's layers package is not imported, only the
// model's own objects are used.
import { add, conv2d, customGrad, engine, sum, tidy, transpose, type Tensor, type Tensor4D, type Tensor5D } from '@tensorflow/tfjs-core';
import { reluMaxPool, reluMaxPool3d } from './relu';

/** What is used of tf.LayersModel and tf.Sequential. */
export interface FusableModel {
  name: string;
  layers: { name: string; getClassName(): string }[];
}

export interface FuseOptions {
  /** Undo it. */
  back?: boolean;
}

/** A ReLU, or a layer with that activation, and the max pool it feeds, by their names. */
export interface FusedPair {
  relu: string;
  pool: string;
  fused: boolean;
  /** Why it is not fused; "" where it is. */
  whyNot: string;
}

interface Node { inboundLayers: Layer[]; outboundLayer: Layer }
interface Weight { read(): Tensor }
interface Activation { apply(x: Tensor): Tensor; getClassName(): string }

/** The parts of a tfjs-layers layer that are read or laid over here; each class has some of them. */
interface Layer {
  name: string;
  getClassName(): string;
  inboundNodes: Node[];
  outboundNodes: Node[];
  layers?: Layer[];
  outputs?: { sourceLayer: Layer }[];
  call(inputs: Tensor | Tensor[], kwargs: object): Tensor | Tensor[];
  _callHook?: unknown;
  activation?: Activation | null;
  maxValue?: number | null;
  dataFormat?: string;
  kernel?: Weight;
  bias?: Weight | null;
  strides?: number[];
  padding?: string;
  dilationRate?: number[];
  poolingFunction?(x: Tensor, size: number[], strides: number[], padding: string, dataFormat: string): Tensor;
}

const POOLS: readonly string[] = ['MaxPooling1D', 'MaxPooling2D', 'MaxPooling3D'];
/** Layers whose activation is the last thing they do; a recurrent layer's is not. */
const ACTIVATED: readonly string[] = ['Activation', 'Conv1D', 'Conv2D', 'Conv3D', 'Conv2DTranspose', 'Conv3DTranspose', 'DepthwiseConv2D',
                                      'SeparableConv2D', 'Dense'];
const LINEAR: Activation = { apply: (x) => x, getClassName: () => 'linear' };

function isRelu(layer: Layer): boolean {
  return layer.getClassName() === 'ReLU' || (ACTIVATED.includes(layer.getClassName()) && layer.activation?.getClassName() === 'relu');
}

function whyNot(model: Layer, relu: Layer, pool: Layer): string {
  const uses = ({ name, inboundNodes }: Layer): string => `${name} is used ${inboundNodes.length} times`;
  if (relu.maxValue != null) return `${relu.name} cuts off at ${relu.maxValue}`;
  if (relu.inboundNodes.length !== 1) return uses(relu);
  if (pool.inboundNodes.length !== 1) return uses(pool);
  if (relu.outboundNodes.length !== 1) {
    return `${relu.name} feeds ${relu.outboundNodes.map(({ outboundLayer }) => outboundLayer.name).join(' and ')}`;
  }
  if (model.outputs?.some(({ sourceLayer }) => sourceLayer === relu)) return `${relu.name} is an output of the model`;
  const hooked = [relu, pool].find(({ _callHook }) => _callHook != null);
  return hooked ? `${hooked.name} has a call hook, which would see what is not rectified yet` : '';
}

// The gradients of tf.add and of tf.fused.conv2d keep a convolution's result, which neither needs; these two keep what they do.
const addBias = customGrad((x: unknown, bias: unknown) => {
  const value = add(x as Tensor, bias as Tensor);
  const axes = Array.from({ length: value.rank - 1 }, (_, axis) => axis);
  return { value, gradFunc: (dy: Tensor) => [dy, sum(dy, axes)] };
});

function convolve({ kernel, bias, strides, padding, dilationRate }: Layer, x: Tensor): Tensor {
  const y = conv2d(x as Tensor4D, (kernel as Weight).read() as Tensor4D, strides as [number, number], padding === 'same' ? 'same' : 'valid', 'NHWC',
                   dilationRate as [number, number]);
  return bias == null ? y : addBias(y, bias.read());
}

function layOverRelu(layer: Layer): void {
  const stock = layer.call;
  layer.call = (inputs, kwargs) => {
    if (layer.getClassName() === 'ReLU') return inputs;
    // While gradients are recorded TensorFlow.js does not fuse a convolution with its activation either, so the bits are the same.
    if (layer.getClassName() === 'Conv2D' && layer.dataFormat !== 'channelsFirst' && engine().state.gradientDepth > 0) {
      return tidy(() => convolve(layer, [inputs].flat()[0] as Tensor));
    }
    const { activation } = layer;
    layer.activation = LINEAR;
    try {
      return stock.call(layer, inputs, kwargs);
    } finally {
      layer.activation = activation;
    }
  };
}

function layOverPool(layer: Layer): void {
  layer.poolingFunction = (x, size, strides, padding, dataFormat) => tidy(() => {
    const axes = x.shape.map((_, axis) => axis);
    const channelsFirst = dataFormat === 'channelsFirst';
    const last = channelsFirst ? transpose(x, [0, ...axes.slice(2), 1]) : x;
    const pad = padding === 'same' ? 'same' : 'valid';
    const y = size.length === 3
      ? reluMaxPool3d(last as Tensor5D, size as [number, number, number], strides as [number, number, number], pad)
      : reluMaxPool(last as Tensor4D, size as [number, number], strides as [number, number], pad);
    return channelsFirst ? transpose(y, [0, axes.length - 1, ...axes.slice(1, -1)]) : y;
  });
}

const fused = new WeakSet<Layer>();  // pools

function pairsOf(model: Layer, back: boolean): FusedPair[] {
  return (model.layers ?? []).flatMap((layer) => {
    if (layer.layers !== undefined) return pairsOf(layer, back);
    if (!POOLS.includes(layer.getClassName())) return [];
    const before = layer.inboundNodes[0]?.inboundLayers[0];
    if (before === undefined || !isRelu(before)) return [];
    const reason = back ? 'it was undone' : whyNot(model, before, layer);
    const wanted = reason === '';
    if (wanted && !fused.has(layer)) {
      layOverRelu(before);
      layOverPool(layer);
      fused.add(layer);
    } else if (!wanted && fused.delete(layer)) {
      Reflect.deleteProperty(before, 'call');
      Reflect.deleteProperty(layer, 'poolingFunction');
    } else if (back) {
      return [];
    }
    return [{ relu: before.name, pool: layer.name, fused: wanted, whyNot: reason }];
  });
}

/**
 * Fuses, in place, each ReLU that feeds one max pool and nothing else with it, and says of every such pair what became of it.
 * Outputs and gradients stay the same. Not seen are other models made from the same layers: those that take the ReLU's own output.
 */
export function fuseReluMaxPool(model: FusableModel, options: FuseOptions = {}): FusedPair[] {
  if (!Array.isArray(model?.layers)) {
    throw new Error('fuseReluMaxPool was given something without layers; it takes a tf.LayersModel or tf.Sequential');
  }
  const unknown = Object.keys(options ?? {}).find((name) => name !== 'back');
  if (unknown !== undefined) throw new Error(`fuseReluMaxPool was given the option "${unknown}"; it takes back`);
  return pairsOf(model as unknown as Layer, options?.back ?? false);
}
