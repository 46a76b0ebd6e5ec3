import type { Holder } from '../memory/holders';
import type { MemoryShares } from '../stream/streamModel';
import { element, setAttribute } from '../ui/dom';

/** A part of a memory bar: the active notebook, another holder, or unattributed memory. */
export interface Segment {
  readonly who: 'here' | 'other' | 'unknown';
  /** Bytes. */
  readonly memory: number;
}

/** How many other holders get a segment each: more would be nothing but gaps. */
const MAX_OTHERS = 5;

const COLORS: Readonly<Record<Segment['who'], string>> = {
  here: 'var(--jp-gpuwidget-here)',
  other: 'var(--jp-gpuwidget-other)',
  unknown: 'var(--jp-gpuwidget-unknown)'
};
const FREE_COLOR = 'var(--jp-gpuwidget-track)';

/**
 * Divide the used memory of a GPU into segments: the active notebook, the first of the other holders, the rest of them in
 * one, then unattributed memory. Their sum never exceeds the used memory, though each was measured at another time.
 */
export function memorySegments({ here, used }: MemoryShares, holders: readonly Holder[]): Segment[] {
  const segments: Segment[] = [];
  let left = used ?? 0;
  const add = (who: Segment['who'], memory: number | null): void => {
    const size = Math.min(memory ?? 0, left);
    if (size > 0) {
      segments.push({ who, memory: size });
      left -= size;
    }
  };
  // For the active notebook torch may have a figure where the driver has none.
  add('here', here ?? holders.find(({ active }) => active)?.memory ?? null);
  const others = holders.filter(({ active, kind }) => !active && kind !== 'unattributed');
  for (const { memory } of others.slice(0, MAX_OTHERS)) {
    add('other', memory);
  }
  add(
    'other',
    others.slice(MAX_OTHERS).reduce((sum, { memory }) => sum + (memory ?? 0), 0)
  );
  add(holders.length > 0 ? 'unknown' : 'other', left);
  return segments;
}

/** The memory of one GPU as a bar. */
export class MemoryBar {
  readonly node = element('span', 'gpu-bar');

  constructor() {
    this.node.setAttribute('role', 'img');
  }

  /** Show `segments` of `total` bytes with `text` for screen readers. */
  update(segments: readonly Segment[], total: number | null, text: string): void {
    // A background, since that is only repainted: elements would be laid out again.
    const background = total === null || total <= 0 ? FREE_COLOR : gradient(segments, total);
    setAttribute(this.node, 'style', `background: ${background}`);
    setAttribute(this.node, 'aria-label', text);
  }
}

/** Return a gradient with a narrow gap after each segment. */
function gradient(segments: readonly Segment[], total: number): string {
  const stops: string[] = [];
  let from = 0;
  for (const { who, memory } of segments) {
    const to = from + (100 * memory) / total;
    const [start, end] = [`${from.toFixed(1)}%`, `${to.toFixed(1)}%`];
    stops.push(`${COLORS[who]} ${start} calc(${end} - 1px)`, `${FREE_COLOR} calc(${end} - 1px) ${end}`);
    from = to;
  }
  return `linear-gradient(to right, ${[...stops, `${FREE_COLOR} ${from.toFixed(1)}% 100%`].join(', ')})`;
}
