import uPlot from 'uplot';

import { bandAt, bandsPlugin, type Band } from '../ui/chartBands';
import { setAttribute } from '../ui/dom';
import type { Palette } from '../ui/chartBands';
import type { Curve, HistoryBuffer } from '../stream/historyBuffer';

/** Which part of the past a chart draws. */
export interface Span {
  readonly past: HistoryBuffer;
  readonly uuid: string;
  /** Bytes of the GPU, to draw its memory in percent. */
  readonly total: number | null;
  readonly seconds: number;
  /** Seconds without a sample after which the curve is broken. */
  readonly gap: number;
  /** Which cell of the notebook in front used it when. */
  readonly bands: readonly Band[];
}

/** The live chart of one GPU: utilization a filled line, memory a dashed one, both in percent of all there is. */
export class Chart {
  readonly node = document.createElement('div');
  private readonly curve: Curve = [[], [], []];
  private readonly observer: ResizeObserver;
  private plot: uPlot | null = null;
  private width = 0;
  private drawnAt = NaN;
  private span: Span | null = null;

  constructor(
    className: string,
    private readonly height: number,
    private readonly palette: () => Palette
  ) {
    this.node.className = className;
    this.node.setAttribute('role', 'img');
    this.node.onpointermove = event => {
      setAttribute(this.node, 'title', this.bandUnder(event));
    };
    this.observer = new ResizeObserver(entries => {
      this.resize(Math.floor(entries[0]?.contentRect.width ?? 0));
    });
    this.observer.observe(this.node);
  }

  /**
   * Draw the newest samples if the chart is `inSight`, unless that would move the curve by less than two pixels. A chart
   * that is out of sight is drawn when it comes into sight or is resized.
   */
  update(span: Span, inSight: boolean): void {
    if (this.span?.past !== span.past || this.span.seconds !== span.seconds) {
      this.drawnAt = NaN;
    }
    this.span = span;
    const newest = span.past.newest;
    const moved = Math.abs(newest - this.drawnAt);
    if (inSight && this.width > 0 && !(moved < (2 * span.seconds) / this.width)) {
      this.draw(span, newest);
    }
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
  }

  private draw(span: Span, newest: number): void {
    this.drawnAt = newest;
    if (Number.isNaN(newest)) {
      return;
    }
    span.past.curve(span.uuid, newest - span.seconds, span.total, span.gap, this.curve);
    const plot = (this.plot ??= this.create());
    plot.batch(() => {
      plot.setData(this.curve, false);
      plot.setScale('x', { min: newest - span.seconds, max: newest });
    });
  }

  private resize(width: number): void {
    if (width === this.width) {
      return;
    }
    this.width = width;
    if (width === 0) {
      return; // Not shown: nothing is drawn until it is.
    }
    this.plot?.setSize({ width, height: this.height });
    if (this.span !== null) {
      this.draw(this.span, this.span.past.newest);
    }
  }

  private bandUnder({ clientX }: MouseEvent): string {
    if (this.plot === null || this.span === null) {
      return '';
    }
    const time = this.plot.posToVal(clientX - this.node.getBoundingClientRect().left, 'x');
    return bandAt(this.span.bands, time)?.title ?? '';
  }

  private create(): uPlot {
    const hidden = { show: false };
    const options: uPlot.Options = {
      width: this.width,
      height: this.height,
      padding: [1, 0, 1, 0],
      plugins: [bandsPlugin(() => this.span?.bands ?? [], this.palette)],
      legend: hidden,
      cursor: hidden,
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
      ]
    };
    return new uPlot(options, this.curve, this.node);
  }
}
