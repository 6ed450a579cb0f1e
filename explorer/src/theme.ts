// Light or dark: the system's choice until the visitor makes one, which is then remembered on this machine.
import { byId, setText } from './svg';

type Theme = 'light' | 'dark';
const KEY = 'poolgrad-theme';

/** Storage may be forbidden, on file pages for one; then the choice lasts as long as the page. */
function remembered(): Theme | null {
  try {
    const value = localStorage.getItem(KEY);
    return value === 'light' || value === 'dark' ? value : null;
  } catch {
    return null;
  }
}

function remember(theme: Theme): void {
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // Nothing to keep it in.
  }
}

export function startTheme(onChange: () => void): void {
  const system = window.matchMedia('(prefers-color-scheme: dark)');
  let chosen = remembered();
  const button = byId('theme');
  const apply = () => {
    const theme: Theme = chosen ?? (system.matches ? 'dark' : 'light');
    document.documentElement.dataset['theme'] = theme;
    setText(button, theme === 'dark' ? 'Light' : 'Dark');
    button.setAttribute('aria-label', `Switch to ${theme === 'dark' ? 'light' : 'dark'} colours`);
    onChange();
  };
  button.addEventListener('click', () => {
    chosen = document.documentElement.dataset['theme'] === 'dark' ? 'light' : 'dark';
    remember(chosen);
    apply();
  });
  system.addEventListener('change', apply);
  apply();
}
