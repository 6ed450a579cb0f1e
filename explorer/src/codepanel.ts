// "The same in code": one tab per language, each with a whole program for what is on the page, and a copy button.
import { snippets, type Snippet } from './code';
import type { CodeTab } from './state';
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

/** A button that says for a moment that it has done its work. */
export function confirmOn(button: HTMLElement, word: string): void {
  const usual = button.dataset['usual'] ?? button.textContent ?? '';
  button.dataset['usual'] = usual;
  setText(button, word);
  window.setTimeout(() => setText(button, usual), 1400);
}

export class CodePanel {
  private tabs = new Map<CodeTab, HTMLButtonElement>();
  private list: Snippet[] = [];
  private shown: CodeTab = 'problem';

  constructor(private readonly choose: (tab: CodeTab) => void) {
    const copy = byId('copy-code');
    copy.addEventListener('click', () => {
      void copyText(this.current?.text ?? '').then(() => confirmOn(copy, 'Copied'));
    });
    byId('code-tabs').addEventListener('keydown', (event) => this.key(event));
  }

  private get current(): Snippet | undefined {
    return this.list.find((snippet) => snippet.id === this.shown);
  }

  private key(event: KeyboardEvent): void {
    const order = [...this.tabs.keys()];
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = order[(order.indexOf(this.shown) + step + order.length) % order.length]!;
    this.choose(next);
    this.tabs.get(next)!.focus();
  }

  render(shown: CodeTab, ...settings: Parameters<typeof snippets>): void {
    this.shown = shown;
    this.list = snippets(...settings);
    if (this.tabs.size === 0) {
      for (const { id, title } of this.list) {
        const tab = html('button', { type: 'button', role: 'tab', id: `tab-${id}`, 'aria-controls': 'code-panel' }, [title]);
        tab.addEventListener('click', () => this.choose(id));
        this.tabs.set(id, tab);
        byId('code-tabs').append(tab);
      }
    }
    for (const [id, tab] of this.tabs) {
      setAttributes(tab, { 'aria-selected': String(id === shown), tabindex: id === shown ? 0 : -1 });
    }
    byId('code-panel').setAttribute('aria-labelledby', `tab-${shown}`);
    setText(byId('code'), this.current?.text ?? '');
    setText(byId('code-note'), this.current?.note ?? '');
  }
}
