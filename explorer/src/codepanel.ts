// "The same in code": one tab per language, each with a whole program for what is on the page, and a copy button.
import { snippet, TITLES } from './code';
import { CODE_TABS, type CodeTab } from './state';
import { byId, html, setAttributes, setText } from './svg';

/** Copies text; a page opened from a file may lack the clipboard interface, so the old way is kept as well. */
export async function copyText(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = html('textarea', { 'aria-hidden': 'true', class: 'visually-hidden' });
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand('copy');
    field.remove();
  }
}

const confirming = new WeakMap<HTMLElement, number>();

/** A button that says for a moment, counted from its last press, that it has done its work. */
export function confirmOn(button: HTMLElement, word: string): void {
  const usual = button.dataset['usual'] ?? button.textContent ?? '';
  button.dataset['usual'] = usual;
  setText(button, word);
  window.clearTimeout(confirming.get(button));
  confirming.set(button, window.setTimeout(() => setText(button, usual), 1400));
}

export class CodePanel {
  private readonly tabs: Record<CodeTab, HTMLButtonElement>;
  private shown: CodeTab = 'problem';

  constructor(private readonly choose: (tab: CodeTab) => void) {
    const make = (id: CodeTab) => {
      const tab = html('button', { type: 'button', role: 'tab', id: `tab-${id}`, 'aria-controls': 'code-panel' }, [TITLES[id]]);
      tab.addEventListener('click', () => this.choose(id));
      byId('code-tabs').append(tab);
      return [id, tab] as const;
    };
    this.tabs = Object.fromEntries(CODE_TABS.map(make)) as Record<CodeTab, HTMLButtonElement>;
    const copy = byId('copy-code');
    copy.addEventListener('click', () => {
      void copyText(byId('code').textContent ?? '').then(() => confirmOn(copy, 'Copied'));
    });
    byId('code-tabs').addEventListener('keydown', (event) => this.key(event));
  }

  private key(event: KeyboardEvent): void {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = CODE_TABS[(CODE_TABS.indexOf(this.shown) + step + CODE_TABS.length) % CODE_TABS.length]!;
    this.choose(next);
    this.tabs[next].focus();
  }

  render(...settings: Parameters<typeof snippet>): void {
    this.shown = settings[0];
    for (const id of CODE_TABS) {
      setAttributes(this.tabs[id], { 'aria-selected': String(id === this.shown), tabindex: id === this.shown ? 0 : -1 });
    }
    byId('code-panel').setAttribute('aria-labelledby', `tab-${this.shown}`);
    const { text, note } = snippet(...settings);
    setText(byId('code'), text);
    setText(byId('code-note'), note);
  }
}
