import type { KeyAction } from './keys';
import type { Part } from './state';

/** No more than that is held, in seconds. */
const HELD_S = 3600;
const SHORTEST_S = 2;

/** The part after moving along it or zooming; the newest sample is of `end`, the cursor at `at` if anywhere. */
export function after(
  action: Extract<KeyAction, { kind: 'move' | 'zoom' }>,
  part: Part,
  end: number,
  at: number | null
): Part {
  const limits = { from: Math.min(part.from, end - HELD_S), to: Math.max(part.to, end) };
  return action.kind === 'move'
    ? moved(part, action.share, limits)
    : zoomed(part, action.factor, at ?? (part.from + part.to) / 2, limits);
}

/** Moved by `share` of its length, within `limits`. */
function moved({ from, to }: Part, share: number, limits: Part): Part {
  const by = Math.min(Math.max(share * (to - from), limits.from - from), limits.to - to);
  return { from: from + by, to: to + by };
}

/** Made longer or shorter around `centre`, within `limits`. */
function zoomed({ from, to }: Part, factor: number, centre: number, limits: Part): Part {
  const length = Math.min(Math.max((to - from) * factor, SHORTEST_S), limits.to - limits.from);
  const begin = centre - ((centre - from) / (to - from)) * length;
  const start = Math.min(Math.max(begin, limits.from), limits.to - length);
  return { from: start, to: start + length };
}
