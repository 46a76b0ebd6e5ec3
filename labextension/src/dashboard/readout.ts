import { element, Text } from '../ui/dom';
import { moment } from '../ui/format';
import type { MetricChart } from './chart';
import { swatch } from './swatch';

const GAP = 14;

/** What every GPU read at the moment under the pointer, beside it. */
export class Readout {
  readonly node: HTMLElement;
  private readonly time = new Text('moment', 'div');
  private readonly rows = element('div', 'figures');
  private listed = '';
  private cells: (readonly [HTMLElement, Text, Text])[] = [];

  constructor(private readonly within: HTMLElement) {
    this.node = element('div', 'readout', this.time.node, this.rows);
    // The same figures stand above the chart, as text.
    this.node.setAttribute('aria-hidden', 'true');
    this.node.hidden = true;
  }

  /** Show the figures of `chart` at its `row`, which is at `time`; those of `focused` first to be seen. */
  show(chart: MetricChart, row: number, time: number, step: number, focused: string | null): void {
    const figures = chart.figures(row);
    const listed = figures.map(({ shown }) => `${shown.gpu.uuid} ${String(shown.place)}`).join();
    if (listed !== this.listed) {
      this.listed = listed;
      this.cells = figures.map(({ shown }) => {
        const cells = [
          element('span', 'who', swatch(shown.place), shown.number),
          new Text('mean'),
          new Text('span')
        ] as const;
        return cells;
      });
      this.rows.replaceChildren(
        ...this.cells.map(([who, mean, span]) => element('div', 'figure', who, mean.node, span.node))
      );
      this.rows.dataset.columns = figures.length > 8 ? '2' : '1';
    }
    const now = Date.now() / 1000;
    this.time.set(step >= 2 ? `${moment(time - step / 2, now)} + ${String(step)} s` : moment(time, now));
    figures.forEach(({ shown, mean, span }, number) => {
      const [who, meanText, spanText] = this.cells[number] ?? [];
      meanText?.set(mean);
      spanText?.set(span);
      who?.parentElement?.toggleAttribute('data-focused', shown.gpu.uuid === focused);
    });
    this.node.hidden = false;
  }

  /** Put it beside the pointer, within the view. */
  move(x: number, y: number): void {
    const { width, height } = this.node.getBoundingClientRect();
    const left = x + GAP + width > this.within.clientWidth ? x - GAP - width : x + GAP;
    const top = Math.min(y + GAP, this.within.clientHeight - height - 4);
    this.node.style.transform = `translate(${String(Math.max(4, left))}px, ${String(Math.max(4, top))}px)`;
  }

  /** Take it away. */
  hide(): void {
    this.node.hidden = true;
  }
}
