import type { MetricName } from '../../wire/metricTable';
import { isMetric, METRICS } from '../metrics';

export const HOUR_S = 3600;
export const DAY_S = 24 * HOUR_S;
/** The selectable time ranges in seconds. Those of more than an hour need a Prometheus. */
export const RANGES: readonly number[] = [60, 300, 900, HOUR_S, 6 * HOUR_S, DAY_S, 7 * DAY_S, 30 * DAY_S];
const DEFAULT_RANGE = 300;
/** The selectable numbers of points over which lines are smoothed; 1 is no smoothing. */
export const SMOOTHINGS: readonly number[] = [1, 5, 20];
/** The server itself keeps at most this many seconds of history. */
export const SERVER_HISTORY_S = HOUR_S;
/** With a Prometheus, this many seconds of history can be shown. */
const PROMETHEUS_HISTORY_S = 30 * DAY_S;

/** Return how many seconds of history can be shown. */
export function historyLength(hasPrometheus: boolean): number {
  return hasPrometheus ? PROMETHEUS_HISTORY_S : SERVER_HISTORY_S;
}

/** A part of the history in epoch seconds. */
export interface TimeRange {
  readonly from: number;
  readonly to: number;
}

/** Return whether the server itself keeps all of `range`. `newest` is the time of its newest sample. */
export function isRecent({ from }: TimeRange, newest: number): boolean {
  return from >= newest - SERVER_HISTORY_S;
}

/** What a dashboard shows, as plain data that is saved with the workspace. */
export interface DashboardState {
  /** The time range of live mode in seconds, one of `RANGES`. */
  readonly range: number;
  /** The selected part of the history; null in live mode. */
  readonly zoom: TimeRange | null;
  /** The selected metrics in the order of `METRICS`. */
  readonly metrics: readonly MetricName[];
  /** UUIDs of the hidden GPUs. The shown GPUs are not stored, so that a GPU that is added later is shown. */
  readonly hidden: readonly string[];
  /** Name of a machine of the cluster; null for the server's own machine. */
  readonly node: string | null;
  /** The metric whose chart fills the dashboard; null if all charts are shown. */
  readonly enlarged: MetricName | null;
  /** Whether a chart shows the mean over the GPUs instead of a line for each GPU. */
  readonly mean: boolean;
  /** Whether a chart of many GPUs has a line for each GPU instead of a heat map. */
  readonly lines: boolean;
  /** The number of points over which lines are smoothed, one of `SMOOTHINGS`. */
  readonly smoothing: number;
}

/** The state of a new dashboard. */
export const DEFAULT_STATE: DashboardState = {
  range: DEFAULT_RANGE,
  zoom: null,
  metrics: METRICS,
  hidden: [],
  node: null,
  enlarged: null,
  mean: false,
  lines: false,
  smoothing: 1
};

/**
 * Return the state saved in a workspace, with defaults in place of invalid values. `now` is in epoch seconds.
 */
export function restoreState(saved: unknown, now: number): DashboardState {
  const { range, zoom, metrics, hidden, node, enlarged, mean, lines, smoothing } = asRecord(saved);
  const chosen = Array.isArray(metrics) ? METRICS.filter(name => metrics.includes(name)) : METRICS;
  return withoutHiddenChart({
    range: RANGES.find(seconds => seconds === range) ?? DEFAULT_STATE.range,
    zoom: restoreZoom(zoom, now),
    metrics: chosen.length > 0 || (Array.isArray(metrics) && metrics.length === 0) ? chosen : METRICS,
    hidden: Array.isArray(hidden) ? hidden.filter(uuid => typeof uuid === 'string') : [],
    node: typeof node === 'string' && node !== '' ? node : null,
    enlarged: isMetric(enlarged) ? enlarged : null,
    mean: mean === true,
    lines: lines === true,
    smoothing: SMOOTHINGS.find(points => points === smoothing) ?? DEFAULT_STATE.smoothing
  });
}

/** Return the state without an enlarged chart if that chart's metric is not selected. */
export function withoutHiddenChart(state: DashboardState): DashboardState {
  const { enlarged, metrics } = state;
  return enlarged === null || metrics.includes(enlarged) ? state : { ...state, enlarged: null };
}

/**
 * Return the state without what needs a Prometheus, for a server that has none. `now` is in epoch seconds.
 */
export function withoutPrometheus(state: DashboardState, now: number): DashboardState {
  const { range, zoom } = state;
  return {
    ...state,
    range: Math.min(range, SERVER_HISTORY_S),
    zoom: zoom !== null && zoom.to > now - SERVER_HISTORY_S ? zoom : null,
    node: null
  };
}

/** Return the saved zoom, or null if it is invalid or too long ago. */
function restoreZoom(saved: unknown, now: number): TimeRange | null {
  const { from, to } = asRecord(saved);
  return typeof from === 'number' && typeof to === 'number' && from < to && to > now - PROMETHEUS_HISTORY_S
    ? { from, to }
    : null;
}

function asRecord(value: unknown): Record<string, unknown> {
  return (typeof value === 'object' && value !== null ? value : {}) as Record<string, unknown>;
}

/** Return the state with one metric selected or deselected. */
export function withMetric(state: DashboardState, name: string, shown: boolean): DashboardState {
  const metrics = METRICS.filter(metric => (metric === name ? shown : state.metrics.includes(metric)));
  return isMetric(name) ? { ...state, metrics } : state;
}

/** Return the state with one GPU shown or hidden. */
export function withGpu(state: DashboardState, uuid: string, shown: boolean): DashboardState {
  const others = state.hidden.filter(hidden => hidden !== uuid);
  return { ...state, hidden: shown ? others : [...others, uuid] };
}

/**
 * Return the state that shows only the GPU `uuid`, or all of `uuids` if that GPU is already the only one
 * shown.
 */
export function withOnly(state: DashboardState, uuid: string, uuids: readonly string[]): DashboardState {
  const others = uuids.filter(other => other !== uuid);
  const isOnly = !state.hidden.includes(uuid) && others.every(other => state.hidden.includes(other));
  return { ...state, hidden: isOnly ? [] : others };
}

const SHORTEST_S = 2;

/**
 * What a key press does to the charts. `share` is how far the time range (`move`) or the cursor (`point`)
 * moves, as a fraction of the visible time range; negative to the left.
 */
export type KeyAction =
  | { readonly kind: 'reset' }
  | { readonly kind: 'move'; readonly share: number }
  | { readonly kind: 'zoom'; readonly factor: number }
  | { readonly kind: 'point'; readonly share: number };

const MOVE_SHARE = 0.2;
const POINT_SHARE = 0.01;
const ZOOM_FACTOR = 0.5;

/** Return the action of a key press; null if the key has no action. */
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
 * Return the time range after moving or zooming, limited to the last `length` seconds before `newest`, the
 * time of the newest sample. Zooming keeps the time `cursor` in place, or the center of the range if `cursor`
 * is null.
 */
export function navigate(
  action: Extract<KeyAction, { kind: 'move' | 'zoom' }>,
  range: TimeRange,
  newest: number,
  cursor: number | null,
  length: number
): TimeRange {
  const limits = { from: Math.min(range.from, newest - length), to: Math.max(range.to, newest) };
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
