import type { TranslationBundle } from '@jupyterlab/translation';

import type { GpuChart } from './gpuChart';
import type { MemoryBar } from './memoryBar';
import { gpuName } from './panelMessages';
import type { GpuNow } from '../../model/stream/streamModel';
import { element, setAttribute, setHidden, TextElement } from '../../ui/dom';
import { gpuNumber, padded, whole, withUnit } from '../../model/format';

/** What a row shows in addition to the GPU's readings. */
export interface RowContent {
  /** A short and a long text about why there is no reading; null if there is one. */
  readonly unavailable: readonly [string, string] | null;
  /** The reasons for which the GPU is slowed down by a problem. */
  readonly warnings: readonly string[];
  /** The names of those who hold the GPU's memory, the most important first. */
  readonly users: readonly string[];
  /** The default device of the active notebook; null if unknown. */
  readonly device: string | null;
}

/**
 * The row of a GPU: a button that expands and collapses the GPU's card, a button with torch's name of the GPU
 * that makes it the default device, and, while the card is collapsed, the most important figures.
 */
export class GpuRow {
  readonly node: HTMLElement;
  readonly toggle: HTMLButtonElement;
  private readonly number = new TextElement('gpu-number');
  private readonly name = new TextElement('gpu-name');
  private readonly badge = new TextElement('gpu-badge');
  private readonly chip = element('button', 'gpu-chip', this.badge.node);
  private readonly warning = new TextElement('gpu-warning');
  private readonly utilization = new TextElement('gpu-utilization');
  private readonly user = new TextElement('gpu-user');
  private readonly unavailable = new TextElement('gpu-unavailable');

  /** `choose` is called with torch's name of a GPU that is to be the default device. */
  constructor(
    private readonly trans: TranslationBundle,
    sparkline: GpuChart,
    bar: MemoryBar,
    choose: (device: string) => void
  ) {
    this.toggle = element('button', 'gpu-row', this.number.node, this.name.node);
    this.chip.type = this.toggle.type = 'button';
    this.chip.onclick = event => {
      event.stopPropagation(); // A click elsewhere in the row expands or collapses the card.
      choose(this.badge.value);
    };
    this.node = element(
      'div',
      'gpu-head',
      this.toggle,
      this.chip,
      sparkline.node,
      element('span', 'gpu-now', this.warning.node, this.utilization.node),
      bar.node,
      this.user.node,
      this.unavailable.node
    );
  }

  /** Set what a click anywhere in the row does, except on the chip. The toggle's keys are clicks as well. */
  onClick(act: () => void): void {
    this.node.onclick = act;
  }

  /** Whether the row shows who holds the GPU's memory. */
  get hasUser(): boolean {
    return this.user.value !== '';
  }

  setExpanded(expanded: boolean): void {
    setAttribute(this.toggle, 'aria-expanded', String(expanded));
  }

  /** Show the current data. */
  update({ gpu, reading, kernel }: GpuNow, { unavailable, warnings, users, device }: RowContent): void {
    const { trans } = this;
    this.number.set(gpuNumber(gpu), gpu.uuid);
    const name = gpuName(trans, gpu);
    // The row of a MIG slice is below that of its GPU, which has the model's name.
    this.name.set(gpu.mig_parent === null ? name : name.replace(/^.* MIG /, ''), gpu.name);
    setAttribute(this.toggle, 'title', gpu.name);
    const own = kernel?.torch_device ?? '';
    const isDefault = own !== '' && own === device;
    this.badge.set(own);
    setHidden(this.chip, own === '');
    setAttribute(
      this.chip,
      'title',
      own === '' ? '' : badgeTitle(trans, kernel?.context === true, isDefault)
    );
    setAttribute(this.badge.node, 'data-context', kernel?.context === true ? 'true' : '');
    setAttribute(this.chip, 'aria-pressed', String(isDefault));
    const [short, long] = unavailable ?? ['', ''];
    this.chip.disabled = short !== '';
    this.unavailable.set(short, long);
    setAttribute(this.node, 'data-away', short === '' ? '' : 'true');
    this.utilization.set(
      withUnit(padded(whole(reading.utilization), 3), '%'),
      reading.utilization === null ? (reading.missing.utilization ?? '') : trans.__('GPU utilization')
    );
    const [first = '', ...others] = users;
    this.user.set(others.length === 0 ? first : `${first} +${String(others.length)}`, users.join('\n'));
    const warned = warnings.length > 0;
    this.warning.set(warned ? '▲' : '', warnings.join(', '));
    setAttribute(this.warning.node, 'role', warned ? 'img' : '');
    setAttribute(this.warning.node, 'aria-label', warnings.join(', '));
  }
}

/**
 * Return the tooltip of the chip with torch's name of the GPU. `context` is whether its frame is solid.
 * `isDefault` is whether it is filled.
 */
export function badgeTitle(trans: TranslationBundle, context: boolean, isDefault: boolean): string {
  return [
    isDefault
      ? trans.__('Filled: the default device of this notebook')
      : trans.__('Click to make this GPU the default device of this notebook'),
    context
      ? trans.__('Solid frame: this notebook has a CUDA context on this GPU')
      : trans.__(
          'Dashed frame: no CUDA context of this notebook on this GPU is known yet. The first operation on the GPU creates it'
        )
  ].join('\n');
}
