import type { Segment } from '../holders/segments';
import { element, setAttribute } from '../ui/dom';

const COLOURS: Readonly<Record<Segment['who'], string>> = {
  here: 'var(--jp-gpuwidget-here)',
  other: 'var(--jp-gpuwidget-other)',
  unknown: 'var(--jp-gpuwidget-unknown)'
};
const FREE = 'var(--jp-gpuwidget-track)';

/** The memory of one GPU as a bar: this notebook, others, what is nobody's, free. */
export class MemoryBar {
  readonly node = element('span', 'bar');

  constructor() {
    this.node.setAttribute('role', 'img');
  }

  /** Show `segments` of `total` bytes, said in `words`. */
  update(segments: readonly Segment[], total: number | null, words: string): void {
    // A background, which is painted anew and lays nothing out.
    const background = total === null || total <= 0 ? FREE : gradient(segments, total);
    setAttribute(this.node, 'style', `background: ${background}`);
    setAttribute(this.node, 'aria-label', words);
  }
}

/** From the left, each with a thin gap to the next. */
function gradient(segments: readonly Segment[], total: number): string {
  const stops: string[] = [];
  let from = 0;
  for (const { who, memory } of segments) {
    const to = from + (100 * memory) / total;
    const [start, end] = [`${from.toFixed(1)}%`, `${to.toFixed(1)}%`];
    stops.push(`${COLOURS[who]} ${start} calc(${end} - 1px)`, `${FREE} calc(${end} - 1px) ${end}`);
    from = to;
  }
  return `linear-gradient(to right, ${[...stops, `${FREE} ${from.toFixed(1)}% 100%`].join(', ')})`;
}
