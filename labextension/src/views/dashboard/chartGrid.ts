import { bandAt } from '../../ui/chartBands';
import { byReason } from '../panel/panelMessages';
import { element, setHidden, TextElement, VisibilityTracker } from '../../ui/dom';
import { duration, moment, UNKNOWN } from '../../model/format';
import { columnsFor } from './columns';
import { legendSwatch } from './gpuColors';
import { MetricChart, type ChartOptions, type Frame } from './metricChart';
import { sectionOf, sectionTitles } from '../../model/metrics';
import { metricTexts, type MetricName, type MetricSection } from '../../wire/metricTable';

const POINTER_DISTANCE_PX = 14;
const TOOLTIP_MARGIN_PX = 4;
/** If there are more GPUs than this, the tooltip has two columns. */
const MAX_TOOLTIP_ROWS = 8;
/**
 * If each point of a chart covers a step of at least this many seconds, the tooltip shows the step's length.
 */
const LONG_STEP_S = 2;

/** The charts of one section, below its title. */
interface SectionView {
  readonly node: HTMLElement;
  readonly title: HTMLElement;
  readonly grid: HTMLElement;
}

/** The dependencies of the grid. */
interface GridOptions extends Omit<ChartOptions, 'hover' | 'focus'> {
  /** What is shown beside the chart of the memory. */
  readonly holders: HTMLElement;
}

/** The charts of the selected metrics. Only visible charts are drawn. */
export class ChartGrid {
  readonly node: HTMLElement;
  /** The scrolled area, which receives key presses. */
  readonly scroll = element('div', 'dashboard-charts');
  private readonly sections = new Map<MetricSection, SectionView>();
  /** The metrics that no GPU has, and why. They have no chart. */
  private readonly missing = new TextElement('');
  private readonly missingReasons = new TextElement('dashboard-missing-reasons', 'div');
  private readonly missingView = element(
    'details',
    'dashboard-missing',
    element('summary', '', this.missing.node),
    this.missingReasons.node
  );
  private readonly charts = new Map<MetricName, MetricChart>();
  private readonly visibility: VisibilityTracker;
  private readonly tooltip: Tooltip;
  private readonly observer: ResizeObserver;
  private enlarged: MetricName | null = null;
  private frame: Frame | null = null;
  private focused: string | null = null;
  /** The chart whose values the tooltip shows. */
  private hovered: MetricChart | null = null;
  private row: number | null = null;

  constructor(private readonly options: GridOptions) {
    for (const [section, text] of sectionTitles(options.trans)) {
      const title = element('h2', 'dashboard-section-title', text);
      const grid = element('div', 'dashboard-section-charts');
      const node = element('section', 'dashboard-section', title, grid);
      this.sections.set(section, { node, title, grid });
      this.scroll.append(node);
    }
    this.scroll.append(this.missingView);
    this.node = element('div', 'dashboard-chart-area', this.scroll);
    this.tooltip = new Tooltip(this.node);
    this.node.append(this.tooltip.node);
    this.visibility = new VisibilityTracker(() => {
      this.drawVisible();
    });
    this.observer = new ResizeObserver(() => {
      this.arrange();
    });
    this.observer.observe(this.scroll);
    this.node.addEventListener('mousemove', ({ clientX, clientY }) => {
      if (this.hovered !== null) {
        const { left, top } = this.node.getBoundingClientRect();
        this.tooltip.move(clientX - left, clientY - top);
      }
    });
  }

  /** The time at the shared cursor; null without a cursor. */
  get cursorTime(): number | null {
    return this.row === null ? null : (this.frame?.axis.times[this.row] ?? null);
  }

  /** Show charts for these metrics in this order. */
  setMetrics(names: readonly MetricName[]): void {
    if (names.join() === [...this.charts.keys()].join()) {
      return;
    }
    const previous = new Map(this.charts);
    this.charts.clear();
    for (const name of names) {
      const chart = previous.get(name) ?? this.createChart(name);
      previous.delete(name);
      this.charts.set(name, chart);
    }
    for (const chart of previous.values()) {
      this.visibility.unobserve(chart.node);
      chart.dispose();
    }
    for (const [section, { grid }] of this.sections) {
      const shown = names.filter(name => sectionOf(name) === section);
      const nodes = shown.flatMap(name => this.charts.get(name)?.node ?? []);
      grid.replaceChildren(...nodes, ...(shown.includes('memory_used') ? [this.options.holders] : []));
    }
    this.updateShown();
  }

  /** Show only the chart of one metric; null shows all charts. */
  setEnlarged(name: MetricName | null): void {
    if (name !== this.enlarged) {
      this.enlarged = name;
      this.updateShown();
    }
  }

  /** Draw a frame. */
  draw(frame: Frame): void {
    this.frame = frame;
    let changed = false;
    for (const chart of this.charts.values()) {
      changed = chart.updateReason(frame) || changed;
    }
    if (changed) {
      this.updateShown();
    }
    this.drawVisible();
    if (this.hovered !== null) {
      this.showTooltip(this.hovered, this.hovered.row);
    }
  }

  /** Focus the lines of one GPU; null removes the focus. */
  focus(uuid: string | null): void {
    if (uuid !== this.focused) {
      this.focused = uuid;
      for (const chart of this.visibleCharts()) {
        chart.focus(uuid);
      }
    }
  }

  /** Move the shared cursor to `time` in response to a key press; null removes the cursor. */
  setCursor(time: number | null): void {
    const charts = this.visibleCharts();
    const [first] = charts;
    for (const chart of charts) {
      chart.setCursor(time);
    }
    if (first !== undefined && time !== null) {
      this.showTooltip(first, first.row);
      this.tooltip.move(
        first.node.offsetLeft + first.node.clientWidth / 2,
        first.node.offsetTop - this.scroll.scrollTop
      );
    } else {
      this.showTooltip(null, null);
    }
  }

  /** Redraw all charts after a change of the theme. */
  redraw(): void {
    for (const chart of this.charts.values()) {
      chart.redraw();
    }
  }

  /** Remove all charts. */
  dispose(): void {
    this.visibility.dispose();
    this.observer.disconnect();
    this.setMetrics([]);
  }

  private createChart(name: MetricName): MetricChart {
    const chart = new MetricChart(name, {
      ...this.options,
      hover: (hovered, row) => {
        this.showTooltip(hovered, row);
      },
      focus: uuid => {
        this.focus(uuid);
      }
    });
    this.visibility.observe(chart.node);
    return chart;
  }

  /** Show the enlarged chart or all, and list the metrics without a chart in one line. */
  private updateShown(): void {
    const missing: (readonly [string, string])[] = [];
    for (const [name, chart] of this.charts) {
      const isShown = this.enlarged === null || name === this.enlarged;
      setHidden(chart.node, !isShown || chart.reason !== '');
      chart.setEnlarged(name === this.enlarged);
      if (isShown && chart.reason !== '') {
        missing.push([metricTexts(this.options.trans, name)[0], chart.reason]);
      }
    }
    setHidden(this.options.holders, this.enlarged !== null);
    setHidden(this.missingView, missing.length === 0);
    this.missing.set(`${UNKNOWN}: ${missing.map(([label]) => label).join(', ')}`);
    this.missingReasons.set(byReason(missing));
    this.arrange();
  }

  /** Choose the number of columns with which the charts fill the area. */
  private arrange(): void {
    const { clientWidth, clientHeight } = this.scroll;
    const shown = [...this.sections.values()].map(section => ({
      ...section,
      items: [...section.grid.children].filter((node): node is HTMLElement => !(node as HTMLElement).hidden)
    }));
    const columns = columnsFor(
      shown.map(({ items }) => items.length),
      clientWidth,
      clientHeight
    );
    this.scroll.style.setProperty('--jp-gpuwidget-columns', String(columns));
    const count = shown.flatMap(({ items }) => items).length;
    this.missingView.open ||= count === 0;
    for (const { node, title, items } of shown) {
      setHidden(node, items.length === 0);
      setHidden(title, count === 1);
      node.style.flexGrow = String(Math.ceil(items.length / columns));
      // In a single row, the last chart takes what is left. In more rows, that would look odd.
      const span = Math.max(1, columns - items.length + 1);
      items.forEach((item, index) => {
        item.style.gridColumn = index === items.length - 1 ? `span ${String(span)}` : '';
      });
    }
  }

  private visibleCharts(): MetricChart[] {
    return [...this.charts.values()].filter(({ node }) => this.visibility.has(node));
  }

  private drawVisible(): void {
    for (const chart of this.visibleCharts()) {
      chart.focus(this.focused);
      if (this.frame !== null) {
        chart.draw(this.frame);
      }
    }
  }

  private showTooltip(chart: MetricChart | null, row: number | null): void {
    this.hovered = row === null ? null : chart;
    this.row = row;
    const time = row === null ? undefined : this.frame?.axis.times[row];
    if (chart === null || row === null || time === undefined || this.frame === null) {
      this.tooltip.hide();
    } else {
      const { series, smoothing, bands } = this.frame;
      const seconds = smoothing * series.stepSeconds;
      const from = time + series.stepSeconds / 2 - seconds;
      const bandTitle = bandAt(bands, time)?.title ?? '';
      this.tooltip.show(chart, row, { time, from, seconds, bandTitle }, this.focused);
    }
  }
}

/** What the tooltip shows in addition to the values. */
interface TooltipHead {
  /** The time at the cursor in epoch seconds. */
  readonly time: number;
  /** The time range that the values cover. */
  readonly from: number;
  readonly seconds: number;
  /** The title of the band at this time: a cell that used a GPU, or a gap. Empty if there is none. */
  readonly bandTitle: string;
}

/** The tooltip: the values of all GPUs at the cursor. */
class Tooltip {
  readonly node: HTMLElement;
  private readonly time = new TextElement('dashboard-tooltip-time', 'div');
  private readonly band = new TextElement('dashboard-tooltip-band', 'div');
  private readonly rows = element('div', 'dashboard-tooltip-rows');
  /** The GPUs and colors for which the rows were created. */
  private rowsKey = '';
  private cells: (readonly [HTMLElement, TextElement, TextElement])[] = [];

  constructor(private readonly container: HTMLElement) {
    // The band's title comes and goes while values arrive. It is the last line, so that the values don't move.
    this.node = element('div', 'dashboard-tooltip', this.time.node, this.rows, this.band.node);
    // For screen readers, the text above the chart has the same values.
    this.node.setAttribute('aria-hidden', 'true');
    setHidden(this.node, true);
  }

  /**
   * Show the values of `chart` at the time index `row`, and emphasize those of the focused GPU.
   */
  show(chart: MetricChart, row: number, head: TooltipHead, focused: string | null): void {
    const { time, from, seconds, bandTitle } = head;
    this.band.set(bandTitle);
    const tooltipRows = chart.tooltipRows(row);
    const key = tooltipRows.map(({ shown }) => `${shown.uuid} ${String(shown.position)}`).join();
    if (key !== this.rowsKey) {
      this.rowsKey = key;
      this.cells = tooltipRows.map(({ shown }) => [
        element('span', 'dashboard-tooltip-gpu', legendSwatch(shown.position), shown.number),
        new TextElement('dashboard-tooltip-mean'),
        new TextElement('dashboard-tooltip-span')
      ]);
      this.rows.replaceChildren(
        ...this.cells.map(([gpu, mean, span]) =>
          element('div', 'dashboard-tooltip-row', gpu, mean.node, span.node)
        )
      );
      this.rows.dataset.columns = tooltipRows.length > MAX_TOOLTIP_ROWS ? '2' : '1';
    }
    const now = Date.now() / 1000;
    this.time.set(seconds >= LONG_STEP_S ? `${moment(from, now)} + ${duration(seconds)}` : moment(time, now));
    tooltipRows.forEach(({ shown, mean, span }, index) => {
      const [gpu, meanText, spanText] = this.cells[index] ?? [];
      meanText?.set(mean);
      spanText?.set(span);
      gpu?.parentElement?.toggleAttribute('data-focused', shown.uuid === focused);
    });
    setHidden(this.node, false);
  }

  /** Move the tooltip next to the pointer, inside the container. */
  move(x: number, y: number): void {
    const { width, height } = this.node.getBoundingClientRect();
    const { clientWidth, clientHeight } = this.container;
    const right = x + POINTER_DISTANCE_PX;
    const left = right + width > clientWidth ? x - POINTER_DISTANCE_PX - width : right;
    const top = Math.min(y + POINTER_DISTANCE_PX, clientHeight - height - TOOLTIP_MARGIN_PX);
    const inside = (value: number): string => `${String(Math.max(TOOLTIP_MARGIN_PX, value))}px`;
    this.node.style.transform = `translate(${inside(left)}, ${inside(top)})`;
  }

  /** Hide the tooltip. */
  hide(): void {
    setHidden(this.node, true);
  }
}
