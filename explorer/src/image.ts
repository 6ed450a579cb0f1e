// Image mode: a picture of the visitor's own, pooled channel by channel, and its gradient as a heat map.
//
// The picture is shrunk to 96 pixels and stored as JPEG text, which is what the address carries; what is pooled is that
// stored form, so a link shows the very same numbers. dy is 1 everywhere: the heat map counts how often a pixel's channels
// won. All pooling is the library's, on one H × W × 3 tensor.
import type { Engine, PlanInfo } from '../../bindings/js/src/api/types';
import { shortNumber } from './numbers';
import { problemText, type Shape } from './problem';
import type { State } from './state';
import { html, setText, svg } from './svg';

const LONGEST_SIDE = 96;
const CHANNELS = 3;

export interface Pixels {
  width: number;
  height: number;
  /** H × W × 3, 0…255. */
  values: Float32Array;
}

export interface PooledImage {
  pixels: Pixels;
  shape: Shape;
  info: PlanInfo;
  y: Float32Array;
  /** Per pixel: the sum of dx over its three channels. */
  heat: Float32Array;
  explain(): string;
}

function context(canvas: HTMLCanvasElement): CanvasRenderingContext2D {
  const found = canvas.getContext('2d', { willReadFrequently: true });
  if (!found) throw new Error('This browser offers no 2-D canvas, which image mode needs.');
  return found;
}

/** A small scene drawn by rule, so that the page has something to pool before it is given a picture. */
function sampleCanvas(): HTMLCanvasElement {
  const canvas = html('canvas', { width: LONGEST_SIDE, height: 72 });
  const pen = context(canvas);
  const sky = pen.createLinearGradient(0, 0, 0, 72);
  sky.addColorStop(0, '#16324f');
  sky.addColorStop(0.65, '#e08e45');
  sky.addColorStop(1, '#f5d491');
  pen.fillStyle = sky;
  pen.fillRect(0, 0, 96, 72);
  pen.fillStyle = '#fff3c9';
  pen.beginPath();
  pen.arc(67, 35, 9, 0, 7);
  pen.fill();
  const ridge = (colour: string, base: number, height: number, phase: number) => {
    pen.fillStyle = colour;
    pen.beginPath();
    pen.moveTo(0, 72);
    for (let x = 0; x <= 96; x += 1) {
      pen.lineTo(x, base - height * (Math.sin(x / 9 + phase) + 0.5 * Math.sin(x / 4.1 + 2 * phase)));
    }
    pen.lineTo(96, 72);
    pen.fill();
  };
  ridge('#7a4b3a', 50, 5, 0.4);
  ridge('#3b2f3f', 58, 4, 2.1);
  ridge('#15202b', 66, 3, 4.4);
  pen.fillStyle = '#ffffff';
  for (const [x, y] of [[12, 9], [27, 17], [41, 6], [55, 13], [83, 8], [90, 20], [19, 26], [8, 20]] as const) {
    pen.fillRect(x, y, 1, 1);
  }
  return canvas;
}

function loadImage(address: string): Promise<HTMLImageElement> {
  return new Promise((resolve, reject) => {
    const image = new Image();
    image.onload = () => resolve(image);
    image.onerror = () => reject(new Error('The file could not be read as an image; try a PNG, JPEG or WebP file.'));
    image.src = address;
  });
}

/** Shrinks a file to what the address can carry. */
export async function shrinkFile(file: Blob): Promise<string> {
  const address = URL.createObjectURL(file);
  try {
    const image = await loadImage(address);
    const scale = Math.min(1, LONGEST_SIDE / Math.max(image.naturalWidth, image.naturalHeight));
    const canvas = html('canvas', {
      width: Math.max(1, Math.round(image.naturalWidth * scale)),
      height: Math.max(1, Math.round(image.naturalHeight * scale)),
    });
    const pen = context(canvas);
    pen.fillStyle = '#ffffff';
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.imageSmoothingQuality = 'high';
    pen.drawImage(image, 0, 0, canvas.width, canvas.height);
    return canvas.toDataURL('image/jpeg', 0.86);
  } finally {
    URL.revokeObjectURL(address);
  }
}

export async function readPixels(source: string): Promise<Pixels> {
  let canvas: HTMLCanvasElement;
  if (source === 'sample') {
    canvas = sampleCanvas();
  } else {
    const image = await loadImage(source);
    const width = Math.min(LONGEST_SIDE, image.naturalWidth);
    const height = Math.min(LONGEST_SIDE, image.naturalHeight);
    canvas = html('canvas', { width, height });
    context(canvas).drawImage(image, 0, 0);
  }
  const { width, height } = canvas;
  const { data } = context(canvas).getImageData(0, 0, width, height);
  const values = new Float32Array(width * height * CHANNELS);
  for (let pixel = 0; pixel < width * height; pixel += 1) {
    for (let channel = 0; channel < CHANNELS; channel += 1) {
      values[pixel * CHANNELS + channel] = data[pixel * 4 + channel]!;
    }
  }
  return { width, height, values };
}

export function poolImage(engine: Engine, state: State, pixels: Pixels): PooledImage {
  const shape: Shape = { batch: 1, channels: CHANNELS, rows: pixels.height, columns: pixels.width, layout: 'nhwc' };
  const plan = engine.cachedPlan(problemText(state, shape));
  const { info } = plan;
  if (info.yElements > 1 << 20) {
    throw new Error(`The output would have ${info.yElements} elements; this page draws at most ${1 << 20}.`);
  }
  const { y, routes } = plan.forward(pixels.values, { routes: true });
  const dx = plan.backward(new Float32Array(info.yElements).fill(1), routes);
  const heat = Float32Array.from({ length: pixels.width * pixels.height }, (_, pixel) => {
    let sum = 0;
    for (let channel = 0; channel < CHANNELS; channel += 1) sum += dx[pixel * CHANNELS + channel]!;
    return sum;
  });
  return { pixels, shape, info, y: y as Float32Array, heat, explain: () => plan.explain() };
}

/** Dark to light through the page's own orange, so that it reads the same on paper and on a dark screen. */
function heatColour(share: number): [number, number, number] {
  const stops = [[18, 22, 32], [92, 32, 52], [194, 65, 12], [250, 176, 72], [255, 246, 214]] as const;
  const at = Math.min(stops.length - 1.001, Math.max(0, share) * (stops.length - 1));
  const low = stops[Math.floor(at)]!;
  const high = stops[Math.floor(at) + 1]!;
  return [0, 1, 2].map((c) => low[c]! + (high[c]! - low[c]!) * (at % 1)) as [number, number, number];
}

function paint(canvas: HTMLCanvasElement, width: number, height: number, colour: (pixel: number) => readonly number[]): void {
  canvas.width = width;
  canvas.height = height;
  const pen = context(canvas);
  const image = pen.createImageData(width, height);
  for (let pixel = 0; pixel < width * height; pixel += 1) image.data.set([...colour(pixel), 255], pixel * 4);
  pen.putImageData(image, 0, 0);
}

interface Figure {
  canvas: HTMLCanvasElement;
  caption: HTMLElement;
}

export class ImageView {
  private readonly figures: Record<'x' | 'y' | 'heat', Figure>;
  private readonly legend = html('p', { class: 'heat-legend' });
  private current: PooledImage | null = null;

  constructor(host: HTMLElement) {
    const figure = (title: string, says: string): Figure & { node: HTMLElement } => {
      const canvas = html('canvas', { role: 'img', 'aria-label': says });
      const caption = html('span', {});
      const node = html('figure', {}, [
        html('figcaption', {}, [html('em', {}, [title]), ' ', caption]),
        canvas,
      ]);
      return { canvas, caption, node };
    };
    const x = figure('x', 'The input image');
    const y = figure('y', 'The pooled image');
    const heat = figure('dx', 'The gradient as a heat map');
    this.figures = { x, y, heat };
    host.append(html('div', { class: 'image-figures' }, [x.node, y.node, heat.node]), this.legend);
  }

  render(pooled: PooledImage): void {
    this.current = pooled;
    const { pixels, info, y, heat } = pooled;
    const [rows, columns] = info.outSize as [number, number];
    const most = heat.reduce((a, b) => Math.max(a, b), 0);
    const won = heat.reduce((sum, value) => sum + (value > 0 ? 1 : 0), 0);
    paint(this.figures.x.canvas, pixels.width, pixels.height, (p) => [...pixels.values.subarray(p * CHANNELS, p * CHANNELS + 3)]);
    paint(this.figures.y.canvas, columns, rows, (p) => [...y.subarray(p * CHANNELS, p * CHANNELS + 3)]);
    paint(this.figures.heat.canvas, pixels.width, pixels.height, (p) => heatColour(most > 0 ? heat[p]! / most : 0));
    setText(this.figures.x.caption, `input, ${pixels.height}×${pixels.width}×3`);
    setText(this.figures.y.caption, `output, ${rows}×${columns}×3`);
    setText(this.figures.heat.caption, 'gradient out, for dy = 1');
    setText(
      this.legend,
      `${won} of ${heat.length} pixels receive any gradient; the brightest receives ${shortNumber(most)}. ` +
        'The rest of the picture learns nothing from this layer.',
    );
  }

  /** The three pictures as one SVG, pixels kept sharp. */
  exportText(): string | null {
    if (!this.current) return null;
    const { pixels } = this.current;
    const scale = Math.max(1, Math.round(384 / Math.max(pixels.width, pixels.height)));
    const width = pixels.width * scale;
    const height = pixels.height * scale;
    const parts = Object.values(this.figures).map(({ canvas }, at) =>
      svg('image', { href: canvas.toDataURL('image/png'), x: at * (width + 20), y: 0, width, height,
        style: 'image-rendering: pixelated', preserveAspectRatio: 'none' }),
    );
    const node = svg('svg', { viewBox: `0 0 ${3 * width + 40} ${height}`, width: 3 * width + 40, height }, [
      svg('title', {}, [this.current.info.problem]),
      ...parts,
    ]);
    node.setAttribute('xmlns', 'http://www.w3.org/2000/svg');
    return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(node)}\n`;
  }
}
