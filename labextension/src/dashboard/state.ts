import { isMetric, METRICS, type MetricName } from './metrics';

/** The ranges that are offered, in seconds. */
export const RANGES: readonly number[] = [60, 300, 900, 3600];
const USUAL_RANGE = 300;

/** What a dashboard shows: plain data, kept with the workspace. */
export interface DashboardState {
  /** Seconds of the past, one of `RANGES`. */
  readonly range: number;
  /** The metrics that are shown, in their own order. */
  readonly metrics: readonly MetricName[];
  /** UUIDs of the GPUs that are not shown: one that is new is. */
  readonly hidden: readonly string[];
}

/** A part of the past that stands still, epoch seconds. */
export interface Part {
  readonly from: number;
  readonly to: number;
}

/** What is shown where nothing was chosen. */
export const USUAL: DashboardState = { range: USUAL_RANGE, metrics: METRICS, hidden: [] };

/** What a workspace kept, whatever it is by now: what can't be has its usual value. */
export function restored(kept: unknown): DashboardState {
  const { range, metrics, hidden } = (typeof kept === 'object' && kept !== null ? kept : {}) as Record<
    string,
    unknown
  >;
  const chosen = Array.isArray(metrics) ? METRICS.filter(name => metrics.includes(name)) : METRICS;
  return {
    range: RANGES.find(one => one === range) ?? USUAL.range,
    metrics: chosen.length > 0 || (Array.isArray(metrics) && metrics.length === 0) ? chosen : METRICS,
    hidden: Array.isArray(hidden) ? hidden.filter(one => typeof one === 'string') : []
  };
}

/** With one metric more or less. */
export function withMetric(state: DashboardState, name: string, shown: boolean): DashboardState {
  const metrics = METRICS.filter(one => (one === name ? shown : state.metrics.includes(one)));
  return isMetric(name) ? { ...state, metrics } : state;
}

/** With one GPU shown or not. */
export function withGpu(state: DashboardState, uuid: string, shown: boolean): DashboardState {
  const others = state.hidden.filter(one => one !== uuid);
  return { ...state, hidden: shown ? others : [...others, uuid] };
}

/** With one of `uuids` alone; with all of them where it is alone already. */
export function withOnly(state: DashboardState, uuid: string, uuids: readonly string[]): DashboardState {
  const others = uuids.filter(one => one !== uuid);
  const alone = !state.hidden.includes(uuid) && others.every(one => state.hidden.includes(one));
  return { ...state, hidden: alone ? [] : others };
}
