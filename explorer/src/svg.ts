// Small helpers for SVG nodes. Attributes are written only when they change: an edit on a large grid touches few nodes.

const NAMESPACE = 'http://www.w3.org/2000/svg';

export type Attributes = Record<string, string | number | null | undefined>;

export function setAttributes(node: Element, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined) {
      node.removeAttribute(name);
    } else if (node.getAttribute(name) !== String(value)) {
      node.setAttribute(name, String(value));
    }
  }
}

export function svg<K extends keyof SVGElementTagNameMap>(
  name: K,
  attributes: Attributes = {},
  children: readonly (Node | string)[] = [],
): SVGElementTagNameMap[K] {
  const node = document.createElementNS(NAMESPACE, name);
  setAttributes(node, attributes);
  node.append(...children);
  return node;
}

export function html<K extends keyof HTMLElementTagNameMap>(
  name: K,
  attributes: Attributes = {},
  children: readonly (Node | string)[] = [],
): HTMLElementTagNameMap[K] {
  const node = document.createElement(name);
  setAttributes(node, attributes);
  node.append(...children);
  return node;
}

/** The element of the page with this id; the markup in index.html promises it. */
export function byId<T extends Element = HTMLElement>(id: string): T {
  const node = document.getElementById(id);
  if (!node) throw new Error(`The page has no element with the id "${id}".`);
  return node as Element as T;
}

export function setText(node: Element, text: string): void {
  if (node.textContent !== text) node.textContent = text;
}
