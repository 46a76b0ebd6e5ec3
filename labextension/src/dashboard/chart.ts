import type { TranslationBundle } from '@jupyterlab/translation';
import uPlot from 'uplot';

import { element, setAttribute, Text } from '../ui/dom';
import { UNKNOWN } from '../ui/format';
import type { Gpu, Reading } from '../wire';
import { paintBand } from './bands';
import { dashOf, hueOf, type Colours } from './colours';
import { emptyLine, type Course, type Line, type Moments } from './course';
import { place, shortened } from './labels';
import { figureIn, reasonOf, topOf, unitOf, valueOf, wordsOf, type MetricName, type Unit } from './metrics';
import type { Part } from './state';

const HEIGHT = 118;
const AXIS_WIDTH = 40;
const LABEL_WIDTH = 38;
const LABEL_HEIGHT = 11;
/** So many numbers stand side by side above a chart; of more, the span. */
const FEW = 4;
const FADED = 0.15;
const SMALLEST_DRAG = 6;
/** A pointer so near to a line, in pixels, means that GPU. */
const NEAR = 14;

/** One GPU as the charts show it. */
export interface ShownGpu {
  readonly gpu: Gpu;
  readonly reading: Reading;
  /** Its place in the driver's list, which decides its colour. */
  readonly place: number;
  /** Its number in `nvidia-smi`. */
  readonly number: string;
}

/** What all charts show at one moment. */
export interface Frame {
  readonly course: Course;
  readonly moments: Moments;
  readonly part: Part;
  readonly gpus: readonly ShownGpu[];
  /** Whether it goes on: the figures are then those of the newest sample. */
  readonly live: boolean;
}

/** What all charts share. */
export interface ChartPorts {
  readonly trans: TranslationBundle;
  readonly colours: () => Colours;
  /** Charts with the same key share their cursor. */
  readonly key: string;
  readonly zoom: (part: Part) => void;
  readonly reset: () => void;
  /** The pointer is on this chart at that row, or on none. */
  readonly point: (chart: MetricChart | null, row: number | null) => void;
  readonly focus: (uuid: string | null) => void;
}

/** One value as the readout lists it. */
export interface Figure {
  readonly shown: ShownGpu;
  readonly mean: string;
  /** From the lowest to the highest where they differ. */
  readonly span: string;
}

/** One metric of all GPUs that are shown: a line each, with the span of its values behind. */
export class MetricChart {
  readonly node: HTMLElement;
  private readonly value = new Text('reading');
  private readonly why = new Text('why', 'div');
  private readonly canvas = element('div', 'canvas');
  private readonly observer: ResizeObserver;
  private readonly lines = new Map<string, Line>();
  private plot: uPlot | null = null;
  private plotted = '';
  private frame: Frame | null = null;
  private focused: string | null = null;
  private width = 0;
  private top = 1;
  private unit: Unit = { name: '', size: 1 };

  constructor(
    readonly name: MetricName,
    private readonly ports: ChartPorts
  ) {
    const [label, meaning] = wordsOf(ports.trans, name);
    const title = element('h3', 'metric', label);
    title.title = meaning;
    setAttribute(this.canvas, 'role', 'img');
    setAttribute(this.canvas, 'aria-label', ports.trans.__('%1 over time, a line for each GPU', label));
    this.node = element(
      'section',
      'course',
      element('div', 'caption', title, this.value.node),
      this.canvas,
      this.why.node
    );
    this.node.dataset.metric = name;
    this.observer = new ResizeObserver(entries => {
      this.resize(Math.floor(entries[0]?.contentRect.width ?? 0));
    });
    this.observer.observe(this.canvas);
  }

  /** The row under the shared cursor, null where there is none. */
  get row(): number | null {
    return this.plot?.cursor.idx ?? null;
  }

  /** Draw `frame`. */
  draw(frame: Frame): void {
    this.frame = frame;
    const { gpus, course, moments, part } = frame;
    let highest = NaN;
    for (const { gpu } of gpus) {
      const line = this.line(gpu.uuid);
      course.line(gpu.uuid, this.name, moments, line);
      highest = Number.isNaN(highest) ? line.highest : Math.max(highest, line.highest || -Infinity);
    }
    const limits = gpus.map(({ reading }) => reading.power_limit_w ?? 0);
    this.top = topOf(
      this.name,
      highest,
      gpus.map(({ gpu }) => gpu),
      limits
    );
    this.unit = unitOf(this.name, this.top);
    this.sayWhy(Number.isNaN(highest));
    this.tell(this.row);
    if (this.width === 0) {
      return; // Not shown: nothing is drawn until it is.
    }
    const data = [moments.times, ...gpus.map(({ gpu }) => this.line(gpu.uuid).mean)] as uPlot.AlignedData;
    const plot = this.create(gpus, data);
    plot.batch(() => {
      plot.setData(data, false);
      plot.setScale('x', { min: part.from, max: part.to });
      plot.setScale('y', { min: 0, max: this.top });
    });
  }

  /** Write the figures at that row; those of now, or of the end, without one. */
  tell(row: number | null): void {
    if (this.frame === null) {
      return;
    }
    const { gpus, live, moments } = this.frame;
    const at = row ?? moments.times.length - 1;
    const values = gpus.map(({ gpu, reading }) =>
      row === null && live ? valueOf(reading, this.name) : (this.line(gpu.uuid).mean[at] ?? null)
    );
    const chosen = gpus.findIndex(({ gpu }) => gpu.uuid === this.focused);
    const known = values.filter(value => value !== null);
    let text = UNKNOWN;
    if (chosen >= 0) {
      const figure = figureIn(values[chosen] ?? null, this.unit);
      text = this.ports.trans.__('GPU %1: %2', gpus[chosen]?.number ?? '', this.withUnit(figure));
    } else if (known.length > 0 && gpus.length <= FEW) {
      text = this.withUnit(values.map(value => figureIn(value, this.unit)).join(' · '));
    } else if (known.length > 0) {
      const ends = [Math.min(...known), Math.max(...known)].map(value => figureIn(value, this.unit));
      text = this.withUnit(ends[0] === ends[1] ? (ends[0] ?? '') : ends.join(' – '));
    }
    const reason =
      known.length === 0 ? (gpus.map(({ reading }) => reasonOf(reading, this.name)).find(Boolean) ?? '') : '';
    this.value.set(text, reason);
  }

  /** The figures of every GPU at that row. */
  figures(row: number): Figure[] {
    return (this.frame?.gpus ?? []).map(shown => {
      const { low, mean, high } = this.line(shown.gpu.uuid);
      const ends = [low[row] ?? null, high[row] ?? null];
      return {
        shown,
        mean: this.withUnit(figureIn(mean[row] ?? null, this.unit)),
        span: ends[0] === ends[1] ? '' : ends.map(end => figureIn(end, this.unit)).join(' – ')
      };
    });
  }

  /** Put one GPU before the others, or none. */
  focus(uuid: string | null): void {
    if (uuid === this.focused) {
      return;
    }
    this.focused = uuid;
    this.frame?.gpus.forEach(({ gpu }, number) => {
      const series = this.plot?.series[number + 1];
      if (series !== undefined) {
        series.alpha = this.alpha(gpu.uuid);
      }
    });
    this.plot?.redraw(false);
    this.tell(this.row);
  }

  /** Put the cursor at a moment, or take it away. */
  point(time: number | null): void {
    const { plot } = this;
    const left = time === null ? -10 : Math.round(plot?.valToPos(time, 'x') ?? -10);
    plot?.setCursor({ left, top: time === null ? -10 : HEIGHT / 2 });
  }

  /** Draw it again, in another theme's colours. */
  recolour(): void {
    this.plot?.redraw(false);
  }

  /** Forget the canvas. */
  dispose(): void {
    this.observer.disconnect();
    this.plot?.destroy();
    this.plot = null;
    this.node.remove();
  }

  private line(uuid: string): Line {
    let line = this.lines.get(uuid);
    if (line === undefined) {
      line = emptyLine();
      this.lines.set(uuid, line);
    }
    return line;
  }

  private withUnit(figure: string): string {
    return figure === UNKNOWN ? figure : `${figure} ${this.unit.name}`;
  }

  private alpha(uuid: string): number {
    return this.focused === null || this.focused === uuid ? 1 : FADED;
  }

  /** Where no GPU has it for good, the reason stands in the place of an empty chart. */
  private sayWhy(empty: boolean): void {
    const reasons = this.frame?.gpus.map(({ reading }) => reasonOf(reading, this.name)) ?? [];
    const never = empty && reasons.length > 0 && reasons.every(reason => reason !== '');
    setAttribute(this.node, 'data-empty', never ? 'true' : '');
    this.why.set(never ? (reasons[0] ?? '') : '');
  }

  private resize(width: number): void {
    if (width === this.width) {
      return;
    }
    this.width = width;
    if (width === 0) {
      return;
    }
    this.plot?.setSize({ width, height: HEIGHT });
    if (this.frame !== null) {
      this.draw(this.frame);
    }
  }

  private create(gpus: readonly ShownGpu[], data: uPlot.AlignedData): uPlot {
    const wanted = gpus.map(({ gpu, place }) => `${gpu.uuid} ${String(place)}`).join();
    if (this.plot !== null && this.plotted === wanted) {
      return this.plot;
    }
    this.plot?.destroy();
    this.plotted = wanted;
    this.plot = new uPlot(this.options(gpus), data, this.canvas);
    return this.plot;
  }

  private options(gpus: readonly ShownGpu[]): uPlot.Options {
    const { colours, key, zoom, reset } = this.ports;
    const hidden = { show: false };
    const axis = {
      stroke: () => colours().text,
      font: colours().font,
      grid: { stroke: () => colours().grid, width: 1 },
      ticks: hidden
    };
    return {
      width: this.width,
      height: HEIGHT,
      padding: [6, gpus.length > 1 ? LABEL_WIDTH : 8, 0, 0],
      legend: hidden,
      cursor: {
        y: false,
        points: hidden,
        drag: { x: true, y: false, setScale: false, dist: SMALLEST_DRAG },
        // Of a drag the others hear nothing: a part is chosen once.
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
          size: 18,
          gap: 3,
          space: 64,
          values: (_, splits, __, ___, step) => splits.map(time => clock(time, step))
        },
        {
          ...axis,
          size: AXIS_WIDTH,
          gap: 4,
          splits: () => [0, this.top / 2, this.top],
          values: (_, splits) => splits.map(value => figureIn(value, this.unit))
        }
      ],
      series: [
        {},
        ...gpus.map(({ gpu, place }) => ({
          stroke: () => colours().gpus[hueOf(place)] ?? '',
          dash: [...dashOf(place)],
          width: 1.25,
          alpha: this.alpha(gpu.uuid),
          points: hidden
        }))
      ],
      hooks: {
        drawAxes: [
          (u: uPlot) => {
            this.paintBands(u, gpus);
          }
        ],
        draw: [
          (u: uPlot) => {
            this.paintLabels(u, gpus);
          }
        ],
        setCursor: [
          (u: uPlot) => {
            this.pointed(u);
          }
        ],
        setSelect: [
          (u: uPlot) => {
            const { left, width } = u.select;
            if (width >= SMALLEST_DRAG) {
              zoom({ from: u.posToVal(left, 'x'), to: u.posToVal(left + width, 'x') });
              u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            }
          }
        ]
      }
    };
  }

  private pointed(u: uPlot): void {
    const row = (u.cursor.left ?? -1) < 0 ? null : (u.cursor.idx ?? null);
    this.tell(row);
    // Of those that share the cursor, the one under the pointer tells.
    if (u.over.matches(':hover')) {
      this.ports.focus(row === null ? null : this.nearest(u, row));
      this.ports.point(this, row);
    } else if (row === null) {
      this.ports.point(null, null);
    }
  }

  private nearest(u: uPlot, row: number): string | null {
    const pointer = u.cursor.top ?? 0;
    let found: string | null = null;
    let least = NEAR;
    for (const { gpu } of this.frame?.gpus ?? []) {
      const value = this.line(gpu.uuid).mean[row] ?? null;
      const distance = value === null ? Infinity : Math.abs(u.valToPos(value, 'y') - pointer);
      if (distance < least) {
        least = distance;
        found = gpu.uuid;
      }
    }
    return found;
  }

  private paintBands(u: uPlot, gpus: readonly ShownGpu[]): void {
    const times = this.frame?.moments.times ?? [];
    for (const { gpu, place } of gpus) {
      const colour = this.ports.colours().gpus[hueOf(place)] ?? '';
      paintBand(u, times, this.line(gpu.uuid), colour, this.alpha(gpu.uuid));
    }
  }

  /** The GPUs' numbers beside the ends of their lines: colour is not the only way to tell them. */
  private paintLabels(u: uPlot, gpus: readonly ShownGpu[]): void {
    if (gpus.length < 2) {
      return;
    }
    const { ctx, bbox } = u;
    const { colours } = this.ports;
    const ended = gpus.flatMap(shown => {
      const { mean } = this.line(shown.gpu.uuid);
      const value = mean.at(-1) ?? mean.at(-2) ?? null;
      return value === null ? [] : [{ shown, y: u.valToPos(value, 'y', true) }];
    });
    const height = LABEL_HEIGHT * devicePixelRatio;
    ctx.save();
    ctx.font = colours().font.replace('10px', `${String(10 * devicePixelRatio)}px`);
    ctx.textBaseline = 'middle';
    const heights = ended.map(({ y }) => y);
    for (const { y, members } of place(heights, height, bbox.top + height / 3, bbox.top + bbox.height)) {
      const stands = members.flatMap(member => ended[member]?.shown ?? []);
      const [first] = stands;
      const focused = stands.some(({ gpu }) => gpu.uuid === this.focused);
      ctx.globalAlpha = this.focused === null || focused ? 1 : 2 * FADED;
      ctx.fillStyle =
        stands.length === 1 && first !== undefined
          ? (colours().gpus[hueOf(first.place)] ?? '')
          : colours().text;
      ctx.fillText(
        shortened(
          stands.map(({ number }) => number),
          3
        ),
        bbox.left + bbox.width + 4 * devicePixelRatio,
        y
      );
    }
    ctx.restore();
  }
}

function clock(time: number, step: number): string {
  const then = new Date(1000 * time);
  const two = (value: number): string => String(value).padStart(2, '0');
  const parts = [then.getHours(), then.getMinutes(), ...(step < 60 ? [then.getSeconds()] : [])];
  return parts.map(two).join(':');
}
