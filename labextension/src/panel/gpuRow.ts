import type { TranslationBundle } from '@jupyterlab/translation';

import type { GpuChart } from './gpuChart';
import type { MemoryBar } from './memoryBar';
import { gpuName } from './panelMessages';
import type { GpuNow, MemoryShares } from '../stream/streamModel';
import { element, setAttribute, Text } from '../ui/dom';
import { gpuNumber, memory, memoryOf, padded, whole, withUnit } from '../ui/format';

/**
 * If other processes hold at least this many bytes of a GPU, its row has a mark. A display or an idle CUDA
 * context holds less.
 */
const IN_USE = 512 * 1024 ** 2;

/** The row of a GPU: a button that expands and collapses the GPU's card. */
export class GpuRow {
  readonly node: HTMLButtonElement;
  private readonly number = new Text('gpu-number');
  private readonly name = new Text('');
  private readonly badge = new Text('gpu-badge');
  private readonly warning = new Text('gpu-warning');
  private readonly utilization = new Text('gpu-utilization');
  private readonly used = new Text('gpu-used');
  private readonly others = new Text('gpu-others');
  private readonly unavailable = new Text('gpu-unavailable');

  constructor(
    private readonly trans: TranslationBundle,
    sparkline: GpuChart,
    bar: MemoryBar
  ) {
    this.node = element(
      'button',
      'gpu-row',
      this.number.node,
      element('span', 'gpu-name', this.name.node, this.badge.node),
      sparkline.node,
      element('span', 'gpu-now', this.warning.node, this.utilization.node),
      element('span', 'gpu-usage', bar.node, this.used.node, this.others.node),
      this.unavailable.node
    );
    this.node.type = 'button';
  }

  setExpanded(expanded: boolean): void {
    setAttribute(this.node, 'aria-expanded', String(expanded));
  }

  /**
   * Show the current data. `unavailable` is a short and a long text about why there is none; `warnings` are
   * the reasons for which the GPU is slowed down by a problem.
   */
  update(
    { gpu, reading, kernel }: GpuNow,
    { used, other }: MemoryShares,
    unavailable: readonly [string, string] | null,
    warnings: readonly string[]
  ): void {
    const { trans } = this;
    this.number.set(gpuNumber(gpu), gpu.uuid);
    this.name.set(gpuName(trans, gpu), gpu.name);
    const device = kernel?.torch_device ?? '';
    const context = kernel?.context === true;
    this.badge.set(device, device === '' ? '' : badgeTitle(trans, context));
    setAttribute(this.badge.node, 'data-context', context ? 'true' : '');
    const [short, long] = unavailable ?? ['', ''];
    this.unavailable.set(short, long);
    setAttribute(this.node, 'data-away', short === '' ? '' : 'true');
    this.utilization.set(
      withUnit(padded(whole(reading.utilization), 3), '%'),
      reading.utilization === null ? (reading.missing.utilization ?? '') : trans.__('GPU utilization')
    );
    this.used.set(
      memoryOf(trans, used, gpu.memory_total),
      used === null ? (reading.missing.memory_used ?? '') : trans.__('Memory in use')
    );
    const shared = other !== null && other >= IN_USE;
    this.others.set(
      shared ? trans.__('Others') : '',
      shared ? trans.__('Other processes hold %1', memory(other)) : ''
    );
    const warned = warnings.length > 0;
    this.warning.set(warned ? '▲' : '', warnings.join(', '));
    setAttribute(this.warning.node, 'role', warned ? 'img' : '');
    setAttribute(this.warning.node, 'aria-label', warnings.join(', '));
  }
}

/** Return the tooltip of the badge with torch's name of the GPU. `context` is whether the frame is solid. */
export function badgeTitle(trans: TranslationBundle, context: boolean): string {
  return [
    trans.__('PyTorch’s name for this GPU in this notebook'),
    context
      ? trans.__('Solid frame: this notebook has a CUDA context on this GPU')
      : trans.__(
          'Dashed frame: no CUDA context of this notebook on this GPU is known yet. The first operation on the GPU creates it'
        )
  ].join('\n');
}
