import type { TranslationBundle } from '@jupyterlab/translation';

import { metricText } from '../../model/metrics';
import { PANEL_METRICS } from '../../wire/metricTable';
import { GpuChart, type ChartData, type ChartPoint } from './gpuChart';
import { HolderList, type HolderContext, type OpenHolder } from './holderList';
import { GpuRow } from './gpuRow';
import { MemoryBar, memorySegments, type Segment } from './memoryBar';
import { MemoryLine } from './memoryLine';
import { gpuName, throttling, unavailability, unknownValues } from './panelMessages';
import type { IPanelState } from '../../model/panelState';
import { holderName, type Holder } from '../../model/memory/holders';
import { memoryShares, type GpuNow } from '../../model/stream/streamModel';
import { element, setAttribute, setHidden, TextElement } from '../../ui/dom';
import {
  duration,
  gpuNumber,
  memory,
  memoryLevel,
  memoryOf,
  moment,
  padded,
  whole,
  withUnit
} from '../../model/format';
import type { Palette } from '../../ui/chartBands';

const CHART_HEIGHT = 32;
const SPARKLINE_HEIGHT = 16;

/** The dependencies that all cards share. */
export interface CardContext {
  readonly trans: TranslationBundle;
  readonly palette: () => Palette;
  readonly holders: OpenHolder;
  readonly panelState: IPanelState;
  /** Make a device the default device of the active notebook. */
  readonly choose: (device: string) => void;
}

/** The data with which a card was last updated. */
interface CardContent {
  readonly now: GpuNow;
  readonly context: HolderContext;
  readonly segments: readonly Segment[];
  readonly chart: ChartData;
  readonly visible: boolean;
  readonly state: CardState;
}

/** Why a GPU has no values, and why its clock is held down. */
interface CardState {
  readonly unavailable: readonly [string, string] | null;
  /** The reasons that are a problem, and the others. */
  readonly warnings: readonly string[];
  readonly others: readonly string[];
}

/** One GPU: a row that expands to a card. */
export class GpuCard {
  readonly node: HTMLElement;
  private readonly row: GpuRow;
  private readonly sparkline: GpuChart;
  private readonly chart: GpuChart;
  private readonly rowBar = new MemoryBar();
  private readonly bar = new MemoryBar();
  private readonly memory: MemoryLine;
  private readonly holders: HolderList;
  private readonly facts = PANEL_METRICS.map(
    metric => [metric, new TextElement(metric.kind === 'power' ? 'gpu-power' : '')] as const
  );
  private readonly reasons = new TextElement('gpu-reasons', 'div');
  private readonly state = new TextElement('gpu-state', 'div');
  private readonly trans: TranslationBundle;
  private expanded = false;
  private content: CardContent | null = null;

  constructor(
    private readonly uuid: string,
    { trans, palette, holders, panelState, choose }: CardContext
  ) {
    this.trans = trans;
    this.sparkline = new GpuChart('jp-gpuwidget-gpu-sparkline', SPARKLINE_HEIGHT, palette);
    this.chart = new GpuChart('jp-gpuwidget-gpu-chart', CHART_HEIGHT, palette, (point, total) =>
      chartText(trans, point, total)
    );
    this.row = new GpuRow(trans, this.sparkline, this.rowBar, choose);
    this.memory = new MemoryLine(trans);
    this.holders = new HolderList(trans, holders, panelState, `holders ${uuid}`);
    this.row.onClick(() => {
      this.setExpanded(!this.expanded);
      panelState.setExpanded(uuid, this.expanded);
    });
    const body = element(
      'div',
      'gpu-body',
      this.chart.node,
      this.bar.node,
      this.memory.node,
      this.holders.node,
      element('div', 'gpu-facts', ...this.facts.map(([, text]) => text.node)),
      this.reasons.node,
      this.state.node
    );
    body.id = `jp-gpuwidget-gpu-${uuid}`;
    setAttribute(this.row.toggle, 'aria-controls', body.id);
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

  /** Whether the row shows who holds the GPU's memory. */
  get hasUser(): boolean {
    return this.row.hasUser;
  }

  /** Show the current data of the GPU. If the card is `visible`, draw the charts from `data`. */
  update(
    now: GpuNow,
    context: HolderContext,
    data: Omit<ChartData, 'uuid' | 'total'>,
    visible: boolean
  ): void {
    const { trans } = this;
    const { gpu, reading } = now;
    const unavailable = unavailability(trans, reading, context.time);
    const { warnings, others } = throttling(trans, reading);
    setAttribute(this.node, 'aria-label', trans.__('GPU %1, %2', gpuNumber(gpu), gpuName(trans, gpu)));
    const parts = memoryShares(now);
    const holders = this.holders.sort(now, context.kernels);
    const users = holders.filter(({ kind }) => kind !== 'unattributed');
    this.row.update(now, {
      unavailable,
      warnings,
      users: context.listed ? users.map(holder => this.userName(holder, context)) : [],
      device: context.device
    });
    this.memory.update(parts, gpu.memory_total, reading.missing.memory_used ?? '');
    setAttribute(this.node, 'data-level', memoryLevel(parts.used, gpu.memory_total));
    setAttribute(this.node, 'data-away', reading.lost_since !== null ? 'lost' : unavailable ? 'silent' : '');
    this.content = {
      now,
      context,
      segments: memorySegments(parts, holders),
      chart: { ...data, uuid: this.uuid, total: gpu.memory_total },
      visible,
      state: { unavailable, warnings, others }
    };
    this.updateExpandedPart();
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

  /** Update what only an expanded card shows, or what only the row of a collapsed one shows. */
  private updateExpandedPart(): void {
    if (this.content === null) {
      return;
    }
    const { now, context, segments, chart, visible, state } = this.content;
    const { gpu, reading } = now;
    (this.expanded ? this.bar : this.rowBar).update(
      segments,
      now.gpu.memory_total,
      this.trans.__('Memory: %1', this.memory.text)
    );
    const shown = this.expanded ? this.chart : this.sparkline;
    shown.update(chart, visible);
    setAttribute(
      shown.node,
      'aria-label',
      this.trans.__(
        'Chart of the last %1, now: GPU utilization %2, memory %3',
        duration(chart.seconds),
        withUnit(whole(reading.utilization), '%'),
        memoryOf(this.trans, memoryShares(now).used, gpu.memory_total)
      )
    );
    if (!this.expanded) {
      return;
    }
    setHidden(this.holders.node, !context.listed);
    if (context.listed) {
      this.holders.update(now, context);
    }
    this.updateFacts(now);
    this.reasons.set(state.unavailable === null ? unknownValues(this.trans, reading) : '');
    this.updateState(state);
  }

  private userName(holder: Holder, { kernels }: HolderContext): string {
    return holder.active ? this.trans.__('you') : holderName(this.trans, holder, kernels.values())[0];
  }

  private updateFacts({ reading }: GpuNow): void {
    const { trans } = this;
    for (const [metric, text] of this.facts) {
      const value = reading[metric.name];
      const shown = metricText(trans, metric.name, value, reading.power_limit_w);
      text.set(
        // The power is aligned at the left.
        metric.kind === 'power' ? shown : padded(shown, metric.kind === 'clock' ? 8 : 6),
        value === null ? (reading.missing[metric.name] ?? '') : ''
      );
    }
  }

  /**
   * Update the line at the bottom of the card: why there are no values, or why the clock is held down. There
   * is always space for one line, so that nothing moves when the GPU is throttled.
   */
  private updateState({ unavailable, warnings, others }: CardState): void {
    const warm = unavailable !== null || warnings.length > 0;
    const reasons = [...warnings, ...others].join(', ');
    const throttled = reasons === '' ? '' : this.trans.__('Throttled (%1)', reasons);
    this.state.set(unavailable?.[1] ?? (warm ? `▲ ${throttled}` : throttled));
    setAttribute(this.state.node, 'data-warm', warm ? 'true' : '');
  }
}

/** Return the text of a chart at one time: the time, the values, and the cell that ran. */
function chartText(
  trans: TranslationBundle,
  { time, utilization, memory: percent, band }: ChartPoint,
  total: number | null
): string {
  const used = percent === null || total === null ? null : (percent / 100) * total;
  const values =
    utilization === null && used === null
      ? [trans.__('no data')]
      : [withUnit(whole(utilization), '%'), memory(used)];
  return [moment(time, time), ...values, ...(band === null ? [] : [band])].join(' · ');
}
