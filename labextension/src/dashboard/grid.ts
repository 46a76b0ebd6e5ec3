import { element } from '../ui/dom';
import { MetricChart, type ChartPorts, type Frame } from './chart';
import type { MetricName } from './metrics';
import { Readout } from './readout';

/** A chart that will soon be seen is drawn. */
const MARGIN = '60px';

/** The charts of all metrics that are chosen. Only those in view are drawn. */
export class Grid {
  readonly node: HTMLElement;
  /** What scrolls, and takes the keyboard. */
  readonly scroll = element('div', 'charts');
  private readonly charts = new Map<MetricName, MetricChart>();
  private readonly seen = new Set<MetricChart>();
  private readonly observer: IntersectionObserver;
  private readonly readout: Readout;
  private frame: Frame | null = null;
  private focused: string | null = null;
  private told: MetricChart | null = null;
  private row: number | null = null;

  constructor(private readonly ports: Omit<ChartPorts, 'point' | 'focus'>) {
    this.node = element('div', 'stage', this.scroll);
    this.readout = new Readout(this.node);
    this.node.append(this.readout.node);
    this.observer = new IntersectionObserver(
      entries => {
        entries.forEach(({ target, isIntersecting }) => {
          this.show(target, isIntersecting);
        });
      },
      { root: this.scroll, rootMargin: MARGIN }
    );
    this.node.addEventListener('mousemove', event => {
      this.follow(event);
    });
  }

  /** The moment under the shared cursor, null where there is none. */
  get pointed(): number | null {
    return this.row === null ? null : (this.frame?.moments.times[this.row] ?? null);
  }

  /** Have a chart for each of these, in this order. */
  choose(names: readonly MetricName[]): void {
    if (names.join() === [...this.charts.keys()].join()) {
      return;
    }
    const kept = new Map(this.charts);
    this.charts.clear();
    for (const name of names) {
      const chart = kept.get(name) ?? this.made(name);
      kept.delete(name);
      this.charts.set(name, chart);
    }
    for (const chart of kept.values()) {
      this.observer.unobserve(chart.node);
      this.seen.delete(chart);
      chart.dispose();
    }
    this.scroll.replaceChildren(...[...this.charts.values()].map(({ node }) => node));
  }

  /** Draw `frame`. */
  draw(frame: Frame): void {
    this.frame = frame;
    for (const chart of this.seen) {
      chart.draw(frame);
    }
    if (this.told !== null) {
      this.tell(this.told, this.told.row);
    }
  }

  /** Put one GPU before the others, or none. */
  focus(uuid: string | null): void {
    if (uuid !== this.focused) {
      this.focused = uuid;
      for (const chart of this.seen) {
        chart.focus(uuid);
      }
    }
  }

  /** Put the shared cursor at a moment, as by a key, or take it away. */
  point(time: number | null): void {
    const [first] = this.seen;
    for (const chart of this.seen) {
      chart.point(time);
    }
    if (first !== undefined && time !== null) {
      this.tell(first, first.row);
      this.readout.move(
        first.node.offsetLeft + first.node.clientWidth / 2,
        first.node.offsetTop - this.scroll.scrollTop
      );
    } else {
      this.tell(null, null);
    }
  }

  /** Draw all charts in another theme's colours. */
  recolour(): void {
    for (const chart of this.charts.values()) {
      chart.recolour();
    }
  }

  /** Take all charts away. */
  dispose(): void {
    this.observer.disconnect();
    this.choose([]);
  }

  private made(name: MetricName): MetricChart {
    const chart = new MetricChart(name, {
      ...this.ports,
      point: (pointed, row) => {
        this.tell(pointed, row);
      },
      focus: uuid => {
        this.focus(uuid);
      }
    });
    chart.focus(this.focused);
    this.observer.observe(chart.node);
    return chart;
  }

  private show(node: Element, visible: boolean): void {
    const chart = [...this.charts.values()].find(one => one.node === node);
    if (chart === undefined) {
      return;
    }
    if (!visible) {
      this.seen.delete(chart);
      return;
    }
    this.seen.add(chart);
    chart.focus(this.focused);
    if (this.frame !== null) {
      chart.draw(this.frame);
    }
  }

  private tell(chart: MetricChart | null, row: number | null): void {
    this.told = row === null ? null : chart;
    this.row = row;
    const time = row === null ? undefined : this.frame?.moments.times[row];
    if (chart === null || row === null || time === undefined || this.frame === null) {
      this.readout.hide();
    } else {
      this.readout.show(chart, row, time, this.frame.course.stepSeconds, this.focused);
    }
  }

  private follow({ clientX, clientY }: MouseEvent): void {
    if (this.told !== null) {
      const { left, top } = this.node.getBoundingClientRect();
      this.readout.move(clientX - left, clientY - top);
    }
  }
}
