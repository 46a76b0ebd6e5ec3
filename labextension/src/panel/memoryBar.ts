import { element, setAttribute } from '../ui/dom';
import type { Shares } from '../stream/model';

/** The memory of one GPU as a bar: this notebook, others, free. */
export class MemoryBar {
  readonly node: HTMLElement;
  private readonly here = element('i', 'here');
  private readonly other = element('i', 'other');

  constructor() {
    this.node = element('span', 'bar', this.other, this.here);
    this.node.setAttribute('role', 'img');
  }

  /** Show `shares` of `total` bytes, said in `words`; what is nobody's for certain is drawn as others'. */
  update(shares: Shares, total: number | null, words: string): void {
    const percent = (size: number | null): string =>
      size === null || total === null || total <= 0 ? '0' : (size / total).toFixed(4);
    // A transform, which moves pixels and lays nothing out.
    setAttribute(this.here, 'style', `transform: scaleX(${percent(shares.here)})`);
    setAttribute(this.other, 'style', `transform: scaleX(${percent(shares.used)})`);
    setAttribute(this.node, 'aria-label', words);
  }
}
