import type { TranslationBundle } from '@jupyterlab/translation';

import { Chart, type Span } from './chart';
import { element, setAttribute, Text } from '../ui/dom';
import { figure, gpuNumber, memoryUnit, powerOf, temperature, UNKNOWN, whole, withUnit } from '../ui/format';
import type { HolderPorts } from '../holders/ports';
import { segments, type Segment } from '../holders/segments';
import { GpuRow } from './gpuRow';
import type { Surroundings } from './holderLine';
import { HolderList } from './holderList';
import { MemoryBar } from './memoryBar';
import { memoryShares, type GpuNow, type MemoryShares } from '../stream/streamModel';
import type { Palette } from '../ui/chartBands';
import { throttleReasons } from '../ui/format';
import { gpuName, QUIET_THROTTLES, trouble } from './words';

const CHART_HEIGHT = 44;
const SPARK_HEIGHT = 18;

/** What all cards share. */
export interface CardPorts {
  readonly trans: TranslationBundle;
  readonly palette: () => Palette;
  readonly holders: HolderPorts;
  /** The user folds or unfolds a card. */
  readonly toggled: (uuid: string, open: boolean) => void;
}

/** What was last told to a card. */
interface Shown {
  readonly now: GpuNow;
  readonly around: Surroundings;
  readonly pieces: readonly Segment[];
  /** How the memory is shared out, in words. */
  readonly words: string;
}

/** One GPU: a row that unfolds into a card. */
export class GpuCard {
  readonly node: HTMLElement;
  private readonly row: GpuRow;
  private readonly spark: Chart;
  private readonly chart: Chart;
  private readonly rowBar = new MemoryBar();
  private readonly bar = new MemoryBar();
  private readonly memory = [new Text('here-text'), new Text('other-text'), new Text('free-text')] as const;
  private readonly holders: HolderList;
  private readonly facts = [new Text('power'), new Text('temperature'), new Text('clock')] as const;
  private readonly state = new Text('state', 'div');
  private readonly trans: TranslationBundle;
  private open = false;
  private shown: Shown | null = null;

  constructor(
    private readonly uuid: string,
    ports: CardPorts
  ) {
    this.trans = ports.trans;
    this.spark = new Chart('jp-gpuwidget-spark', SPARK_HEIGHT, ports.palette);
    this.chart = new Chart('jp-gpuwidget-chart', CHART_HEIGHT, ports.palette);
    this.row = new GpuRow(ports.trans, this.spark, this.rowBar);
    this.holders = new HolderList(ports.trans, ports.holders);
    this.row.node.onclick = () => {
      this.unfold(!this.open);
      ports.toggled(uuid, this.open);
    };
    const nodes = (texts: readonly Text[]): HTMLElement[] => texts.map(text => text.node);
    const body = element(
      'div',
      'body',
      this.chart.node,
      this.bar.node,
      element('div', 'memory', ...nodes(this.memory)),
      this.holders.node,
      element('div', 'facts', ...nodes(this.facts)),
      this.state.node
    );
    body.id = `jp-gpuwidget-${uuid}`;
    setAttribute(this.row.node, 'aria-controls', body.id);
    this.node = element('section', 'gpu', this.row.node, body);
    this.node.dataset.gpuUuid = uuid;
    this.holders.onToggle(() => {
      this.writeWhatIsOpen();
    });
    this.unfold(false);
  }

  /** Show or hide what is below the row. */
  unfold(open: boolean): void {
    this.open = open;
    setAttribute(this.node, 'data-open', String(open));
    this.row.open(open);
    this.writeWhatIsOpen();
  }

  /** Show `now` with what is `around` it. The charts are drawn from `span` while the card is `inSight`. */
  update(now: GpuNow, around: Surroundings, span: Omit<Span, 'uuid' | 'total'>, inSight: boolean): void {
    const { gpu, reading } = now;
    const { time } = around;
    const away = trouble(this.trans, reading, time);
    const worries = throttleReasons(
      this.trans,
      (reading.throttle ?? []).filter(word => !QUIET_THROTTLES.has(word))
    );
    setAttribute(
      this.node,
      'aria-label',
      this.trans.__('GPU %1, %2', gpuNumber(gpu), gpuName(this.trans, gpu))
    );
    this.row.update(now, time, worries);
    const parts = memoryShares(now);
    const words = this.writeMemory(parts, now);
    const pieces = segments(parts, this.holders.arrange(now, around.kernels));
    this.shown = { now, around, pieces, words };
    this.writeWhatIsOpen();
    this.writeFacts(now);
    this.writeState(now, away, worries);
    const all = { ...span, uuid: this.uuid, total: gpu.memory_total };
    this.spark.update(all, inSight);
    this.chart.update(all, inSight);
    setAttribute(
      this.chart.node,
      'aria-label',
      this.trans.__('Utilization and memory of the last %1 seconds', span.seconds)
    );
  }

  /** Draw the charts in another theme's colours. */
  recolour(): void {
    this.spark.recolour();
    this.chart.recolour();
  }

  /** Take it away. */
  dispose(): void {
    this.spark.dispose();
    this.chart.dispose();
    this.node.remove();
  }

  /** One of the two bars is seen, and the list only where the card is unfolded. */
  private writeWhatIsOpen(): void {
    if (this.shown === null) {
      return;
    }
    const { now, around, pieces, words } = this.shown;
    (this.open ? this.bar : this.rowBar).update(pieces, now.gpu.memory_total, words);
    this.holders.node.hidden = !around.listed;
    if (this.open && around.listed) {
      this.holders.update(now, around);
    }
  }

  private writeMemory(parts: MemoryShares, { gpu, reading }: GpuNow): string {
    const { here, other, used, free } = parts;
    const unit = memoryUnit([gpu.memory_total, used]);
    const [hereText, otherText, freeText] = this.memory;
    const why = reading.missing.memory_used ?? '';
    if (used === null) {
      hereText.set(this.trans.__('memory %1', UNKNOWN), why);
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

  private writeFacts({ reading }: GpuNow): void {
    const [power, heat, clock] = this.facts;
    const fact = (text: Text, value: number | null, words: string, field: string): void => {
      text.set(words, value === null ? (reading.missing[field] ?? '') : '');
    };
    fact(power, reading.power_w, powerOf(this.trans, reading.power_w, reading.power_limit_w), 'power_w');
    fact(heat, reading.temperature_c, temperature(reading.temperature_c), 'temperature_c');
    fact(clock, reading.sm_clock_mhz, withUnit(whole(reading.sm_clock_mhz), 'MHz'), 'sm_clock_mhz');
  }

  /** The line at the foot keeps its height, so that nothing moves when a clock is held down. */
  private writeState(now: GpuNow, away: [string, string] | null, worries: readonly string[]): void {
    const quiet = throttleReasons(
      this.trans,
      (now.reading.throttle ?? []).filter(word => QUIET_THROTTLES.has(word) && word !== 'idle')
    );
    const warm = away === null ? worries : [away[1]];
    const words = warm.length > 0 ? warm : quiet;
    this.state.set(words.join(', '), words.join(', '));
    setAttribute(this.state.node, 'data-warm', warm.length > 0 ? 'true' : '');
    setAttribute(this.node, 'data-away', away === null ? '' : 'true');
  }
}
