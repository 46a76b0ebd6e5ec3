import type uPlot from 'uplot';

import type { Line } from '../../model/history/timeSeries';

/** Opacity of the area between minimum and maximum. */
const SPAN_OPACITY = 0.22;
const DOT_PX = 2;

/** Labels that would overlap. They are drawn together, at the position of the first one. */
export interface LabelGroup {
  readonly y: number;
  /** Indices of the labels in the group. */
  readonly members: readonly number[];
}

/**
 * Position the labels between `top` and `bottom`. Labels that are less than `distance` apart are combined
 * into a group.
 */
export function groupLabels(
  positions: readonly number[],
  distance: number,
  top: number,
  bottom: number
): LabelGroup[] {
  const order = positions
    .map((_, member) => member)
    .sort((a, b) => (positions[a] ?? 0) - (positions[b] ?? 0) || a - b);
  const groups: { y: number; members: number[] }[] = [];
  for (const member of order) {
    const y = Math.min(Math.max(positions[member] ?? 0, top), bottom);
    const previous = groups.at(-1);
    if (previous !== undefined && y - previous.y < distance) {
      previous.members.push(member);
    } else {
      groups.push({ y, members: [member] });
    }
  }
  return groups;
}

/** Return names that begin with a number, sorted by their number. */
export function sortNumbers(names: readonly string[]): string[] {
  return [...names].sort((a, b) => parseInt(a) - parseInt(b));
}

/** Return the first items, and the count of the others as text, if there are more than `max` items. */
export function abbreviate<T>(items: readonly T[], max: number): readonly [readonly T[], string] {
  return items.length <= max ? [items, ''] : [items.slice(0, max - 1), `+${String(items.length - max + 1)}`];
}

/**
 * Return two indices for each group of consecutive known values: the index of the group's first value, and
 * the index after its last value.
 */
export function rowRanges(values: readonly (number | null)[]): (readonly [number, number])[] {
  const runs: [number, number][] = [];
  let first = -1;
  for (let row = 0; row <= values.length; row++) {
    const known = (values[row] ?? null) !== null;
    if (known && first < 0) {
      first = row;
    } else if (!known && first >= 0) {
      runs.push([first, row]);
      first = -1;
    }
  }
  return runs;
}

/** Number of steps of a heat map's color. */
const HEAT_LEVELS = 12;
/** The opacity of 0: it must differ from the background, which is an unknown value. */
const LEAST_HEAT = 0.07;

/**
 * Paint the row of one GPU in a heat map: the higher a value is, compared with `top`, the darker. Steps with
 * about the same value are painted together.
 */
export function paintRow(
  u: uPlot,
  times: readonly number[],
  values: readonly (number | null)[],
  top: number,
  { y, height }: { y: number; height: number },
  color: string,
  alpha: number
): void {
  const { ctx, bbox } = u;
  const [from, to] = [u.scales.x?.min ?? 0, u.scales.x?.max ?? 1];
  const x = (time: number): number =>
    bbox.left + bbox.width * Math.min(1, Math.max(0, (time - from) / (to - from)));
  const level = (row: number): number => {
    const value = values[row] ?? null;
    return value === null ? NaN : Math.round(HEAT_LEVELS * Math.min(1, value / top));
  };
  // The newest time may be closer to the one before.
  const step = Math.min(...times.slice(1, -1).map((time, row) => time - (times[row] ?? 0)));
  ctx.save();
  ctx.fillStyle = color;
  for (let row = 0, first = 0; row < times.length; row++) {
    if (level(row + 1) === level(row)) {
      continue;
    }
    const heat = level(row);
    if (!Number.isNaN(heat)) {
      // A step lasts until the next one begins, and before a gap as long as the shortest one. The last step lasts
      // until now.
      const begin = x(times[first] ?? from);
      const next = times[row + 1] ?? to;
      const isLast = row + 1 === times.length;
      const end =
        Number.isNaN(level(row + 1)) && !isLast ? Math.min(next, (times[row] ?? from) + step) : next;
      ctx.globalAlpha = alpha * (LEAST_HEAT + ((1 - LEAST_HEAT) * heat) / HEAT_LEVELS);
      ctx.fillRect(begin, y, Math.max(x(end) - begin, devicePixelRatio), height);
    }
    first = row + 1;
  }
  ctx.restore();
}

/**
 * Paint the area between minimum and maximum of each step, so that a spike stays visible even if steps are
 * long, unless `hasArea` is false. A value without neighbors has no line and is painted as a dot.
 *
 * uPlot's `bands` are not used: they would need two more series per GPU, and therefore two more paths per
 * drawing.
 */
export function paintSpan(
  u: uPlot,
  times: readonly number[],
  line: Line,
  hasArea: boolean,
  color: string,
  alpha: number
): void {
  const { ctx } = u;
  // Both scales are linear, so values are converted directly. Thousands of calls of `valToPos` would be slow.
  const [from, to, top] = [u.scales.x?.min ?? 0, u.scales.x?.max ?? 1, u.scales.y?.max ?? 1];
  const left = u.valToPos(from, 'x', true);
  const xScale = (u.valToPos(to, 'x', true) - left) / (to - from);
  const bottom = u.valToPos(0, 'y', true);
  const yScale = (u.valToPos(top, 'y', true) - bottom) / top;
  const x = (row: number): number => left + xScale * ((times[row] ?? NaN) - from);
  const y = (values: readonly (number | null)[], row: number): number =>
    bottom + yScale * (values[row] ?? NaN);
  const dot = DOT_PX * devicePixelRatio;
  ctx.save();
  ctx.beginPath();
  ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
  ctx.clip();
  ctx.fillStyle = color;
  for (const [first, end] of rowRanges(line.mean)) {
    if (end - first === 1) {
      ctx.globalAlpha = alpha;
      const dotTop = y(line.high, first);
      ctx.fillRect(x(first) - dot / 2, dotTop - dot / 2, dot, y(line.low, first) - dotTop + dot);
    } else if (hasArea && line.varies) {
      ctx.globalAlpha = SPAN_OPACITY * alpha;
      ctx.beginPath();
      for (let row = first; row < end; row++) {
        ctx.lineTo(x(row), y(line.high, row));
      }
      for (let row = end - 1; row >= first; row--) {
        ctx.lineTo(x(row), y(line.low, row));
      }
      ctx.fill();
    }
  }
  ctx.restore();
}
