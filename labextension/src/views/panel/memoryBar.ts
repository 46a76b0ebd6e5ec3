import type { Holder } from '../../model/memory/holders';
import type { MemoryShares } from '../../model/stream/streamModel';
import { element, setAttribute } from '../../ui/dom';

/** A part of a memory bar: the active notebook, another holder, or unattributed memory. */
export interface Segment {
  readonly who: 'here' | 'other' | 'unknown';
  /** Size in bytes. */
  readonly memory: number;
}

/**
 * Maximum number of segments for holders other than the active notebook. With more segments, most of the bar
 * would be gaps.
 */
const MAX_OTHERS = 5;

const COLORS: Readonly<Record<Segment['who'], string>> = {
  here: 'var(--jp-gpuwidget-here)',
  other: 'var(--jp-gpuwidget-other)',
  unknown: 'var(--jp-gpuwidget-unknown)'
};
const FREE_COLOR = 'var(--jp-gpuwidget-track)';

/**
 * Divide the used memory of a GPU into segments: the active notebook, the first few other holders, the
 * remaining holders together, and unattributed memory. Segments are cut so that their sum is the used memory,
 * since the driver returns these figures at different moments.
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
  // If the driver has no figure for the active notebook, torch may have one.
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

  /** Show `segments` of a GPU with `total` bytes. `text` is the bar's description for screen readers. */
  update(segments: readonly Segment[], total: number | null, text: string): void {
    // The segments are drawn as a background, which only has to be repainted after a change; child elements
    // would need a new layout.
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
