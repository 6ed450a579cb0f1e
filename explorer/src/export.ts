// The picture as a file: a copy of the SVG whose looks no longer depend on the page's style sheet, so that it can be put
// into slides or a paper as it is.
import { svg } from './svg';

/** The properties our style sheet sets on the picture; each is frozen into the copy as it is on screen. */
const FROZEN = [
  'fill', 'fill-opacity', 'stroke', 'stroke-width', 'stroke-opacity', 'stroke-dasharray', 'stroke-linecap', 'opacity',
  'font-family', 'font-size', 'font-style', 'font-weight', 'text-anchor', 'dominant-baseline', 'display',
] as const;
const DROPPED = ['class', 'style', 'tabindex', 'role', 'data-arrangement'];

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

export function pictureText(picture: SVGSVGElement, title: string): string {
  const copy = picture.cloneNode(true) as SVGSVGElement;
  freeze(picture, copy);
  const { width, height } = picture.viewBox.baseVal;
  const background = getComputedStyle(document.documentElement).getPropertyValue('--card').trim();
  copy.prepend(svg('title', {}, [title]), svg('rect', { width, height, fill: background }));
  copy.setAttribute('xmlns', 'http://www.w3.org/2000/svg');
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(copy)}\n`;
}

export function saveText(name: string, type: string, text: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  window.setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
