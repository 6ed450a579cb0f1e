// The picture as a file: its sheets copied into one SVG whose looks no longer depend on the page's style sheet, so that it can be put
// into slides or a paper as it is.
import { svg } from './svg';

/** The properties our style sheet sets on the picture; each is frozen into the copy as it is on screen. */
const FROZEN = [
  'fill', 'fill-opacity', 'stroke', 'stroke-width', 'stroke-opacity', 'stroke-dasharray', 'stroke-linecap', 'paint-order', 'opacity',
  'font-family', 'font-size', 'font-style', 'font-weight', 'text-anchor', 'dominant-baseline', 'display',
] as const;
const DROPPED = ['class', 'style', 'tabindex', 'role'];

function freeze(original: Element, copy: Element): void {
  const style = getComputedStyle(original);
  for (const name of FROZEN) {
    const value = style.getPropertyValue(name);
    if (value) copy.setAttribute(name, value);
  }
  for (const name of [...copy.getAttributeNames()]) {
    if (DROPPED.includes(name) || name.startsWith('aria-') || name.startsWith('data-')) copy.removeAttribute(name);
  }
  Array.from(original.children).forEach((child, at) => freeze(child, copy.children[at]!));
}

export function pictureText(picture: HTMLElement, title: string): string {
  const sheets = picture.querySelectorAll<SVGSVGElement>('.sheet');
  const { width, height } = sheets[0]!.viewBox.baseVal;
  const background = getComputedStyle(document.documentElement).getPropertyValue('--card').trim();
  const copy = svg('svg', { width, height, viewBox: `0 0 ${width} ${height}` }, [
    svg('title', {}, [title]), svg('rect', { width, height, fill: background }),
  ]);
  for (const sheet of sheets) {
    for (const part of sheet.children) {
      const frozen = part.cloneNode(true) as Element;
      freeze(part, frozen);
      copy.append(frozen);
    }
  }
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(copy)}\n`;
}

export function saveText(name: string, type: string, text: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  window.setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
