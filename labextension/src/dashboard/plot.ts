import uPlot from 'uplot';

import type { Gpu } from '../wire';
import { paintBand } from './bands';
import { dashOf, hueOf, type Colours } from './colours';
import type { Line } from './course';
import { place, shortened } from './labels';
import { figureIn, type Unit } from './metrics';
import type { Part } from './state';

/** Pixels, of CSS. */
export const HEIGHT = 118;
const AXIS_WIDTH = 40;
const LABEL_HEIGHT = 11;
/** Between the end of a line and the number beside it, and beyond that. */
const LABEL_GAP = 4;
/** So many numbers stand beside each other, the rest is counted. */
const MOST_LABELS = 3;
const FADED = 0.15;
const SMALLEST_DRAG = 6;
/** A pointer so near to a line, in pixels, means that GPU. */
const NEAR = 14;
const AWAY = -10;

/** One line of a plot. */
export interface Drawn {
  readonly gpu: Gpu;
  /** Its place in the driver's list, which decides its colour. */
  readonly place: number;
  /** Its number in `nvidia-smi`. */
  readonly number: string;
  readonly line: Line;
}

/** What all plots share, and what each tells. */
export interface PlotPorts {
  readonly colours: () => Colours;
  /** Plots with the same key share their cursor. */
  readonly key: string;
  readonly zoom: (part: Part) => void;
  readonly reset: () => void;
  /** The shared cursor is at that row; `under`: the pointer is here, near the line of `uuid` if any. */
  readonly pointed: (row: number | null, under: boolean, uuid: string | null) => void;
}

/** The canvas of one chart: uPlot with the spans behind the lines, and the GPUs' numbers at their ends. */
export class Plot {
  private readonly u: uPlot;
  private focused: string | null = null;
  private top = 1;
  private unit: Unit = { name: '', size: 1 };

  /** Put it into `node`, so wide; `times` and the lines of `drawn` are written anew for each `draw`. */
  constructor(
    node: HTMLElement,
    width: number,
    private readonly drawn: readonly Drawn[],
    private readonly times: number[],
    private readonly ports: PlotPorts
  ) {
    this.u = new uPlot(this.options(width), this.data, node);
  }

  /** The row under the shared cursor, null where there is none. */
  get row(): number | null {
    return (this.u.cursor.left ?? AWAY) < 0 ? null : (this.u.cursor.idx ?? null);
  }

  /** Draw that part, up to `top`. */
  draw(part: Part, top: number, unit: Unit): void {
    const other = unit.name !== this.unit.name;
    this.top = top;
    this.unit = unit;
    this.u.batch(() => {
      this.u.setData(this.data, false);
      this.u.setScale('x', { min: part.from, max: part.to });
      this.u.setScale('y', { min: 0, max: top });
    });
    if (other) {
      this.u.redraw(false, true); // The same scale as before, in other numbers.
    }
  }

  /** Put one GPU before the others, or none. */
  focus(uuid: string | null): void {
    this.focused = uuid;
    this.drawn.forEach(({ gpu }, number) => {
      const series = this.u.series[number + 1];
      if (series !== undefined) {
        series.alpha = this.alpha(gpu.uuid);
      }
    });
    this.u.redraw(false);
  }

  /** Put the cursor at a moment, or take it away. */
  point(time: number | null): void {
    const left = time === null ? AWAY : this.u.valToPos(time, 'x');
    this.u.setCursor({ left, top: time === null ? AWAY : HEIGHT / 2 });
  }

  /** Draw it again, as in another theme's colours. */
  redraw(): void {
    this.u.redraw(false);
  }

  /** Make it so wide. */
  resize(width: number): void {
    this.u.setSize({ width, height: HEIGHT });
  }

  /** Forget the canvas. */
  dispose(): void {
    this.u.destroy();
  }

  private get data(): uPlot.AlignedData {
    return [this.times, ...this.drawn.map(({ line }) => line.mean)] as uPlot.AlignedData;
  }

  private alpha(uuid: string): number {
    return this.focused === null || this.focused === uuid ? 1 : FADED;
  }

  private colour(place: number): string {
    return this.ports.colours().gpus[hueOf(place)] ?? '';
  }

  private options(width: number): uPlot.Options {
    const { colours, key, reset } = this.ports;
    const hidden = { show: false };
    const axis = {
      stroke: () => colours().text,
      font: `10px ${colours().font}`,
      grid: { stroke: () => colours().grid, width: 1 },
      ticks: hidden
    };
    return {
      width,
      height: HEIGHT,
      padding: [6, this.labelRoom(), 0, 0],
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
        ...this.drawn.map(({ place }) => ({
          stroke: () => this.colour(place),
          dash: [...dashOf(place)],
          width: 1.25,
          points: hidden
        }))
      ],
      hooks: {
        drawAxes: [
          (u: uPlot) => {
            for (const { gpu, place, line } of this.drawn) {
              paintBand(u, this.times, line, this.colour(place), this.alpha(gpu.uuid));
            }
          }
        ],
        draw: [
          (u: uPlot) => {
            this.paintLabels(u);
          }
        ],
        setCursor: [
          (u: uPlot) => {
            this.tell(u);
          }
        ],
        setSelect: [
          (u: uPlot) => {
            this.select(u);
          }
        ]
      }
    };
  }

  /** Room for the numbers beside the ends of the lines, were they the longest ones and all in one place. */
  private labelRoom(): number {
    const context = document.createElement('canvas').getContext('2d');
    if (this.drawn.length < 2 || context === null) {
      return 2 * LABEL_GAP;
    }
    context.font = `10px ${this.ports.colours().font}`;
    const numbers = this.drawn.map(({ number }) => number).sort((one, other) => other.length - one.length);
    const shown = numbers.slice(0, numbers.length > MOST_LABELS ? MOST_LABELS - 1 : MOST_LABELS);
    const rest = numbers.length - shown.length;
    const longest = [...shown, ...(rest === 0 ? [] : [`+${String(rest)}`])].join(' ');
    return Math.ceil(context.measureText(longest).width) + 2 * LABEL_GAP;
  }

  private tell(u: uPlot): void {
    const row = (u.cursor.left ?? AWAY) < 0 ? null : (u.cursor.idx ?? null);
    const under = u.over.matches(':hover');
    this.ports.pointed(row, under, under && row !== null ? this.nearest(u, row) : null);
  }

  private select(u: uPlot): void {
    const { left, width } = u.select;
    if (width >= SMALLEST_DRAG) {
      u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
      this.ports.zoom({ from: u.posToVal(left, 'x'), to: u.posToVal(left + width, 'x') });
    }
  }

  private nearest(u: uPlot, row: number): string | null {
    const pointer = u.cursor.top ?? 0;
    let found: string | null = null;
    let least = NEAR;
    for (const { gpu, line } of this.drawn) {
      const value = line.mean[row] ?? null;
      const distance = value === null ? Infinity : Math.abs(u.valToPos(value, 'y') - pointer);
      if (distance < least) {
        least = distance;
        found = gpu.uuid;
      }
    }
    return found;
  }

  /** The GPUs' numbers beside the ends of their lines: colour is not the only way to tell them. */
  private paintLabels(u: uPlot): void {
    if (this.drawn.length < 2) {
      return;
    }
    const { ctx, bbox } = u;
    const { text, font } = this.ports.colours();
    const ended = this.drawn.flatMap(drawn => {
      const value = drawn.line.mean.at(-1) ?? drawn.line.mean.at(-2) ?? null;
      return value === null ? [] : [{ drawn, y: u.valToPos(value, 'y', true) }];
    });
    const height = LABEL_HEIGHT * devicePixelRatio;
    const left = bbox.left + bbox.width + LABEL_GAP * devicePixelRatio;
    ctx.save();
    ctx.font = `${String(10 * devicePixelRatio)}px ${font}`;
    ctx.textAlign = 'left';
    ctx.textBaseline = 'middle';
    const heights = ended.map(({ y }) => y);
    for (const { y, members } of place(heights, height, bbox.top + height / 3, bbox.top + bbox.height)) {
      const all = members.flatMap(member => ended[member]?.drawn ?? []);
      const one = all.find(({ gpu }) => gpu.uuid === this.focused) ?? (all.length === 1 ? all[0] : undefined);
      ctx.globalAlpha = one === undefined ? this.alpha('') : this.alpha(one.gpu.uuid);
      ctx.fillStyle = one === undefined ? text : this.colour(one.place);
      ctx.fillText(
        one?.number ??
          shortened(
            all.map(({ number }) => number),
            MOST_LABELS
          ),
        left,
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
