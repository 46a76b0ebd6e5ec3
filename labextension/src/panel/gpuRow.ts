import type { TranslationBundle } from '@jupyterlab/translation';
import { caretRightIcon } from '@jupyterlab/ui-components';

import type { Chart } from './chart';
import { element, setAttribute, Text } from '../ui/dom';
import { gpuNumber, padded, whole, withUnit } from '../ui/format';
import type { MemoryBar } from './memoryBar';
import type { GpuNow } from '../stream/streamModel';
import { gpuName, trouble } from './words';

/** The line that every GPU has: a button that folds and unfolds the rest of it. */
export class GpuRow {
  readonly node: HTMLButtonElement;
  private readonly number = new Text('number');
  private readonly name = new Text('name');
  private readonly badge = new Text('badge');
  private readonly warm = new Text('mark');
  private readonly utilization = new Text('utilization');
  private readonly away = new Text('away');

  constructor(
    private readonly trans: TranslationBundle,
    spark: Chart,
    bar: MemoryBar
  ) {
    const caret = caretRightIcon.element({ tag: 'span', className: 'jp-gpuwidget-caret' });
    const who = element('span', 'who', this.name.node, this.badge.node);
    const now = element('span', 'now', this.warm.node, this.utilization.node);
    this.node = element(
      'button',
      'row',
      caret,
      this.number.node,
      who,
      spark.node,
      now,
      bar.node,
      this.away.node
    );
    this.node.type = 'button';
  }

  /** Say whether the rest of it is shown. */
  open(open: boolean): void {
    setAttribute(this.node, 'aria-expanded', String(open));
  }

  /** Show `now`; `worries` are what needs a person. */
  update(now: GpuNow, time: number, worries: readonly string[]): void {
    const { gpu, reading, kernel } = now;
    this.number.set(gpuNumber(gpu), gpu.uuid);
    this.name.set(gpuName(this.trans, gpu), gpu.name);
    const device = kernel?.torch_device ?? '';
    const context = kernel?.context === true;
    this.badge.set(
      device,
      device === ''
        ? ''
        : context
          ? this.trans.__('This notebook has a CUDA context here')
          : this.trans.__("This notebook's name for it")
    );
    setAttribute(this.badge.node, 'data-context', context ? 'true' : '');
    const [short, long] = trouble(this.trans, reading, time) ?? ['', ''];
    this.away.set(short, long);
    setAttribute(this.node, 'data-away', short === '' ? '' : 'true');
    this.utilization.set(
      withUnit(padded(whole(reading.utilization), 3), '%'),
      reading.utilization === null ? (reading.missing.utilization ?? '') : ''
    );
    this.warm.set(worries.length > 0 ? '▲' : '', worries.join(', '));
  }
}
