// The settings form and the problem line, tied to the state in both directions. Numbers stay the text that was typed.
import type { Engine, ProblemSpec } from '../../bindings/js/src/api/types';
import { MAX_SIDE, resizeX, type Padding, type Pair, type State } from './state';
import { byId } from './svg';

type Change = (changes: Partial<State>) => void;

const PAIRS = ['kernel', 'stride', 'dilation'] as const;
/** What the adaptive switch begins with: on most grids, windows of two sizes that overlap. */
const ADAPTIVE: Pair = ['3', '3'];
const CHOICES = ['padding', 'rounding', 'ties', 'nan', 'dialect'] as const;

function input(id: string): HTMLInputElement {
  return byId<HTMLInputElement>(id);
}

/** Writes a field's value without disturbing someone who is typing in it. */
function show(id: string, value: string): void {
  const field = input(id);
  if (field.value !== value && document.activeElement !== field) field.value = value;
}

export interface ControlsHost {
  state(): State;
  change: Change;
  refuse(sentence: string): void;
  engine(): Engine;
}

function sizeSentence(rows: number | string, columns: number | string): string {
  return `The input would have ${rows} rows and ${columns} columns; this page draws 1 to ${MAX_SIDE} of each.`;
}

function fits(size: number): boolean {
  return Number.isInteger(size) && size >= 1 && size <= MAX_SIDE;
}

/** The state that a problem in its one-line form asks for. Throws the library's sentence, or the page's own. */
export function changesFromLine(engine: Engine, text: string, state: State): Partial<State> {
  const spec = engine.parse(text);
  if (spec.kind !== 'max') throw new Error(`The problem is "${spec.kind}" pooling; this page shows max pooling.`);
  if (spec.dtype !== 'f32') throw new Error(`The problem is of ${spec.dtype}; this page pools f32.`);
  if (spec.routeBits) throw new Error(`The problem asks for routes of ${spec.routeBits} bits; this page shows the narrowest that hold them.`);
  if (spec.shape.length !== 4) {
    throw new Error(`The shape has ${spec.shape.length} sizes; this page shows images: batch, channels, rows, columns.`);
  }
  const last = spec.layout === 'nhwc';
  const [rows, columns] = (last ? spec.shape.slice(1, 3) : spec.shape.slice(2, 4)) as [number, number];
  if (!fits(rows) || !fits(columns)) throw new Error(sizeSentence(rows, columns));
  const adaptive = spec.adaptive === undefined ? null : pairOf(spec.adaptive);
  if (spec.starts || adaptive?.includes('0')) {
    throw new Error('The problem lists the windows of an axis; this page shows adaptive windows on both axes, or a kernel on both.');
  }
  engine.cachedPlan(text);
  return {
    mode: 'grid',
    rows,
    columns,
    x: resizeX(state, rows, columns),
    layer: [String(spec.shape[0]), String(last ? spec.shape[3] : spec.shape[1])],
    adaptive,
    ...(adaptive ? {} : windowOf(spec)),
    relu: spec.relu ?? false,
    rounding: word(spec.rounding),
    ties: word(spec.ties),
    nan: word(spec.nan),
    dialect: word(spec.dialect),
  };
}

function word(name: string | undefined): string {
  return name === undefined || name === 'default' ? '' : name;
}

function pairOf(value: ProblemSpec['kernel']): Pair {
  const list = typeof value === 'number' ? [value, value] : (value ?? [1, 1]);
  return [String(list[0]), String(list[1])];
}

function windowOf(spec: ProblemSpec): Pick<State, 'kernel' | 'stride' | 'dilation' | 'padding' | 'pads'> {
  const none: State['pads'] = ['0', '0', '0', '0'];
  const window = { kernel: pairOf(spec.kernel), stride: pairOf(spec.stride), dilation: pairOf(spec.dilation) };
  if (typeof spec.padding === 'string') return { ...window, padding: spec.padding, pads: none };
  const [tall, wide] = spec.padding as readonly (readonly [number, number])[];
  const pads = [...tall!, ...wide!].map(String) as State['pads'];
  return { ...window, padding: pads.every((pad) => pad === '0') ? 'valid' : 'explicit', pads };
}

export class Controls {
  /** What the last change of size made, and of which numbers: a 12 is typed by way of a 1, and they come back. */
  private resized: { from: State; x: number[] } | null = null;

  constructor(private readonly host: ControlsHost) {
    const { state, change } = host;
    for (const name of PAIRS) {
      ([0, 1] as const).forEach((at) => {
        input(`${name}-${at}`).addEventListener('input', () => {
          const pair: Pair = [...state()[name]];
          pair[at] = input(`${name}-${at}`).value;
          change({ [name]: pair });
        });
      });
    }
    ([0, 1] as const).forEach((at) => {
      input(`outputs-${at}`).addEventListener('input', () => {
        const adaptive: Pair = [...(state().adaptive ?? ADAPTIVE)];
        adaptive[at] = input(`outputs-${at}`).value;
        change({ adaptive });
      });
    });
    const adaptive = input('adaptive');
    adaptive.addEventListener('change', () => change({ adaptive: adaptive.checked ? ADAPTIVE : null, at: null, step: null }));
    const relu = input('relu');
    relu.addEventListener('change', () => change({ relu: relu.checked }));
    for (const name of CHOICES) {
      byId(name).addEventListener('change', () => change({ [name]: input(name).value as Padding }));
    }
    ([0, 1, 2, 3] as const).forEach((at) => {
      input(`pad-${at}`).addEventListener('input', () => {
        const pads: State['pads'] = [...state().pads];
        pads[at] = input(`pad-${at}`).value;
        change({ pads });
      });
    });
    for (const id of ['rows', 'columns']) input(id).addEventListener('input', () => this.resize());
    for (const [at, id] of ['batch', 'channels'].entries()) {
      input(id).addEventListener('input', () => {
        const layer: Pair = [...state().layer];
        layer[at as 0 | 1] = input(id).value;
        change({ layer });
      });
    }
    input('problem').addEventListener('change', () => this.readLine());
    byId('controls').addEventListener('submit', (event) => event.preventDefault());
  }

  private resize(): void {
    const { state, change, refuse } = this.host;
    const rows = Number(input('rows').value);
    const columns = Number(input('columns').value);
    if (!fits(rows) || !fits(columns)) {
      refuse(sizeSentence(input('rows').value || 'no', input('columns').value || 'no'));
    } else {
      const from = this.resized?.x === state().x ? this.resized.from : state();
      this.resized = { from, x: resizeX(from, rows, columns) };
      change({ rows, columns, x: this.resized.x, at: null, step: null });
    }
  }

  private readLine(): void {
    const { state, change, refuse, engine } = this.host;
    try {
      change({ ...changesFromLine(engine(), input('problem').value, state()), at: null, step: null });
    } catch (error) {
      refuse((error as Error).message);
    }
  }

  render(line: string): void {
    const state = this.host.state();
    for (const name of PAIRS) state[name].forEach((value, at) => show(`${name}-${at}`, value));
    for (const name of CHOICES) show(name, state[name]);
    state.adaptive?.forEach((value, at) => show(`outputs-${at}`, value));
    input('adaptive').checked = state.adaptive !== null;
    input('relu').checked = state.relu;
    byId('kernel-fields').hidden = state.adaptive !== null;
    byId('outputs-field').hidden = state.adaptive === null;
    state.pads.forEach((value, at) => show(`pad-${at}`, value));
    byId('pads-row').hidden = state.padding !== 'explicit';
    show('rows', String(state.rows));
    show('columns', String(state.columns));
    show('batch', state.layer[0]);
    show('channels', state.layer[1]);
    show('problem', line);
    byId('size-fields').hidden = state.mode === 'image';
  }
}
