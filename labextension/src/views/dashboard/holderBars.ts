import type { TranslationBundle } from '@jupyterlab/translation';

import { holderName, holdersOf, kernelsOf, sortedHolders, type Holder } from '../../model/memory/holders';
import { MemoryBar, memorySegments } from '../panel/memoryBar';
import { unavailability } from '../panel/panelMessages';
import { memoryShares, type GpuNow } from '../../model/stream/streamModel';
import { element, KeyedList, setAttribute, TextElement, type ListItem } from '../../ui/dom';
import { gpuNumber, memory } from '../../model/format';
import type { MemoryOwnership } from '../../wire/wire';

/** Who holds the memory of each GPU now: a stacked bar, and the holders beside it, in the same order. */
export class HolderBars {
  readonly node: HTMLElement;
  private readonly rows = new KeyedList<Row>('dashboard-holder-rows', () => new Row(), 'div');

  constructor(private readonly trans: TranslationBundle) {
    this.node = element(
      'section',
      'dashboard-holders',
      element('h3', 'dashboard-chart-title', trans.__('Held by')),
      this.rows.node
    );
  }

  /** Show the holders of these GPUs. */
  update(gpus: readonly GpuNow[], usage: MemoryOwnership | null): void {
    const kernels = kernelsOf(usage);
    setAttribute(this.node, 'data-empty', gpus.length === 0 ? 'true' : '');
    this.rows.arrange(gpus.map(({ gpu }) => gpu.uuid)).forEach((row, index) => {
      const now = gpus[index];
      if (now !== undefined) {
        const holders =
          now.usage === null ? [] : sortedHolders(holdersOf(now.usage, kernels, now.activeKernelId), []);
        const shares = memoryShares(now);
        const names = holders
          // Without another holder, memory of an unknown process is what the bar shows as used.
          .filter(
            ({ memory, kind }, _, { length }) => memory !== 0 && (kind !== 'unattributed' || length > 1)
          )
          .map(holder => `${holderName(this.trans, holder, kernels.values())[0]} ${memory(holder.memory)}`);
        const [problem = null] = unavailability(this.trans, now.reading, NaN) ?? [];
        row.update(
          now,
          holders,
          problem ?? [this.trans.__('%1 free', memory(shares.free)), ...names].join(' · ')
        );
      }
    });
  }
}

/** The holders of one GPU. */
class Row implements ListItem {
  readonly node: HTMLElement;
  private readonly number = new TextElement('');
  private readonly bar = new MemoryBar();
  private readonly text = new TextElement('dashboard-holder-names');

  constructor() {
    this.node = element('div', 'dashboard-holder-row', this.number.node, this.bar.node, this.text.node);
  }

  update(now: GpuNow, holders: readonly Holder[], text: string): void {
    this.number.set(gpuNumber(now.gpu));
    this.bar.update(memorySegments(memoryShares(now), holders), now.gpu.memory_total, text);
    this.text.set(text, text);
  }
}
