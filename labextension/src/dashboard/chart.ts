import type { TranslationBundle } from '@jupyterlab/translation';

import { element, setAttribute, Text } from '../ui/dom';
import { UNKNOWN } from '../ui/format';
import type { Gpu, Reading } from '../wire';
import { emptyLine, type Course, type Line, type Moments } from './course';
import { figureIn, reasonOf, topOf, unitOf, valueOf, wordsOf, type MetricName, type Unit } from './metrics';
import { Plot, type PlotPorts } from './plot';
import type { Part } from './state';

/** So many numbers stand side by side above a chart; of more, the span. */
const FEW = 4;

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
export interface ChartPorts extends Omit<PlotPorts, 'pointed'> {
  readonly trans: TranslationBundle;
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

/** One metric of all GPUs that are shown: its name, its figures in words, and its plot. */
export class MetricChart {
  readonly node: HTMLElement;
  private readonly value = new Text('reading');
  private readonly why = new Text('why', 'div');
  private readonly canvas = element('div', 'canvas');
  private readonly observer: ResizeObserver;
  private readonly lines = new Map<string, Line>();
  private plot: Plot | null = null;
  private plotted = '';
  private frame: Frame | null = null;
  private focused: string | null = null;
  private width = 0;
  /** Whether the pointer is, or was last, on this chart. */
  private under = false;
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
    const caption = element('div', 'caption', title, this.value.node);
    this.node = element('section', 'course', caption, this.canvas, this.why.node);
    this.node.dataset.metric = name;
    this.observer = new ResizeObserver(entries => {
      this.resize(Math.floor(entries[0]?.contentRect.width ?? 0));
    });
    this.observer.observe(this.canvas);
  }

  /** The row under the shared cursor, null where there is none. */
  get row(): number | null {
    return this.plot?.row ?? null;
  }

  /** Draw `frame`. */
  draw(frame: Frame): void {
    this.frame = frame;
    const { gpus, course, moments, part } = frame;
    const highest: number[] = [];
    for (const { gpu } of gpus) {
      const line = this.line(gpu.uuid);
      course.line(gpu.uuid, this.name, moments, line);
      if (!Number.isNaN(line.highest)) {
        highest.push(line.highest);
      }
    }
    const limits = gpus.map(({ reading }) => reading.power_limit_w ?? 0);
    const all = gpus.map(({ gpu }) => gpu);
    const top = topOf(this.name, Math.max(0, ...highest), all, limits);
    this.unit = unitOf(this.name, top);
    this.sayWhy(highest.length === 0);
    this.tell(this.row);
    if (this.width > 0) {
      this.plotOf(frame).draw(part, top, this.unit);
    }
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
    if (uuid !== this.focused) {
      this.focused = uuid;
      this.plot?.focus(uuid);
      this.tell(this.row);
    }
  }

  /** Put the cursor at a moment, or take it away. */
  point(time: number | null): void {
    this.plot?.point(time);
  }

  /** Draw it again, in another theme's colours. */
  recolour(): void {
    this.plot?.redraw();
  }

  /** Take it away. */
  dispose(): void {
    this.observer.disconnect();
    this.plot?.dispose();
    this.plot = null;
    this.node.remove();
  }

  /** Write the figures at that row; those of now, or of the end, without one. */
  private tell(row: number | null): void {
    if (this.frame === null) {
      return;
    }
    const { gpus, live, moments } = this.frame;
    const at = row ?? moments.times.length - 1;
    const values = gpus.map(({ gpu, reading }) =>
      row === null && live ? valueOf(reading, this.name) : (this.line(gpu.uuid).mean[at] ?? null)
    );
    const known = values.filter(value => value !== null);
    const reasons = gpus.map(({ reading }) => reasonOf(reading, this.name));
    this.value.set(this.summary(gpus, values, known), known.length > 0 ? '' : (reasons.find(Boolean) ?? ''));
  }

  private summary(
    gpus: readonly ShownGpu[],
    values: readonly (number | null)[],
    known: readonly number[]
  ): string {
    const chosen = gpus.findIndex(({ gpu }) => gpu.uuid === this.focused);
    const figure = (value: number | null): string => figureIn(value, this.unit);
    if (chosen >= 0) {
      const words = this.withUnit(figure(values[chosen] ?? null));
      return this.ports.trans.__('GPU %1: %2', gpus[chosen]?.number ?? '', words);
    }
    if (known.length === 0) {
      return UNKNOWN;
    }
    const [least, most] = [figure(Math.min(...known)), figure(Math.max(...known))];
    const few = gpus.length <= FEW ? values.map(figure).join(' · ') : null;
    return this.withUnit(few ?? (least === most ? least : `${least} – ${most}`));
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
    if (width > 0) {
      this.plot?.resize(width);
      if (this.frame !== null) {
        this.draw(this.frame);
      }
    }
  }

  private plotOf({ gpus, moments }: Frame): Plot {
    const wanted = gpus.map(({ gpu, place }) => `${gpu.uuid} ${String(place)}`).join();
    if (this.plot !== null && this.plotted === wanted) {
      return this.plot;
    }
    this.plot?.dispose();
    this.plotted = wanted;
    const drawn = gpus.map(shown => ({ ...shown, line: this.line(shown.gpu.uuid) }));
    this.plot = new Plot(this.canvas, this.width, drawn, moments.times, {
      ...this.ports,
      pointed: (row, under, uuid) => {
        this.pointed(row, under, uuid);
      }
    });
    if (this.focused !== null) {
      this.plot.focus(this.focused);
    }
    return this.plot;
  }

  private pointed(row: number | null, under: boolean, uuid: string | null): void {
    this.tell(row);
    // Of those that share the cursor, the one under the pointer tells the others' view.
    if (under) {
      this.ports.focus(uuid);
      this.ports.point(this, row);
    } else if (row === null && this.under) {
      this.ports.focus(null);
      this.ports.point(null, null);
    }
    this.under = under || (this.under && row !== null);
  }
}
