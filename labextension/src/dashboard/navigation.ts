import { HISTORY_S, type TimeRange } from './dashboardState';

const SHORTEST_S = 2;

/** What a key does on the charts. Shares are fractions of the visible time range. */
export type KeyAction =
  | { readonly kind: 'reset' }
  | { readonly kind: 'move'; readonly share: number }
  | { readonly kind: 'zoom'; readonly factor: number }
  | { readonly kind: 'point'; readonly share: number };

const MOVE_SHARE = 0.2;
const POINT_SHARE = 0.01;
const ZOOM_FACTOR = 0.5;

/** Return the action of a key, or null. */
export function keyAction(
  event: Pick<KeyboardEvent, 'key' | 'shiftKey' | 'ctrlKey' | 'altKey' | 'metaKey'>
): KeyAction | null {
  if (event.ctrlKey || event.altKey || event.metaKey) {
    return null;
  }
  const horizontal = (sign: number): KeyAction =>
    event.shiftKey
      ? { kind: 'point', share: sign * POINT_SHARE }
      : { kind: 'move', share: sign * MOVE_SHARE };
  switch (event.key) {
    case 'Escape':
    case '0':
      return { kind: 'reset' };
    case 'ArrowLeft':
      return horizontal(-1);
    case 'ArrowRight':
      return horizontal(1);
    case '+':
    case '=':
      return { kind: 'zoom', factor: ZOOM_FACTOR };
    case '-':
      return { kind: 'zoom', factor: 1 / ZOOM_FACTOR };
    default:
      return null;
  }
}

/**
 * Return the time range after moving or zooming, within the history that the server keeps. `newest` is the
 * time of the newest sample. Zooming keeps `cursor` in place, or the center of the range if `cursor` is null.
 */
export function navigate(
  action: Extract<KeyAction, { kind: 'move' | 'zoom' }>,
  range: TimeRange,
  newest: number,
  cursor: number | null
): TimeRange {
  const limits = { from: Math.min(range.from, newest - HISTORY_S), to: Math.max(range.to, newest) };
  return action.kind === 'move'
    ? move(range, action.share, limits)
    : zoom(range, action.factor, cursor ?? (range.from + range.to) / 2, limits);
}

function move({ from, to }: TimeRange, share: number, limits: TimeRange): TimeRange {
  const by = Math.min(Math.max(share * (to - from), limits.from - from), limits.to - to);
  return { from: from + by, to: to + by };
}

function zoom({ from, to }: TimeRange, factor: number, center: number, limits: TimeRange): TimeRange {
  const length = Math.min(Math.max((to - from) * factor, SHORTEST_S), limits.to - limits.from);
  const begin = center - ((center - from) / (to - from)) * length;
  const start = Math.min(Math.max(begin, limits.from), limits.to - length);
  return { from: start, to: start + length };
}
