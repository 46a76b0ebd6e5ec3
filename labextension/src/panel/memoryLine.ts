import type { TranslationBundle } from '@jupyterlab/translation';

import type { MemoryShares } from '../stream/streamModel';
import { element, setHidden, Text } from '../ui/dom';
import { figure, memoryUnit, UNKNOWN } from '../ui/format';

/** One share of a GPU's memory: what it is, in full and in short for a narrow panel, and its size. */
class Share {
  readonly node: HTMLElement;
  private readonly label = new Text('gpu-share-label');
  private readonly short = new Text('gpu-share-short');
  private readonly size = new Text('gpu-share-size');

  constructor() {
    this.node = element('span', 'gpu-share', this.label.node, this.short.node, this.size.node);
  }

  /** The share as one text; empty if it is hidden. */
  get text(): string {
    return this.node.hidden ? '' : `${this.label.value} ${this.size.value}`;
  }

  set(label: string, short: string, size: string, title = ''): void {
    setHidden(this.node, size === '');
    this.label.set(label);
    this.short.set(short, label);
    this.size.set(size, title);
  }
}

/** The line of a GPU's card with its memory: this notebook's, that of other processes, and free memory. */
export class MemoryLine {
  readonly node: HTMLElement;
  private readonly notebook = new Share();
  private readonly others = new Share();
  private readonly free = new Share();

  constructor(private readonly trans: TranslationBundle) {
    this.node = element('div', 'gpu-memory', this.notebook.node, this.others.node, this.free.node);
  }

  /** The line as one text. */
  get text(): string {
    return [this.notebook, this.others, this.free]
      .map(({ text }) => text)
      .filter(text => text !== '')
      .join(', ');
  }

  /** Show the shares of a GPU with `total` bytes. `missing` is the reason if its used memory is unknown. */
  update({ here, other, used, free }: MemoryShares, total: number | null, missing: string): void {
    const { trans } = this;
    const unit = memoryUnit([total, used]);
    // The unit follows the last size only.
    const last = (size: number | null): string => `${figure(size, unit)} ${unit.name}`;
    const before = (size: number | null): string => (free === null ? last(size) : figure(size, unit));
    if (used === null) {
      this.notebook.set(trans.__('Memory'), trans.__('Memory'), UNKNOWN, missing);
      this.others.set('', '', '');
    } else if (here === null || other === null) {
      this.notebook.set(trans.__('In use'), trans.__('In use'), before(used));
      this.others.set('', '', '');
    } else {
      this.notebook.set(trans.__('This notebook'), trans.__('Mine'), figure(here, unit));
      this.others.set(trans.__('Other processes'), trans.__('Others'), before(other));
    }
    this.free.set(trans.__('Free'), trans.__('Free'), free === null ? '' : last(free));
  }
}
