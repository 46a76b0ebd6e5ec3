import type { TranslationBundle } from '@jupyterlab/translation';

import { metricTexts, type MetricName } from '../../wire/metricTable';
import { launchIcon } from '@jupyterlab/ui-components';

import type { Band } from '../../model/cells/band';
import { element, setAttribute, setHidden, TextElement } from '../../ui/dom';
import { UNKNOWN } from '../../model/format';
import type { DashboardGpu } from './dashboardGpus';
import type { TimeRange } from '../../model/history/dashboardState';
import { cssColor, MEAN_POSITION } from './gpuColors';
import { axisTop, formatIn, kindOf, reasonOf, unitOf, valueOf, type Unit } from '../../model/metrics';
import { Plot, type PlotOptions, type Size } from './plot';
import {
  emptyLine,
  meanOfLines,
  smooth,
  type Line,
  type TimeAxis,
  type TimeSeries
} from '../../model/history/timeSeries';

/**
 * If there are more GPUs than this, the text above the chart shows the range of the values instead of each
 * value, and only the focused one of several smoothed lines has an area.
 */
const MAX_VALUES = 4;

/** Above this number of GPUs, a chart is a heat map unless the user wants lines. */
export const MAX_LINES = 8;

/** The mean over the GPUs. It has no UUID, so it is never focused, and no current reading. */
const MEAN = {
  uuid: '',
  position: MEAN_POSITION,
  memoryTotal: null,
  powerLimit: null,
  reading: null,
  problem: null
} as const;

/** The data that all charts draw at the same time. */
export interface Frame {
  readonly series: TimeSeries;
  readonly axis: TimeAxis;
  readonly range: TimeRange;
  readonly gpus: readonly DashboardGpu[];
  /** Whether to draw the mean over the GPUs instead of a line for each GPU. */
  readonly mean: boolean;
  /** Whether a chart of many GPUs has a line for each GPU instead of a heat map. */
  readonly lines: boolean;
  /** The number of points over which lines are smoothed. */
  readonly smoothing: number;
  /** The time ranges in which cells used the GPUs, sorted by start. */
  readonly bands: readonly Band[];
  /** Whether the values above the charts are taken from the newest sample. */
  readonly live: boolean;
  /** The text of a chart without any value, if no GPU has a reason. */
  readonly missing: string;
}

/** The dependencies that all charts share. */
export interface ChartOptions extends Omit<PlotOptions, 'cursorMoved' | 'click' | 'bands'> {
  readonly trans: TranslationBundle;
  /**
   * Called with this chart and the index of the time under the pointer. When the pointer has left all
   * charts, both arguments are null.
   */
  readonly hover: (chart: MetricChart | null, row: number | null) => void;
  /** Called with the UUID of the GPU whose line is close to the pointer, or with null if no line is close. */
  readonly focus: (uuid: string | null) => void;
  /** What the user can do with one of several charts; null for a chart that is alone. */
  readonly actions: ChartActions | null;
}

/** What the user can do with one of several charts. */
export interface ChartActions {
  /** Enlarge a chart, or show all charts again. */
  readonly enlarge: (name: MetricName) => void;
  /** Open a chart in its own tab. */
  readonly openTab: (name: MetricName) => void;
}

/** The values of one GPU in the tooltip. */
export interface TooltipRow {
  readonly shown: DashboardGpu;
  readonly mean: string;
  /** Minimum and maximum; empty if they are equal. */
  readonly span: string;
}

/** A part of the values above a chart, and the position of the GPU whose color it has; null without a color. */
type Figure = readonly [text: string, position: number | null];

/** The chart of one metric: its name, the current values as text, and the plot. */
export class MetricChart {
  readonly node: HTMLElement;
  private readonly values = element('span', 'dashboard-chart-values');
  private valuesKey = '';
  /** The value of the darkest color of a heat map. */
  private readonly scale = new TextElement('dashboard-scale');
  private missing = '';
  private readonly canvas = element('div', 'dashboard-canvas');
  private readonly observer: ResizeObserver;
  private readonly lines = new Map<string, Line>();
  private plot: Plot | null = null;
  /** A key of the GPUs and colors for which the plot was created. */
  private plotKey = '';
  private frame: Frame | null = null;
  private focused: string | null = null;
  private size: Size = { width: 0, height: 0 };
  private readonly enlargeButton: HTMLButtonElement | null = null;
  private readonly tabButton: HTMLButtonElement | null = null;
  /** The mean over the GPUs, drawn like the line of a GPU. */
  private readonly mean: DashboardGpu;
  /** Whether the pointer was on this chart when the shared cursor last moved. */
  private wasHovered = false;
  private unit: Unit = { name: '', size: 1 };

  constructor(
    readonly name: MetricName,
    private readonly options: ChartOptions
  ) {
    const [label, description] = metricTexts(options.trans, name);
    const title = element('h3', 'dashboard-chart-title');
    const caption = element('div', 'dashboard-chart-caption', title, this.values, this.scale.node);
    const { trans, actions } = options;
    this.mean = { ...MEAN, number: trans.__('Mean'), name: '' };
    if (actions === null) {
      title.append(label);
      title.title = description;
    } else {
      const enlarge = (this.enlargeButton = element('button', 'dashboard-chart-button', label));
      enlarge.title = [description, trans.__('Click to enlarge')].join('\n');
      enlarge.onclick = () => {
        actions.enlarge(name);
      };
      title.append(enlarge);
      const tab = (this.tabButton = element('button', 'dashboard-chart-button'));
      launchIcon.element({ container: tab });
      tab.title = trans.__('Open in a new tab');
      setAttribute(tab, 'aria-label', trans.__('Open %1 in a new tab', label));
      tab.onclick = () => {
        actions.openTab(name);
      };
      caption.append(tab);
      this.setEnlarged(false);
    }
    setAttribute(this.canvas, 'role', 'img');
    setAttribute(this.canvas, 'aria-label', trans.__('%1 over time, a line for each GPU', label));
    this.node = element('section', 'dashboard-chart', caption, this.canvas);
    this.node.dataset.metric = name;
    this.observer = new ResizeObserver(entries => {
      const { width = 0, height = 0 } = entries[0]?.contentRect ?? {};
      this.resize({ width: Math.floor(width), height: Math.floor(height) });
    });
    this.observer.observe(this.canvas);
  }

  /** The index, in the frame's time axis, of the time at the shared cursor; null without a cursor. */
  get row(): number | null {
    return this.plot?.row ?? null;
  }

  /** Why no GPU has a value; empty if one has. */
  get reason(): string {
    return this.missing;
  }

  /** Determine `reason` for a frame, and return whether it has changed. */
  updateReason({ gpus, series, axis, missing }: Frame): boolean {
    const reasons = gpus.map(({ reading }) =>
      reading === null || missing !== '' ? missing : reasonOf(reading, this.name)
    );
    const hasValue = (): boolean =>
      gpus.some(({ uuid }) => {
        series.line(uuid, this.name, axis, this.line(uuid));
        return !Number.isNaN(this.line(uuid).highest);
      });
    const before = this.missing;
    this.missing = reasons.includes('') || hasValue() ? '' : (reasons[0] ?? '');
    return this.missing !== before;
  }

  /** Draw a frame. */
  draw(frame: Frame): void {
    this.frame = frame;
    const { gpus, series, axis, range, smoothing } = frame;
    const uuids = new Set([this.mean.uuid, ...gpus.map(({ uuid }) => uuid)]);
    for (const uuid of [...this.lines.keys()].filter(each => !uuids.has(each))) {
      this.lines.delete(uuid); // A GPU of a machine that was shown before, or that is hidden now.
    }
    const maxima: number[] = [];
    for (const { uuid } of gpus) {
      const line = this.line(uuid);
      series.line(uuid, this.name, axis, line);
      if (smoothing > 1) {
        smooth(line, smoothing);
      }
      if (!Number.isNaN(line.highest)) {
        maxima.push(line.highest);
      }
    }
    if (frame.mean) {
      meanOfLines(
        gpus.map(({ uuid }) => this.line(uuid)),
        this.line(this.mean.uuid)
      );
    }
    const totals = gpus.map(({ memoryTotal }) => memoryTotal ?? 0);
    const powerLimits = gpus.map(({ powerLimit }) => powerLimit ?? 0);
    const top = axisTop(this.name, Math.max(0, ...maxima), totals, powerLimits);
    this.unit = unitOf(this.name, top);
    setHidden(this.scale.node, !this.hasRows);
    this.scale.set(this.withUnit(formatIn(top, this.unit)));
    this.updateValues(this.row);
    if (this.size.width > 0) {
      const limits = { memory: totals, power: powerLimits };
      this.ensurePlot(frame).draw({
        range,
        top,
        unit: this.unit,
        // The areas of many smoothed lines would hide the lines.
        onlyFocusedSpan: smoothing > 1 && this.drawn.length > MAX_VALUES,
        limits: new Set((limits as Partial<Record<string, number[]>>)[kindOf(this.name)]?.filter(Boolean))
      });
    }
  }

  /** Show whether this chart fills the dashboard. */
  setEnlarged(enlarged: boolean): void {
    this.enlargeButton?.setAttribute('aria-pressed', String(enlarged));
    if (this.tabButton !== null) {
      // The keyboard reaches this button once the chart is enlarged, so that Tab does not stop twice at each
      // chart.
      this.tabButton.tabIndex = enlarged ? 0 : -1;
    }
  }

  /** Return one tooltip row per line, with the line's values at the time index `row`. */
  tooltipRows(row: number): TooltipRow[] {
    return this.drawn.map(shown => {
      const { low, mean, high } = this.line(shown.uuid);
      const limits = [low[row] ?? null, high[row] ?? null];
      return {
        shown,
        mean: this.withUnit(formatIn(mean[row] ?? null, this.unit)),
        span: limits[0] === limits[1] ? '' : limits.map(limit => formatIn(limit, this.unit)).join(' – ')
      };
    });
  }

  /** Focus the line of one GPU; null removes the focus. */
  focus(uuid: string | null): void {
    if (uuid !== this.focused) {
      this.focused = uuid;
      this.plot?.focus(uuid);
      this.updateValues(this.row);
    }
  }

  /** Move the cursor to a time; null removes the cursor. */
  setCursor(time: number | null): void {
    this.plot?.setCursor(time);
  }

  /** Redraw after a change of the theme. */
  redraw(): void {
    this.plot?.redraw();
  }

  /** Remove the chart. */
  dispose(): void {
    this.observer.disconnect();
    this.plot?.dispose();
    this.plot = null;
    this.node.remove();
  }

  /**
   * Write the values at the time index `row` above the chart. If `row` is null, write the newest sample's
   * values in live mode, and otherwise the values at the end of the time range.
   */
  private updateValues(row: number | null): void {
    if (this.frame === null) {
      return;
    }
    const { live, axis } = this.frame;
    const gpus = this.drawn;
    const shownRow = row ?? axis.times.length - 1;
    const values = gpus.map(({ uuid, reading, problem }) => {
      const newest = row === null && live;
      if (newest && reading !== null) {
        return valueOf(reading, this.name);
      }
      // The last known value of a GPU without current readings is not its value now.
      return newest && problem !== null ? null : (this.line(uuid).mean[shownRow] ?? null);
    });
    const known = values.filter(value => value !== null);
    const reasons = gpus.map(({ reading }) => (reading === null ? '' : reasonOf(reading, this.name)));
    const figures = this.figures(gpus, values, known);
    const key = figures.join();
    if (key !== this.valuesKey) {
      this.valuesKey = key;
      this.values.replaceChildren(
        ...figures.map(([text, position]) => {
          const node = element('span', '', text);
          node.style.color = position === null || this.hasRows ? '' : cssColor(position);
          return node;
        })
      );
    }
    setAttribute(this.values, 'title', known.length > 0 ? '' : (reasons.find(Boolean) ?? ''));
  }

  private figures(
    gpus: readonly DashboardGpu[],
    values: readonly (number | null)[],
    known: readonly number[]
  ): Figure[] {
    const focused = gpus.findIndex(({ uuid }) => uuid === this.focused);
    const format = (value: number | null): string => formatIn(value, this.unit);
    if (focused >= 0) {
      const { number = '', position = null } = gpus[focused] ?? {};
      const value = this.withUnit(format(values[focused] ?? null));
      return [[this.options.trans.__('GPU %1: %2', number, value), position]];
    }
    if (known.length === 0) {
      return [[UNKNOWN, null]];
    }
    const unit: Figure = [` ${this.unit.name}`, null];
    if (gpus.length <= MAX_VALUES) {
      const figures = gpus.map(({ position }, index): Figure => [format(values[index] ?? null), position]);
      return [
        ...figures.flatMap((figure, index): Figure[] => (index === 0 ? [figure] : [[' · ', null], figure])),
        unit
      ];
    }
    const [minimum, maximum] = [format(Math.min(...known)), format(Math.max(...known))];
    return [[minimum === maximum ? minimum : `${minimum} – ${maximum}`, null], unit];
  }

  /** Whether the chart is a heat map, with a row for each GPU. */
  private get hasRows(): boolean {
    return this.drawn.length > MAX_LINES && this.frame?.lines === false;
  }

  /** The GPUs whose lines are drawn, or the mean over them. */
  private get drawn(): readonly DashboardGpu[] {
    const { gpus = [], mean = false } = this.frame ?? {};
    return mean ? [this.mean] : gpus;
  }

  private line(uuid: string): Line {
    let line = this.lines.get(uuid);
    if (line === undefined) {
      line = emptyLine();
      this.lines.set(uuid, line);
    }
    return line;
  }

  private withUnit(text: string): string {
    return text === UNKNOWN ? text : `${text} ${this.unit.name}`;
  }

  private resize(size: Size): void {
    if (size.width === this.size.width && size.height === this.size.height) {
      return;
    }
    this.size = size;
    if (size.width > 0) {
      this.plot?.resize(size);
      if (this.frame !== null) {
        this.draw(this.frame);
      }
    }
  }

  /** Return the plot. If the GPUs or their positions have changed, replace the plot first. */
  private ensurePlot({ axis }: Frame): Plot {
    const gpus = this.drawn;
    const { hasRows } = this;
    const key = [hasRows, ...gpus.map(({ uuid, position }) => `${uuid} ${String(position)}`)].join();
    if (this.plot !== null && this.plotKey === key) {
      return this.plot;
    }
    this.plot?.dispose();
    this.plotKey = key;
    const lines = gpus.map(shown => ({ ...shown, line: this.line(shown.uuid) }));
    this.plot = new Plot(this.canvas, this.size, lines, hasRows, axis.times, {
      ...this.options,
      click: () => this.options.actions?.enlarge(this.name),
      bands: () => this.frame?.bands ?? [],
      cursorMoved: (row, isHovered, uuid) => {
        this.handleCursor(row, isHovered, uuid);
      }
    });
    if (this.focused !== null) {
      this.plot.focus(this.focused);
    }
    return this.plot;
  }

  private handleCursor(row: number | null, isHovered: boolean, uuid: string | null): void {
    this.updateValues(row);
    // The shared cursor moves in all charts, but only the chart under the pointer calls `focus` and `hover`.
    if (isHovered) {
      this.options.focus(uuid);
      this.options.hover(this, row);
    } else if (row === null && this.wasHovered) {
      this.options.focus(null);
      this.options.hover(null, null);
    }
    this.wasHovered = isHovered || (this.wasHovered && row !== null);
  }
}
