// Walking through the windows one at a time, forward first, then backward. Knows only how many there are and where it
// stands; what a step looks like is decided by whoever draws it.
import { byId, setText } from './svg';

export interface Stage {
  direction: 'forward' | 'backward';
  output: number;
}

/** The window that step number `step` (1-based) handles; null before the first. */
export function stageOf(step: number, outputs: number): Stage | null {
  if (step <= 0 || outputs === 0) return null;
  return step <= outputs
    ? { direction: 'forward', output: step - 1 }
    : { direction: 'backward', output: Math.min(step - outputs, outputs) - 1 };
}

/** Long walks go faster, so that a film never takes much more than twenty seconds. */
function pace(outputs: number): number {
  return Math.min(900, Math.max(40, 20000 / (2 * outputs)));
}

export class Steps {
  private timer: number | null = null;
  private outputs = 0;
  private step: number | null = null;
  private readonly range = byId<HTMLInputElement>('step-range');
  private readonly play = byId<HTMLButtonElement>('step-play');

  constructor(private readonly onStep: (step: number | null) => void) {
    byId('step-start').addEventListener('click', () => this.jump(0));
    byId('step-back').addEventListener('click', () => this.jump((this.step ?? this.last) - 1));
    byId('step-next').addEventListener('click', () => this.jump((this.step ?? 0) + 1));
    byId('step-end').addEventListener('click', () => this.jump(null));
    this.play.addEventListener('click', () => (this.timer === null ? this.start() : this.stop()));
    this.range.addEventListener('input', () => this.jump(Number(this.range.value)));
  }

  private get last(): number {
    return 2 * this.outputs;
  }

  private jump(step: number | null): void {
    this.stop();
    this.onStep(step === null ? null : Math.max(0, Math.min(this.last, step)));
  }

  private start(): void {
    if (this.step === null || this.step >= this.last) this.onStep(0);
    this.timer = window.setInterval(() => {
      const next = (this.step ?? 0) + 1;
      if (next > this.last) {
        this.stop();
        this.onStep(null);
      } else {
        this.onStep(next);
      }
    }, pace(this.outputs));
    this.showPlaying();
  }

  stop(): void {
    if (this.timer !== null) window.clearInterval(this.timer);
    this.timer = null;
    this.showPlaying();
  }

  private showPlaying(): void {
    const playing = this.timer !== null;
    setText(this.play, playing ? 'Pause' : 'Play');
  }

  render(outputs: number, step: number | null): void {
    this.outputs = outputs;
    this.step = step;
    this.range.max = String(this.last);
    this.range.value = String(step ?? this.last);
    const stage = step === null ? null : stageOf(step, outputs);
    const text = step === null
      ? 'all windows, both ways'
      : stage
        ? `${stage.direction}, window ${stage.output + 1} of ${outputs}`
        : 'before the first window';
    setText(byId('step-text'), text);
    this.range.setAttribute('aria-valuetext', text);
  }
}
