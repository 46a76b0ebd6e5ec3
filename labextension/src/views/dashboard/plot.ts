import uPlot from 'uplot';

import { bandsPlugin } from '../../ui/chartBands';
import type { Band } from '../../model/cells/band';
import { twoDigits } from '../../model/format';
import { DAY_S, type TimeRange } from '../../model/history/dashboardState';
import { colorIndex, dashPattern, MEAN_POSITION, type ChartColors } from './gpuColors';
import { axisTicks, formatIn, type Unit } from '../../model/metrics';
import { abbreviate, groupLabels, paintRow, paintSpan, sortNumbers } from './plotPainting';
import type { Line } from '../../model/history/timeSeries';

// Lengths are in CSS pixels.
const AXIS_WIDTH = 40;
const LABEL_HEIGHT = 11;
/** Minimum distance between two ticks of the y axis. */
const TICK_DISTANCE = 28;
const MAX_INTERVALS = 5;
const TIME_AXIS_HEIGHT = 21;
/** Space on both sides of the labels at the ends of the lines. */
const LABEL_GAP = 4;
/** Space on both sides of a GPU's index on the color of its line. */
const CHIP_PADDING = 3;
/** Maximum number of GPU indices in one label. */
const MAX_INDICES = 3;
/** Opacity of all other lines while one line is focused. */
const UNFOCUSED_ALPHA = 0.15;
/** The y axis exceeds a limit by this factor, so that the limit is visible as a line. */
const HEADROOM = 1.04;
const MIN_DRAG = 6;
/** The pointer focuses a line that is less than this distance away from it. */
const FOCUS_DISTANCE = 14;
/** A cursor position that is outside the plot, so that uPlot hides the cursor. */
const OUTSIDE = -10;
/** A click enlarges the chart only after this many milliseconds, because it may be the first of a double click. */
const DOUBLE_CLICK_MS = 250;

/** The line of one GPU. */
export interface GpuLine {
  readonly uuid: string;
  /** Position in the driver's list of GPUs, which determines the color; `MEAN_POSITION` for the mean. */
  readonly position: number;
  /** The GPU's index as in `nvidia-smi`. */
  readonly number: string;
  /** The GPU's model. */
  readonly name: string;
  readonly line: Line;
}

/** What a plot draws. */
export interface PlotFrame {
  readonly range: TimeRange;
  /** The end of the y axis, which begins at 0, or the value of the darkest color of a heat map. */
  readonly top: number;
  readonly unit: Unit;
  /** Whether only the focused line has the area between minimum and maximum. */
  readonly onlyFocusedSpan: boolean;
  /** Values that the GPUs can't exceed, such as their memory. */
  readonly limits: ReadonlySet<number>;
}

/** A size in CSS pixels. */
export interface Size {
  readonly width: number;
  readonly height: number;
}

/** The dependencies of a plot. */
export interface PlotOptions {
  readonly colors: () => ChartColors;
  /** Plots with the same key share a cursor. */
  readonly key: string;
  /** Called when the user selects a time range. */
  readonly zoom: (range: TimeRange) => void;
  /** Called when the user clicks once. */
  readonly click: () => void;
  /** Called when the user double-clicks. */
  readonly reset: () => void;
  /** Return the highlighted time ranges, sorted by start. */
  readonly bands: () => readonly Band[];
  /**
   * Called when the shared cursor moves or leaves. `row` is the index of the time at the cursor, or null if
   * the cursor has left. `isHovered` is whether the pointer is on this plot, and `uuid` is the GPU whose line
   * is close to the pointer.
   */
  readonly cursorMoved: (row: number | null, isHovered: boolean, uuid: string | null) => void;
}

/**
 * The plot of one metric: for each GPU a line, the area between minimum and maximum, and the GPU's index at
 * the end of the line; or a heat map with a row for each GPU.
 */
export class Plot {
  private readonly u: uPlot;
  private focused: string | null = null;
  private frame: PlotFrame = {
    range: { from: 0, to: 1 },
    top: 1,
    unit: { name: '', size: 1 },
    onlyFocusedSpan: false,
    limits: new Set()
  };
  /** The labels at the ends of the lines: the center of each, and its GPUs. */
  private labels: { readonly y: number; readonly gpus: readonly GpuLine[] }[] = [];
  private clickTimer: number | undefined;

  /**
   * Add the plot to `node`. The caller changes the contents of `times` and `lines` in place and then calls
   * `draw`. `hasRows` is whether the plot is a heat map.
   */
  constructor(
    node: HTMLElement,
    size: Size,
    private readonly lines: readonly GpuLine[],
    private readonly hasRows: boolean,
    private readonly times: number[],
    private readonly options: PlotOptions
  ) {
    this.u = new uPlot(this.uPlotOptions(size), this.data, node);
    // uPlot does not forward the click at the end of a drag.
    this.u.over.addEventListener('click', ({ detail }) => {
      clearTimeout(this.clickTimer);
      if (detail === 1) {
        this.clickTimer = setTimeout(options.click, DOUBLE_CLICK_MS);
      }
    });
    this.u.root.addEventListener('mousemove', event => {
      this.updateTitle(event);
    });
  }

  /** The index, in `times`, of the time at the shared cursor; null without a cursor. */
  get row(): number | null {
    return cursorRow(this.u);
  }

  /** Draw a frame. */
  draw(frame: PlotFrame): void {
    const unitChanged = frame.unit.name !== this.frame.unit.name;
    this.frame = frame;
    const { range, top, limits } = frame;
    const max = this.hasRows ? this.lines.length : Math.max(top, HEADROOM * Math.max(0, ...limits));
    this.u.batch(() => {
      this.u.setData(this.data, false);
      this.u.setScale('x', { min: range.from, max: range.to });
      this.u.setScale('y', { min: 0, max });
    });
    // uPlot moves the cursor to another time if the scale has changed, but not if the times have.
    const { left = OUTSIDE, top: y = OUTSIDE } = this.u.cursor;
    if (left >= 0) {
      this.u.setCursor({ left, top: y });
    }
    if (unitChanged) {
      this.u.redraw(false, true); // Even if the scale is unchanged, its labels have a new unit.
    }
  }

  /** Focus the line of one GPU; null removes the focus. */
  focus(uuid: string | null): void {
    this.focused = uuid;
    if (this.hasRows) {
      this.redraw();
      return;
    }
    const index = this.lines.findIndex(gpu => gpu.uuid === uuid);
    // uPlot ignores changes that its hooks make while it draws.
    queueMicrotask(() => {
      this.u.setSeries(index < 0 ? null : index + 1, { focus: true }, false);
    });
  }

  /** Move the cursor to a time; null removes the cursor. */
  setCursor(time: number | null): void {
    const left = time === null ? OUTSIDE : this.u.valToPos(time, 'x');
    this.u.setCursor({ left, top: time === null ? OUTSIDE : this.u.over.clientHeight / 2 });
  }

  /** Redraw after a change of the theme. */
  redraw(): void {
    this.u.redraw(false);
  }

  /** Set the size. */
  resize(size: Size): void {
    this.u.setSize(size);
  }

  /** Remove the plot. */
  dispose(): void {
    clearTimeout(this.clickTimer);
    this.u.destroy();
  }

  private get data(): uPlot.AlignedData {
    const lines = this.hasRows ? [] : this.lines.map(({ line }) => line.mean);
    return [this.times, ...lines] as uPlot.AlignedData;
  }

  private alpha(uuid: string): number {
    return this.focused === null || this.focused === uuid ? 1 : UNFOCUSED_ALPHA;
  }

  private color(position: number): string {
    const { gpus, text } = this.options.colors();
    return position === MEAN_POSITION ? text : (gpus[colorIndex(position)] ?? '');
  }

  private uPlotOptions(size: Size): uPlot.Options {
    const { colors, key, reset, bands } = this.options;
    const hidden = { show: false };
    const axis = {
      stroke: () => colors().text,
      font: `11px ${colors().font}`,
      grid: { stroke: () => colors().grid, width: 1 },
      ticks: hidden
    };
    return {
      ...size,
      plugins: [bandsPlugin(bands, colors)],
      padding: [8, this.labelWidth(), 0, 0],
      legend: hidden,
      focus: { alpha: UNFOCUSED_ALPHA },
      cursor: {
        y: false,
        points: hidden,
        drag: { x: true, y: false, setScale: false, dist: MIN_DRAG },
        // Drags are not shared with the other plots, so that only one plot reports the selected time range.
        sync: {
          key,
          setSeries: false,
          filters: { pub: type => type === 'mousemove' || type === 'mouseleave' }
        },
        bind: {
          dblclick: () => () => {
            reset();
            return null;
          }
        }
      },
      scales: { x: { auto: false }, y: { auto: false } },
      axes: [
        {
          ...axis,
          size: TIME_AXIS_HEIGHT,
          gap: 6,
          space: 64,
          values: (_, splits, __, ___, step) => splits.map(time => timeLabel(time, step))
        },
        {
          ...axis,
          size: AXIS_WIDTH,
          gap: 4,
          grid: { ...axis.grid, show: !this.hasRows },
          splits: u => {
            const height = u.height - TIME_AXIS_HEIGHT;
            if (this.hasRows) {
              const step = Math.ceil((LABEL_HEIGHT * this.lines.length) / height);
              return this.lines.flatMap((_, row) => (row % step === 0 ? [this.rowCenter(row)] : []));
            }
            const intervals = Math.floor(height / TICK_DISTANCE);
            const { top, unit } = this.frame;
            return axisTicks(top, unit, Math.min(Math.max(2, intervals), MAX_INTERVALS));
          },
          values: (_, splits) =>
            splits.map(value =>
              this.hasRows ? (this.lines[this.rowAt(value)]?.number ?? '') : formatIn(value, this.frame.unit)
            )
        }
      ],
      series: [
        {},
        ...(this.hasRows ? [] : this.lines).map(({ position }) => ({
          stroke: () => this.color(position),
          dash: [...dashPattern(position)],
          width: 1.25,
          points: hidden
        }))
      ],
      hooks: {
        drawAxes: [
          (u: uPlot) => {
            const { top, onlyFocusedSpan } = this.frame;
            this.lines.forEach(({ uuid, position, line }, row) => {
              if (this.hasRows) {
                const center = u.valToPos(this.rowCenter(row), 'y', true);
                const height = u.bbox.height / this.lines.length - devicePixelRatio;
                const box = { y: center - height / 2, height };
                paintRow(u, this.times, line.mean, top, box, colors().heat, this.alpha(uuid));
              } else {
                const hasArea = !onlyFocusedSpan || uuid === this.focused;
                paintSpan(u, this.times, line, hasArea, this.color(position), this.alpha(uuid));
              }
            });
          }
        ],
        draw: [
          (u: uPlot) => {
            this.paintLimits(u);
            this.paintLabels(u);
          }
        ],
        setCursor: [
          (u: uPlot) => {
            this.handleCursor(u);
          }
        ],
        setSelect: [
          (u: uPlot) => {
            this.handleSelection(u);
          }
        ]
      }
    };
  }

  /** Return the width of the widest label that can occur. */
  private labelWidth(): number {
    const context = document.createElement('canvas').getContext('2d');
    if (this.lines.length < 2 || this.hasRows || context === null) {
      return 2 * LABEL_GAP;
    }
    context.font = `11px ${this.options.colors().font}`;
    const indices = this.lines.map(({ number }) => number).sort((a, b) => b.length - a.length);
    const [shown, rest] = abbreviate(indices, MAX_INDICES);
    const texts = context.measureText(shown.join('') + rest).width;
    return Math.ceil(texts + shown.length * (2 * CHIP_PADDING + 1)) + 2 * LABEL_GAP;
  }

  private handleCursor(u: uPlot): void {
    const row = cursorRow(u);
    const isHovered = u.over.matches(':hover');
    this.options.cursorMoved(row, isHovered, isHovered && row !== null ? this.nearestGpu(u, row) : null);
  }

  /** Set the tooltip of the plot: the names of the GPUs whose label is under the pointer. */
  private updateTitle({ target, clientX, clientY }: MouseEvent): void {
    const { root, over } = this.u;
    const y = clientY - root.getBoundingClientRect().top;
    const isBeside = target !== over && clientX > over.getBoundingClientRect().right;
    const label = this.labels.find(({ y: center }) => Math.abs(center - y) <= LABEL_HEIGHT / 2);
    const gpus = isBeside ? (label?.gpus ?? []) : [];
    root.title = sortNumbers(gpus.map(({ number, name }) => `${number} ${name}`)).join('\n');
  }

  private handleSelection(u: uPlot): void {
    const { left, width } = u.select;
    if (width >= MIN_DRAG) {
      u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
      this.options.zoom({ from: u.posToVal(left, 'x'), to: u.posToVal(left + width, 'x') });
    }
  }

  /**
   * Return the UUID of the GPU whose line is nearest to the pointer; null if no line is close.
   *
   * uPlot's `cursor.focus` is not used: it would also focus lines in the other plots with the shared cursor,
   * which have different y axes, and each redraw would remove the focus that the legend has set.
   */
  private nearestGpu(u: uPlot, row: number): string | null {
    const pointer = u.cursor.top ?? 0;
    if (this.hasRows) {
      return this.lines[this.rowAt(u.posToVal(pointer, 'y'))]?.uuid ?? null;
    }
    let nearest: string | null = null;
    let minimum = FOCUS_DISTANCE;
    for (const { uuid, line } of this.lines) {
      const value = line.mean[row] ?? null;
      const distance = value === null ? Infinity : Math.abs(u.valToPos(value, 'y') - pointer);
      if (distance < minimum) {
        minimum = distance;
        nearest = uuid;
      }
    }
    return nearest;
  }

  /** Return the center of a heat map's row on the y axis. The first row is at the top. */
  private rowCenter(row: number): number {
    return this.lines.length - row - 0.5;
  }

  private rowAt(value: number): number {
    return Math.floor(this.lines.length - value);
  }

  /** Paint a dashed line for each limit, and above it, where no value is, the limit. */
  private paintLimits(u: uPlot): void {
    const { limits, unit } = this.frame;
    const { ctx, bbox } = u;
    const { text, font, background } = this.options.colors();
    const pixel = devicePixelRatio;
    ctx.save();
    ctx.fillStyle = text;
    ctx.font = `${String(11 * pixel)}px ${font}`;
    ctx.textAlign = 'left';
    ctx.textBaseline = 'alphabetic';
    ctx.lineJoin = 'round';
    for (const limit of this.hasRows ? [] : limits) {
      const y = u.valToPos(limit, 'y', true);
      ctx.strokeStyle = text;
      ctx.setLineDash([2 * pixel, 3 * pixel]);
      ctx.lineWidth = pixel;
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
      // The lines of cells, and the values above a lower limit of another GPU, must not cross the text.
      ctx.strokeStyle = background;
      ctx.setLineDash([]);
      ctx.lineWidth = 3 * pixel;
      const label = [`${formatIn(limit, unit)} ${unit.name}`, bbox.left + 3 * pixel, y - 3 * pixel] as const;
      ctx.strokeText(...label);
      ctx.fillText(...label);
    }
    ctx.restore();
  }

  /**
   * Paint the GPUs' indices at the ends of their lines, so that lines are not distinguished by color alone, each
   * on the color of its line, so that it is not read as a value.
   */
  private paintLabels(u: uPlot): void {
    this.labels = [];
    if (this.lines.length < 2 || this.hasRows) {
      return;
    }
    const { ctx, bbox } = u;
    const { text, font, background } = this.options.colors();
    const ends = this.lines.flatMap(gpuLine => {
      const value = gpuLine.line.mean.at(-1) ?? gpuLine.line.mean.at(-2) ?? null;
      return value === null ? [] : [{ gpuLine, y: u.valToPos(value, 'y', true) }];
    });
    const pixel = devicePixelRatio;
    const height = LABEL_HEIGHT * pixel;
    ctx.save();
    ctx.font = `${String(11 * pixel)}px ${font}`;
    ctx.textAlign = 'left';
    ctx.textBaseline = 'middle';
    const positions = ends.map(({ y }) => y);
    const [top, bottom] = [bbox.top + height / 3, bbox.top + bbox.height];
    for (const { y, members } of groupLabels(positions, height, top, bottom)) {
      const group = ends.flatMap(({ gpuLine }, end) => (members.includes(end) ? [gpuLine] : []));
      const focused = group.filter(({ uuid }) => uuid === this.focused);
      const [shown, rest] = abbreviate(focused.length > 0 ? focused : group, MAX_INDICES);
      this.labels.push({ y: y / pixel, gpus: group });
      let left = bbox.left + bbox.width + LABEL_GAP * pixel;
      ctx.globalAlpha = this.alpha(focused[0]?.uuid ?? '');
      for (const { number, position } of shown) {
        const width = ctx.measureText(number).width + 2 * CHIP_PADDING * pixel;
        ctx.fillStyle = this.color(position);
        ctx.fillRect(left, y - height / 2, width, height - pixel);
        ctx.fillStyle = background;
        ctx.fillText(number, left + CHIP_PADDING * pixel, y);
        left += width + pixel;
      }
      ctx.fillStyle = text;
      ctx.fillText(rest, left, y);
    }
    ctx.restore();
  }
}

function cursorRow(u: uPlot): number | null {
  return (u.cursor.left ?? OUTSIDE) < 0 ? null : (u.cursor.idx ?? null);
}

/**
 * Return a time in epoch seconds as local time of day, with seconds if the axis labels are close together.
 * Midnight, and every time if the labels are a day apart, is a date.
 */
function timeLabel(time: number, step: number): string {
  const date = new Date(1000 * time);
  const isMidnight = date.getHours() === 0 && date.getMinutes() === 0 && date.getSeconds() === 0;
  if (step >= DAY_S || (isMidnight && step >= 60)) {
    return `${twoDigits(date.getMonth() + 1)}-${twoDigits(date.getDate())}`;
  }
  const parts = [date.getHours(), date.getMinutes(), ...(step < 60 ? [date.getSeconds()] : [])];
  const fraction = step < 1 ? (date.getMilliseconds() / 1000).toFixed(1).slice(1) : '';
  return parts.map(twoDigits).join(':') + fraction;
}
