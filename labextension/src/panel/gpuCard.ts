import type { TranslationBundle } from '@jupyterlab/translation';
import { caretRightIcon } from '@jupyterlab/ui-components';

import { PANEL_METRICS, type MetricKind } from '../metricTable';
import { GpuChart, type ChartData } from './gpuChart';
import { HolderList, type HolderContext, type OpenHolder } from './holderList';
import { MemoryBar, memorySegments, type Segment } from './memoryBar';
import { EXPECTED_THROTTLES, gpuName, IDLE_THROTTLE, unavailability } from './panelMessages';
import type { PanelState } from './panelState';
import { memoryShares, type GpuNow, type MemoryShares } from '../stream/streamModel';
import { element, setAttribute, Text } from '../ui/dom';
import {
  figure,
  gpuNumber,
  memoryUnit,
  padded,
  powerOf,
  temperature,
  UNKNOWN,
  whole,
  withUnit,
  throttleReasons
} from '../ui/format';
import type { Palette } from '../ui/chartBands';
import type { Reading } from '../wire';

const CHART_HEIGHT = 44;
const SPARKLINE_HEIGHT = 18;

/** The dependencies that all cards share. */
export interface CardContext {
  readonly trans: TranslationBundle;
  readonly palette: () => Palette;
  readonly holders: OpenHolder;
  readonly panelState: PanelState;
}

/** The data with which a card was last updated. */
interface CardContent {
  readonly now: GpuNow;
  readonly context: HolderContext;
  readonly segments: readonly Segment[];
  /** The memory shares as one text. */
  readonly memory: string;
}

/** One GPU: a row that expands to a card. */
export class GpuCard {
  readonly node: HTMLElement;
  private readonly row: GpuRow;
  private readonly sparkline: GpuChart;
  private readonly chart: GpuChart;
  private readonly rowBar = new MemoryBar();
  private readonly bar = new MemoryBar();
  private readonly memory = [new Text(''), new Text(''), new Text('')] as const;
  private readonly holders: HolderList;
  private readonly facts = PANEL_METRICS.map(
    metric => [metric, new Text(metric.kind === 'power' ? 'gpu-power' : '')] as const
  );
  private readonly state = new Text('gpu-state', 'div');
  private readonly trans: TranslationBundle;
  private expanded = false;
  private content: CardContent | null = null;

  constructor(
    private readonly uuid: string,
    { trans, palette, holders, panelState }: CardContext
  ) {
    this.trans = trans;
    this.sparkline = new GpuChart('jp-gpuwidget-gpu-sparkline', SPARKLINE_HEIGHT, palette);
    this.chart = new GpuChart('jp-gpuwidget-gpu-chart', CHART_HEIGHT, palette);
    this.row = new GpuRow(trans, this.sparkline, this.rowBar);
    this.holders = new HolderList(trans, holders, panelState, `holders ${uuid}`);
    this.row.node.onclick = () => {
      this.setExpanded(!this.expanded);
      panelState.setExpanded(uuid, this.expanded);
    };
    const nodes = (texts: readonly Text[]): HTMLElement[] => texts.map(text => text.node);
    const body = element(
      'div',
      'gpu-body',
      this.chart.node,
      this.bar.node,
      element('div', 'gpu-memory', ...nodes(this.memory)),
      this.holders.node,
      element('div', 'gpu-facts', ...this.facts.map(([, text]) => text.node)),
      this.state.node
    );
    body.id = `jp-gpuwidget-gpu-${uuid}`;
    setAttribute(this.row.node, 'aria-controls', body.id);
    this.node = element('section', 'gpu-card', this.row.node, body);
    this.node.dataset.gpuUuid = uuid;
    this.setExpanded(false);
  }

  /** Expand the card, or collapse it to its row. */
  setExpanded(expanded: boolean): void {
    this.expanded = expanded;
    setAttribute(this.node, 'data-open', String(expanded));
    this.row.setExpanded(expanded);
    this.updateExpandedPart();
  }

  /** Show the current data of the GPU. If the card is `visible`, draw the charts from `data`. */
  update(
    now: GpuNow,
    context: HolderContext,
    data: Omit<ChartData, 'uuid' | 'total'>,
    visible: boolean
  ): void {
    const { gpu, reading } = now;
    const unavailable = unavailability(this.trans, reading, context.time);
    const warnings = throttleReasons(
      this.trans,
      (reading.throttle ?? []).filter(reason => !EXPECTED_THROTTLES.has(reason))
    );
    setAttribute(
      this.node,
      'aria-label',
      this.trans.__('GPU %1, %2', gpuNumber(gpu), gpuName(this.trans, gpu))
    );
    this.row.update(now, unavailable, warnings);
    const parts = memoryShares(now);
    const memory = this.updateMemory(parts, now);
    const segments = memorySegments(parts, this.holders.sort(now, context.kernels));
    this.content = { now, context, segments, memory };
    this.updateExpandedPart();
    this.updateFacts(now);
    this.updateState(now, unavailable, warnings);
    const chartData = { ...data, uuid: this.uuid, total: gpu.memory_total };
    this.sparkline.update(chartData, visible);
    this.chart.update(chartData, visible);
    setAttribute(
      this.chart.node,
      'aria-label',
      this.trans.__('Utilization and memory of the last %1 seconds', data.seconds)
    );
  }

  /** Redraw the charts in the colors of the current theme. */
  redraw(): void {
    this.sparkline.redraw();
    this.chart.redraw();
  }

  /** Remove the card. */
  dispose(): void {
    this.sparkline.dispose();
    this.chart.dispose();
    this.node.remove();
  }

  /**
   * Update the visible parts. If the card is expanded, these are the card's memory bar and its list of
   * holders; otherwise, the memory bar in the row.
   */
  private updateExpandedPart(): void {
    if (this.content === null) {
      return;
    }
    const { now, context, segments, memory } = this.content;
    (this.expanded ? this.bar : this.rowBar).update(segments, now.gpu.memory_total, memory);
    this.holders.node.hidden = !context.listed;
    if (this.expanded && context.listed) {
      this.holders.update(now, context);
    }
  }

  /**
   * Update the texts with the memory shares of this notebook, of others and of free memory, and return them
   * as one text.
   */
  private updateMemory(parts: MemoryShares, { gpu, reading }: GpuNow): string {
    const { here, other, used, free } = parts;
    const unit = memoryUnit([gpu.memory_total, used]);
    const [hereText, otherText, freeText] = this.memory;
    if (used === null) {
      hereText.set(this.trans.__('memory %1', UNKNOWN), reading.missing.memory_used ?? '');
      otherText.set('');
    } else if (here === null) {
      hereText.set(
        this.trans.__('%1 used', figure(used, unit)),
        this.trans.__('Which part of it is this notebook’s is not known')
      );
      otherText.set('');
    } else {
      hereText.set(this.trans.__('%1 here', figure(here, unit)), this.trans.__('Held by this notebook'));
      otherText.set(this.trans.__('%1 other', figure(other, unit)), this.trans.__('Held by others'));
    }
    freeText.set(free === null ? '' : this.trans.__('%1 %2 free', figure(free, unit), unit.name));
    return this.memory
      .map(text => text.value)
      .filter(text => text !== '')
      .join(', ');
  }

  private updateFacts({ reading }: GpuNow): void {
    for (const [metric, text] of this.facts) {
      const value = reading[metric.name];
      text.set(
        this.factText(metric.kind, value, reading),
        value === null ? (reading.missing[metric.name] ?? '') : ''
      );
    }
  }

  private factText(kind: MetricKind, value: number | null, reading: Reading): string {
    switch (kind) {
      case 'power':
        return powerOf(this.trans, value, reading.power_limit_w);
      case 'temperature':
        return temperature(value);
      case 'clock':
        return withUnit(whole(value), 'MHz');
      default:
        return withUnit(whole(value), '%');
    }
  }

  /**
   * Update the line at the bottom of the card, which shows warnings and throttle reasons. Its height is
   * fixed, so that nothing moves when the GPU is throttled.
   */
  private updateState(
    now: GpuNow,
    unavailable: readonly [string, string] | null,
    warnings: readonly string[]
  ): void {
    const expected = throttleReasons(
      this.trans,
      (now.reading.throttle ?? []).filter(
        reason => EXPECTED_THROTTLES.has(reason) && reason !== IDLE_THROTTLE
      )
    );
    const warm = unavailable === null ? warnings : [unavailable[1]];
    const text = (warm.length > 0 ? warm : expected).join(', ');
    this.state.set(text, text);
    setAttribute(this.state.node, 'data-warm', warm.length > 0 ? 'true' : '');
    setAttribute(this.node, 'data-away', unavailable === null ? '' : 'true');
  }
}

/** The row of a GPU: a button that expands and collapses the GPU's card. */
class GpuRow {
  readonly node: HTMLButtonElement;
  private readonly number = new Text('gpu-number');
  private readonly name = new Text('');
  private readonly badge = new Text('gpu-badge');
  private readonly warning = new Text('gpu-warning');
  private readonly utilization = new Text('gpu-utilization');
  private readonly unavailable = new Text('gpu-unavailable');

  constructor(
    private readonly trans: TranslationBundle,
    sparkline: GpuChart,
    bar: MemoryBar
  ) {
    const caret = caretRightIcon.element({ tag: 'span', className: 'jp-gpuwidget-panel-caret' });
    this.node = element(
      'button',
      'gpu-row',
      caret,
      this.number.node,
      element('span', 'gpu-name', this.name.node, this.badge.node),
      sparkline.node,
      element('span', 'gpu-now', this.warning.node, this.utilization.node),
      bar.node,
      this.unavailable.node
    );
    this.node.type = 'button';
  }

  setExpanded(expanded: boolean): void {
    setAttribute(this.node, 'aria-expanded', String(expanded));
  }

  update(
    { gpu, reading, kernel }: GpuNow,
    unavailable: readonly [string, string] | null,
    warnings: readonly string[]
  ): void {
    this.number.set(gpuNumber(gpu), gpu.uuid);
    this.name.set(gpuName(this.trans, gpu), gpu.name);
    const device = kernel?.torch_device ?? '';
    const context = kernel?.context === true;
    const title = context
      ? this.trans.__('This notebook has a CUDA context here')
      : this.trans.__("This notebook's name for it");
    this.badge.set(device, device === '' ? '' : title);
    setAttribute(this.badge.node, 'data-context', context ? 'true' : '');
    const [short, long] = unavailable ?? ['', ''];
    this.unavailable.set(short, long);
    setAttribute(this.node, 'data-away', short === '' ? '' : 'true');
    this.utilization.set(
      withUnit(padded(whole(reading.utilization), 3), '%'),
      reading.utilization === null ? (reading.missing.utilization ?? '') : ''
    );
    this.warning.set(warnings.length > 0 ? '▲' : '', warnings.join(', '));
  }
}
