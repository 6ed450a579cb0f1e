// The page: one state, one library, and everything drawn from the two.
//
// A change goes: state → library → result → draw. When the library refuses, its sentence is shown and the last good
// settings stay in the picture, with whatever numbers were typed since. Pointing changes the light only.
import 'katex/dist/katex.min.css';
import './styles.css';
import type { Engine, PlanInfo } from '../../bindings/js/src/api/types';
import { CodePanel, confirmOn, copyText } from './codepanel';
import { Controls } from './controls';
import { Derivation, type Example } from './derivation';
import { Editing } from './edit';
import { startEngine } from './engine';
import { pictureText, saveText } from './export';
import { inputFormula, outputFormula, placeFormula, type Formula } from './formula';
import { ImageView, poolImage, readPixels, shrinkFile, type Pixels, type PooledImage } from './image';
import { JacobianView } from './jacobian';
import { exampleInput, exampleOutput, isInput, lightLine, lightOutput, lightPlace, placeIndex, type Lighting, type LineName } from './lighting';
import { renderMemory } from './memory';
import { count } from './numbers';
import { Panels } from './panels';
import { Picture } from './picture';
import { pool, type Pooled } from './pool';
import { PRESETS } from './presets';
import { gridShape, problemText } from './problem';
import { RouteBitsView } from './routebits';
import { decodeState, encodeState, fitDy, initialState, parseNumber, type Place, type State } from './state';
import { Steps, stageOf } from './steps';
import { byId, html, setAttributes, setText } from './svg';
import { startTheme } from './theme';
import { FormulaView } from './typeset';

/** A result and the state that made it. */
interface Good {
  state: State;
  pooled: Pooled;
  dy: number[];
  dx: Float32Array;
}

const SETTINGS = ['kernel', 'stride', 'dilation', 'padding', 'pads', 'rounding', 'adaptive', 'relu', 'ties', 'nan', 'dialect'] as const;

function withSettings(numbers: State, settings: State): State {
  const mixed = { ...numbers } as Record<string, unknown>;
  for (const name of SETTINGS) mixed[name] = settings[name];
  return mixed as unknown as State;
}

class Page {
  private state = decodeState(location.hash);
  private good: Good | null = null;
  private pointed: Place | null = null;
  private line: LineName | null = null;
  private shownImage = '';
  private pixels: Pixels | null = null;
  private image: PooledImage | null = null;
  private restTimer = 0;
  /** What waits for the end of `together`; null outside of it. */
  private asked: Set<'light' | 'all'> | null = null;
  /** The address of each example, to tell which one is on the page. */
  private readonly presets: { button: HTMLElement; preset: string }[] = [];
  private explained = '';
  private measured = '';

  private readonly panels = new Panels();
  private readonly picture = new Picture(byId('picture-host'));
  private readonly jacobian = new JacobianView(byId('jacobian-host'), (output) => this.pointOutput(output));
  private readonly routes = new RouteBitsView(byId('routes-host'), byId('routes-text'));
  private readonly derivation = new Derivation(
    byId('lines'),
    (line) => this.lightLine(line),
    (id) => this.loadPreset(id),
  );
  private readonly formula = new FormulaView(byId('formula'), byId('announce'));
  private readonly codePanel = new CodePanel((code) => this.change({ code }));
  private readonly imageView = new ImageView(byId('image-host'));
  private readonly steps = new Steps((step) => this.change({ step }));
  private readonly controls: Controls;

  constructor(private readonly engine: Engine) {
    this.controls = new Controls({
      state: () => this.state,
      change: (changes) => this.change(changes),
      refuse: (sentence) => this.refuse(sentence),
      engine: () => this.engine,
    });
    new Editing(byId('picture-host'), this.picture, {
      valueAt: (place) => this.valueAt(place),
      setValue: (place, value) => this.setValue(place, value),
      point: (place) => this.point(place),
      pin: (place) => this.change({ at: place, step: null }),
      unpin: () => this.change({ at: null }),
      isPinned: (place) => JSON.stringify(place) === JSON.stringify(this.state.at),
      brush: () => this.brush(),
      together: (act) => this.together(act),
    });
    setText(byId('version'), engine.version);
    this.makePresets();
    this.wireButtons();
    new ResizeObserver(() => this.picture.resize()).observe(byId('picture-host'));
    window.addEventListener('scroll', () => this.floatPicture(this.line !== null), { passive: true });
    window.addEventListener('hashchange', () => {
      if (location.hash.slice(1) !== encodeState(this.state)) this.load(decodeState(location.hash));
    });
    startTheme(() => undefined);
    this.load(this.state);
  }

  private load(state: State): void {
    this.steps.stop();
    this.state = state;
    this.recompute();
  }

  private change(changes: Partial<State>): void {
    this.state = { ...this.state, ...changes };
    this.recompute();
  }

  private makePresets(): void {
    const host = byId('presets');
    for (const { id, title, says, state } of PRESETS) {
      const button = html('button', { type: 'button', title: says, 'data-preset': id }, [title]);
      button.addEventListener('click', () => this.loadPreset(id));
      host.append(button);
      this.presets.push({ button, preset: encodeState(state) });
    }
  }

  private loadPreset(id: string): void {
    const preset = PRESETS.find((candidate) => candidate.id === id)!;
    this.load({ ...structuredClone(preset.state), code: this.state.code });
  }

  private wireButtons(): void {
    const on = (id: string, act: () => void) => byId(id).addEventListener('click', act);
    const random = (length: number) => Array.from({ length }, () => Math.floor(Math.random() * 10));
    on('random-x', () => this.change({ x: random(this.state.x.length) }));
    on('ones-dy', () => this.setDy((dy) => dy.fill(1)));
    on('random-dy', () => this.setDy((dy) => dy.splice(0, dy.length, ...random(dy.length))));
    on('paint', () => {
      const pressed = byId('paint').getAttribute('aria-pressed') !== 'true';
      byId('paint').setAttribute('aria-pressed', String(pressed));
      byId('brush-label').hidden = !pressed;
      byId('picture-host').classList.toggle('painting', pressed);
    });
    const windows = byId<HTMLInputElement>('show-windows');
    windows.addEventListener('change', () => this.change({ showWindows: windows.checked }));
    const link = byId('copy-link');
    on('copy-link', () => {
      void copyText(`${location.href.split('#')[0]}#${encodeState(this.state)}`).then(() => confirmOn(link, 'Copied'));
    });
    on('export-svg', () => this.export());
    const file = byId<HTMLInputElement>('image-file');
    file.addEventListener('change', () => {
      if (file.files?.[0]) this.takeImage(file.files[0]);
    });
    on('image-sample', () => this.change({ image: 'sample' }));
    const drop = byId('image-host');
    drop.addEventListener('dragover', (event) => event.preventDefault());
    drop.addEventListener('drop', (event) => {
      event.preventDefault();
      if (event.dataTransfer?.files[0]) this.takeImage(event.dataTransfer.files[0]);
    });
  }

  private takeImage(file: Blob): void {
    shrinkFile(file).then((image) => this.change({ image }), (error: Error) => this.refuse(error.message));
  }

  private brush(): number | null {
    if (byId('paint').getAttribute('aria-pressed') !== 'true') return null;
    return parseNumber(byId<HTMLInputElement>('brush').value) ?? 0;
  }

  private valueAt(place: Place): number {
    const good = this.good!;
    const index = placeIndex(place, good.pooled)!;
    return place.grid === 'x' ? this.state.x[index]! : good.dy[index]!;
  }

  private setValue(place: Place, value: number): void {
    const index = this.good && placeIndex(place, this.good.pooled);
    if (index === null || Object.is(this.valueAt(place), value)) return;
    if (place.grid === 'x') {
      this.change({ x: this.state.x.with(index, value) });
    } else {
      this.setDy((dy) => dy.splice(index, 1, value));
    }
  }

  private setDy(edit: (values: number[]) => void): void {
    if (!this.good) return;
    const values = [...this.good.dy];
    edit(values);
    this.change({ dy: { rows: this.good.pooled.outRows, columns: this.good.pooled.outColumns, values } });
  }

  private refuse(sentence: string): void {
    const box = byId('refusal');
    box.hidden = sentence === '';
    setText(box, sentence);
  }

  private pool(state: State): Good {
    const pooled = pool(this.engine, state);
    const dy = fitDy(state.dy, pooled.outRows, pooled.outColumns);
    return { state, pooled, dy, dx: pooled.backward(dy) };
  }

  /** The last good settings with the current numbers; the smallest window there is where none were good, or they do not fit. */
  private fallBack(): Good {
    const smallest: State = { ...initialState(), kernel: ['1', '1'] };
    try {
      return this.pool(withSettings(this.state, this.good?.state ?? smallest));
    } catch {
      return this.pool(withSettings(this.state, smallest));
    }
  }

  private recompute(): void {
    if (this.state.mode === 'image') {
      this.recomputeImage();
    } else {
      let sentence = '';
      try {
        this.good = this.pool(this.state);
      } catch (error) {
        sentence = (error as Error).message;
        this.good = this.fallBack();
      }
      this.refuse(sentence);
    }
    this.ask('all');
  }

  /** Draws now, or at the end of `together`. While it draws, a cell that goes may lose the focus, and asks for light. */
  private ask(part: 'light' | 'all'): void {
    if (this.asked) this.asked.add(part);
    else this.together(() => (part === 'all' ? this.draw() : this.drawLight()));
    this.rest();
  }

  /** Draws once what `act` asks for: an edit that moves on to the next cell changes numbers and light. */
  private together(act: () => void): void {
    const asked = (this.asked = new Set<'light' | 'all'>());
    try {
      act();
    } finally {
      this.asked = null;
    }
    if (asked.size) this.ask(asked.has('all') ? 'all' : 'light');
  }

  private recomputeImage(): void {
    const { image } = this.state;
    if (this.shownImage !== image) {
      readPixels(image).then(
        (pixels) => {
          this.shownImage = image;
          this.pixels = pixels;
          if (this.state.mode === 'image' && this.state.image === image) this.recompute();
        },
        (error: Error) => this.refuse(error.message),
      );
      return;
    }
    try {
      this.image = poolImage(this.engine, this.state, this.pixels!);
      this.refuse('');
    } catch (error) {
      this.refuse((error as Error).message);
    }
  }

  /** What can wait until the hand rests: the panels out of sight, and the address. */
  private rest(): void {
    window.clearTimeout(this.restTimer);
    this.restTimer = window.setTimeout(() => {
      this.panels.catchUp();
      const address = `#${encodeState(this.state)}`;
      if (address !== location.hash) history.replaceState(null, '', address);
    }, 120);
  }

  // Light -------------------------------------------------------------------------------------------------------------

  private point(place: Place | null): void {
    if (JSON.stringify(place) === JSON.stringify(this.pointed)) return;
    this.pointed = place;
    this.ask('light');
  }

  private pointOutput(output: number | null): void {
    const columns = this.good?.pooled.outColumns ?? 1;
    this.floatPicture(output !== null);
    this.point(output === null ? null : { grid: 'y', row: Math.floor(output / columns), column: output % columns });
  }

  private lightLine(line: LineName | null): void {
    this.line = line;
    this.floatPicture(line !== null);
    this.ask('light');
  }

  /** Brings the picture along while something below it is pointed at and it is out of sight. */
  private floatPicture(wanted: boolean): void {
    const host = byId('picture-host');
    const box = host.getBoundingClientRect();
    const seen = Math.min(box.bottom, window.innerHeight) - Math.max(box.top, 0);
    const floating = wanted && seen < box.height * 0.6;
    // The host keeps its height while the picture is away, so that nothing moves.
    host.style.minHeight = floating ? `${box.height}px` : '';
    host.classList.toggle('floating', floating);
  }

  /** The output or input that is pinned, for the lines of the derivation to speak of. */
  private example(): Example {
    const { at } = this.state;
    const index = at && this.good ? placeIndex(at, this.good.pooled) : null;
    if (!at || index === null) return { output: null, input: null };
    return isInput(at.grid) ? { output: null, input: index } : { output: index, input: null };
  }

  private currentLight({ pooled, dy, dx, state }: Good): { light: Lighting | null; formula: Formula | null } {
    const atPlace = (place: Place) => ({
      light: lightPlace(pooled, place),
      formula: placeFormula(pooled, state.x, dy, dx, place),
    });
    if (this.pointed) return atPlace(this.pointed);
    if (this.line) {
      const example = this.example();
      const output = example.output ?? exampleOutput(pooled);
      const input = example.input ?? exampleInput(pooled);
      const ofOutput = ['window', 'local', 'winner'].includes(this.line);
      const ofInput = ['chain', 'message'].includes(this.line);
      return {
        light: lightLine(pooled, this.line, output, input),
        formula:
          ofOutput && output !== null
            ? outputFormula(pooled, state.x, dy, output)
            : ofInput && input !== null
              ? inputFormula(pooled, dy, dx, input)
              : null,
      };
    }
    const stage = this.state.step === null ? null : stageOf(this.state.step, pooled.y.length);
    if (stage) {
      return {
        light: lightOutput(pooled, stage.output, [stage.direction]),
        formula: outputFormula(pooled, state.x, dy, stage.output),
      };
    }
    return this.state.at && this.state.step === null ? atPlace(this.state.at) : { light: null, formula: null };
  }

  // Drawing -----------------------------------------------------------------------------------------------------------

  private draw(): void {
    const image = this.state.mode === 'image';
    const shown: Record<string, boolean> = {
      'picture-host': !image, 'grid-tools': !image, steps: !image, formula: !image, 'grid-panels': !image,
      'image-host': image, 'image-tools': image, layer: !image,
    };
    for (const [id, visible] of Object.entries(shown)) byId(id).hidden = !visible;
    byId('lines').closest('section')!.hidden = image;
    byId<HTMLInputElement>('show-windows').checked = this.state.showWindows;
    const address = encodeState({ ...this.state, code: 'problem' });
    for (const { button, preset } of this.presets) {
      setAttributes(button, { 'aria-pressed': String(preset === address) });
    }
    if (image) this.drawImage();
    else this.drawGrids();
  }

  private drawImage(): void {
    if (!this.image) return;
    this.controls.render(problemText(this.state, this.image.shape));
    this.imageView.render(this.image);
    this.drawCommon(this.image.info, this.image.explain);
    const { info, shape } = this.image;
    this.panels.draw('code', () => this.codePanel.render(this.state.code, this.state, info, null, shape));
  }

  private drawGrids(): void {
    const good = this.good!;
    const { pooled, dy, dx } = good;
    this.controls.render(problemText(this.state, gridShape(this.state)));
    this.drawCommon(pooled.info, pooled.explain);
    this.steps.render(pooled.y.length, this.state.step);
    this.panels.draw('code', () => this.codePanel.render(this.state.code, good.state, pooled.info, { x: good.state.x, dy }));
    this.panels.draw('lines', () => this.derivation.render(pooled, dy, dx, this.example()));
    this.panels.draw('jacobian-text', () => {
      const entries = pooled.winners.reduce((sum, winners) => sum + winners.length, 0);
      setText(
        byId('jacobian-text'),
        `${pooled.y.length} × ${pooled.wins.length} with ${count(entries, 'entry').replace('entrys', 'entries')} that ` +
          `${entries === 1 ? 'is' : 'are'} not 0.`,
      );
    });
    this.drawLight();
  }

  private drawCommon(info: PlanInfo, explain: () => string): void {
    if (this.explained !== info.problem) {
      this.explained = info.problem;
      setText(byId('explain'), explain());
    }
    setText(byId('rules-now'), `In force: ties ${info.ties}, NaN ${info.nan}${info.byTable.some(Boolean) ? '' : `, ${info.rounding}`}.`);
    setText(byId('memory-lead'), `For ${info.relu ? 'a ReLU and this pool' : 'this shape'}, from forward until backward has run.`);
    let sentence = '';
    try {
      const shape = this.state.mode === 'image' ? this.image!.shape : gridShape((this.good as Good).state);
      const layer = { ...shape, batch: this.state.layer[0], channels: this.state.layer[1] };
      const state = this.state.mode === 'image' ? this.state : this.good!.state;
      const real = this.state.layer.join() === '1,1' ? info : this.engine.cachedPlan(problemText(state, layer)).info;
      if (this.measured !== real.problem) {
        this.measured = real.problem;
        renderMemory(byId('memory'), real);
      }
    } catch (error) {
      sentence = (error as Error).message;
    }
    setText(byId('memory-refusal'), sentence);
  }

  private drawLight(): void {
    const good = this.good;
    if (!good || this.state.mode === 'image') return;
    const { pooled, dy, state } = good;
    const { light, formula } = this.currentLight(good);
    const outputs = pooled.y.length;
    const step = this.state.step ?? 2 * outputs;
    const backwardDone = Math.max(0, Math.min(outputs, step - outputs));
    // A partial dx is the library's own backward of a dy that is zero where no window has been walked yet.
    const dx = backwardDone < outputs ? pooled.backward(dy.map((value, o) => (o < backwardDone ? value : 0))) : good.dx;
    this.picture.render({
      pooled, x: state.x, dy, dx, light, forwardDone: Math.min(step, outputs), backwardDone,
      showWindows: this.state.showWindows,
    });
    const litOutputs = new Set(light?.outlines.map((outline) => outline.output) ?? []);
    const place = this.pointed ?? this.state.at;
    const litInput = light && place && isInput(place.grid) ? placeIndex(place, pooled) : null;
    this.panels.draw('jacobian-host', () => this.jacobian.render(pooled, litOutputs, litInput));
    this.panels.draw('routes-host', () => this.routes.render(pooled, litOutputs));
    this.derivation.setLit(this.line);
    this.formula.show(formula);
  }

  private export(): void {
    const text = this.state.mode === 'image'
      ? this.imageView.exportText()
      : pictureText(this.picture.node, this.good!.pooled.info.problem);
    if (text) saveText('poolgrad.svg', 'image/svg+xml', text);
  }
}

startEngine().then(
  (engine) => {
    new Page(engine);
    requestAnimationFrame(() => performance.mark('first-result'));
  },
  (error: Error) => {
    byId('refusal').hidden = false;
    setText(byId('refusal'), `The library could not be started in this browser: ${error.message}`);
  },
);
