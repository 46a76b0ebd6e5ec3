import uPlot from 'uplot';

import { bandAt, bandsPlugin, type Palette } from '../../ui/chartBands';
import type { Band } from '../../model/cells/band';
import { setAttribute, setHidden, TextElement } from '../../ui/dom';
import type { Curve, HistoryBuffer } from '../../model/stream/historyBuffer';

/** The data that a chart draws. */
export interface ChartData {
  readonly history: HistoryBuffer;
  readonly uuid: string;
  /** The GPU's total memory in bytes, which is needed to draw the used memory in percent. */
  readonly total: number | null;
  readonly seconds: number;
  /** The lines are interrupted where there is no sample for more than this many seconds. */
  readonly gap: number;
  /** The time ranges in which cells of the active notebook used the GPU. */
  readonly bands: readonly Band[];
}

/** What a chart shows at one time. */
export interface ChartPoint {
  /** Epoch seconds. */
  readonly time: number;
  /** Utilization in percent; null if unknown. */
  readonly utilization: number | null;
  /** Used memory in percent of the total; null if unknown. */
  readonly memory: number | null;
  /** The tooltip's text of the cell that ran; null if no cell ran. */
  readonly band: string | null;
}

/** The live chart of one GPU: utilization as a filled line and memory as a dashed line, both in percent. */
export class GpuChart {
  readonly node = document.createElement('div');
  private readonly curve: Curve = [[], [], []];
  private readonly observer: ResizeObserver;
  private plot: uPlot | null = null;
  private width = 0;
  private drawnAt = NaN;
  private data: ChartData | null = null;
  private readonly readout = new TextElement('gpu-readout', 'div');

  /** If `textAt` is given, the chart shows its text for the time at the pointer. */
  constructor(
    className: string,
    private readonly height: number,
    private readonly palette: () => Palette,
    private readonly textAt?: (point: ChartPoint, total: number | null) => string
  ) {
    this.node.className = className;
    this.node.setAttribute('role', 'img');
    setHidden(this.readout.node, true);
    if (textAt !== undefined) {
      this.node.append(this.readout.node);
    }
    this.observer = new ResizeObserver(entries => {
      this.resize(Math.floor(entries[0]?.contentRect.width ?? 0));
    });
    this.observer.observe(this.node);
  }

  /**
   * Draw the newest samples if the chart is `visible`, unless the lines would move by less than two pixels.
   * An invisible chart is drawn when it becomes visible or is resized.
   */
  update(data: ChartData, visible: boolean): void {
    if (this.data?.history !== data.history || this.data.seconds !== data.seconds) {
      this.drawnAt = NaN;
    }
    this.data = data;
    const newest = data.history.newest;
    const moved = Math.abs(newest - this.drawnAt);
    if (visible && this.width > 0 && !(moved < (2 * data.seconds) / this.width)) {
      this.draw(data, newest);
    }
  }

  /** Redraw the chart in the colors of the current theme. */
  redraw(): void {
    this.plot?.redraw(false);
  }

  /** Remove the canvas and stop observing the size. */
  dispose(): void {
    this.observer.disconnect();
    this.plot?.destroy();
    this.plot = null;
  }

  private draw(data: ChartData, newest: number): void {
    this.drawnAt = newest;
    if (Number.isNaN(newest)) {
      return;
    }
    data.history.curve(data.uuid, newest - data.seconds, data.total, data.gap, this.curve);
    const plot = (this.plot ??= this.create());
    plot.batch(() => {
      plot.setData(this.curve, false);
      plot.setScale('x', { min: newest - data.seconds, max: newest });
    });
  }

  private resize(width: number): void {
    if (width === this.width) {
      return;
    }
    this.width = width;
    if (width === 0) {
      return; // A hidden chart has no size. It is drawn when it is shown again.
    }
    this.plot?.setSize({ width, height: this.height });
    if (this.data !== null) {
      this.draw(this.data, this.data.history.newest);
    }
  }

  /** Show the values at the pointer, on the other half of the chart. */
  private updateReadout(plot: uPlot): void {
    const { left = -1, idx = null } = plot.cursor;
    setHidden(this.readout.node, left < 0);
    if (left < 0 || this.data === null || this.textAt === undefined) {
      return;
    }
    const { bands, gap, total } = this.data;
    const pointed = plot.posToVal(left, 'x');
    const [times, utilization, memory] = this.curve;
    const nearest = idx === null ? NaN : (times[idx] ?? NaN);
    const sampled = idx !== null && Math.abs(nearest - pointed) <= gap;
    const point = {
      time: sampled ? nearest : pointed,
      utilization: sampled ? (utilization[idx] ?? null) : null,
      memory: sampled ? (memory[idx] ?? null) : null,
      band: bandAt(bands, pointed)?.title ?? null
    };
    this.readout.set(this.textAt(point, total));
    setAttribute(this.readout.node, 'data-side', left < plot.over.clientWidth / 2 ? 'right' : 'left');
  }

  private create(): uPlot {
    const hidden = { show: false };
    const options: uPlot.Options = {
      width: this.width,
      height: this.height,
      padding: [1, 0, 1, 0],
      plugins: [bandsPlugin(() => this.data?.bands ?? [], this.palette)],
      legend: hidden,
      cursor: {
        show: this.textAt !== undefined,
        y: false,
        points: hidden,
        drag: { x: false, y: false },
        bind: { dblclick: () => null }
      },
      axes: [hidden, hidden],
      scales: { x: { time: false, auto: false }, y: { auto: false, range: [0, 100] } },
      series: [
        {},
        {
          stroke: () => this.palette().utilization,
          fill: () => this.palette().area,
          width: 1.25,
          points: hidden
        },
        { stroke: () => this.palette().memory, width: 1.25, dash: [3, 2], points: hidden }
      ],
      hooks: {
        setCursor: [
          plot => {
            this.updateReadout(plot);
          }
        ]
      }
    };
    return new uPlot(options, this.curve, this.node);
  }
}
