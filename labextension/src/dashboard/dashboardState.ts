import type { MetricName } from '../metricTable';
import { isMetric, METRICS } from './metrics';

/** The selectable time ranges in seconds. */
export const RANGES: readonly number[] = [60, 300, 900, 3600];
const DEFAULT_RANGE = 300;
/** How much history the server keeps at most, in seconds. */
export const HISTORY_S = 3600;

/** A part of the history in epoch seconds. */
export interface TimeRange {
  readonly from: number;
  readonly to: number;
}

/** What a dashboard shows. Plain data that is saved with the workspace. */
export interface DashboardState {
  /** Seconds of history in live mode, one of `RANGES`. */
  readonly range: number;
  /** The selected part of the history; null in live mode. */
  readonly zoom: TimeRange | null;
  /** The selected metrics in the order of `METRICS`. */
  readonly metrics: readonly MetricName[];
  /** UUIDs of the hidden GPUs. Hidden instead of shown ones are stored, so that a new GPU is shown. */
  readonly hidden: readonly string[];
}

/** The state of a new dashboard. */
export const DEFAULT_STATE: DashboardState = {
  range: DEFAULT_RANGE,
  zoom: null,
  metrics: METRICS,
  hidden: []
};

/**
 * Return the state saved in a workspace, with defaults in place of invalid values. `now` is in epoch seconds.
 */
export function restoreState(saved: unknown, now: number): DashboardState {
  const { range, zoom, metrics, hidden } = asRecord(saved);
  const chosen = Array.isArray(metrics) ? METRICS.filter(name => metrics.includes(name)) : METRICS;
  return {
    range: RANGES.find(seconds => seconds === range) ?? DEFAULT_STATE.range,
    zoom: restoreZoom(zoom, now),
    metrics: chosen.length > 0 || (Array.isArray(metrics) && metrics.length === 0) ? chosen : METRICS,
    hidden: Array.isArray(hidden) ? hidden.filter(uuid => typeof uuid === 'string') : []
  };
}

/** Return the saved zoom, or null if it is invalid or the server no longer has that part of its history. */
function restoreZoom(saved: unknown, now: number): TimeRange | null {
  const { from, to } = asRecord(saved);
  return typeof from === 'number' && typeof to === 'number' && from < to && to > now - HISTORY_S
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
 * Return the state that shows only this one of `uuids`, or all of them if it is already the only one shown.
 */
export function withOnly(state: DashboardState, uuid: string, uuids: readonly string[]): DashboardState {
  const others = uuids.filter(other => other !== uuid);
  const isOnly = !state.hidden.includes(uuid) && others.every(other => state.hidden.includes(other));
  return { ...state, hidden: isOnly ? [] : others };
}
