// The panels under the picture. Those in sight are drawn with it; the others are busy until the hand rests, so that an edit costs
// what it shows.
import { byId } from './svg';

export class Panels {
  private readonly away = new Set<Element>();
  /** The last drawing asked for, by the element it fills. */
  private readonly waiting = new Map<Element, () => void>();

  constructor() {
    const watch = new IntersectionObserver((changes) => {
      for (const { target, isIntersecting } of changes) {
        if (isIntersecting) this.away.delete(target);
        else this.away.add(target);
      }
      if (changes.some(({ isIntersecting }) => isIntersecting)) this.catchUp();
    });
    for (const card of document.querySelectorAll('.card')) watch.observe(card);
  }

  /** Fills the element with this id, now or later. */
  draw(id: string, act: () => void): void {
    const node = byId(id);
    if (this.away.has(node.closest('.card')!)) {
      this.waiting.set(node, act);
      node.setAttribute('aria-busy', 'true');
    } else {
      this.fill(node, act);
    }
  }

  catchUp(): void {
    for (const [node, act] of this.waiting) this.fill(node, act);
  }

  private fill(node: Element, act: () => void): void {
    this.waiting.delete(node);
    node.removeAttribute('aria-busy');
    act();
  }
}
