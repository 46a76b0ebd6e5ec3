import type { TranslationBundle } from '@jupyterlab/translation';

import type { MemoryShares } from '../../model/stream/streamModel';
import { element, setAttribute, TextElement } from '../../ui/dom';
import { memoryLevel, memoryUnit, padded, shortFigure, UNKNOWN } from '../../model/format';

/** The line of a GPU's card with its memory: this notebook's, that of other processes, and free memory. */
export class MemoryLine {
  readonly node: HTMLElement;
  private readonly used = new TextElement('');
  private readonly free = new TextElement('gpu-free');

  constructor(private readonly trans: TranslationBundle) {
    this.node = element('div', 'gpu-memory', this.used.node, this.free.node);
  }

  /** The line as one text. */
  get text(): string {
    return [this.used, this.free]
      .map(({ value }) => value)
      .filter(text => text !== '')
      .join(', ');
  }

  /** Show the shares of a GPU with `total` bytes. `missing` is the reason if its used memory is unknown. */
  update({ here, other, used, free }: MemoryShares, total: number | null, missing: string): void {
    const { trans } = this;
    const unit = memoryUnit([total, used]);
    // The unit follows the first figure of the line only: two units would not fit into a narrow panel.
    const first = (size: number): string => `${shortFigure(size, unit)} ${unit.name}`;
    if (used === null) {
      this.used.set(trans.__('Memory: %1', UNKNOWN), missing);
    } else if (here === null || other === null) {
      this.used.set(trans.__('%1 in use', first(used)));
    } else {
      this.used.set(trans.__('%1 mine · %2 others', first(here), shortFigure(other, unit)));
    }
    const digits = shortFigure(total ?? 0, unit).replace('.', '').length;
    this.free.set(free === null ? '' : trans.__('%1 free', padded(shortFigure(free, unit), digits)));
    setAttribute(this.node, 'data-level', memoryLevel(used, total));
  }
}
