import { TimeSeries, type TimeAxis } from '../history/timeSeries';
import type { History, MetricSeries, Sample } from '../../wire/wire';

/** One GPU's curve as uPlot data: times in seconds, utilization and memory in percent; null if unknown. */
export type Curve = [number[], (number | null)[], (number | null)[]];

/** A shorter pause is not a gap at any sampling rate, because a busy page may process samples late. */
const MIN_GAP_S = 10;
const GAP_INTERVALS = 4;

/**
 * Return whether there is a gap between samples at `before` and `now`, which usually are `interval` seconds
 * apart.
 */
export function isGap(before: number, now: number, interval: number): boolean {
  return now < before || now - before > Math.max(MIN_GAP_S, GAP_INTERVALS * interval);
}

/** The recent history of every GPU, which the panel's charts draw: a time series of which each sample is a step. */
export class HistoryBuffer {
  private readonly series: TimeSeries;
  /** The axis of the last curve, which the charts of all GPUs share until the next sample. */
  private readonly axis: TimeAxis = { times: [], indices: [] };
  private since = NaN;
  private gap = NaN;

  /** `capacity` is the maximum number of samples. */
  constructor(capacity: number) {
    this.series = new TimeSeries(capacity, ['utilization', 'memory_used']);
  }

  /** Replace the content by the server's history. */
  restart({ t, gpus }: History): void {
    this.since = NaN;
    const only = (mean: readonly (number | null)[]): MetricSeries => ({ mean, min: null, max: null });
    this.series.restart({
      since: -Infinity,
      until: Infinity,
      step_s: 0,
      newest: t.at(-1) ?? null,
      t,
      samples: [],
      gpus: gpus.map(({ uuid, utilization, memory_used }) => ({
        uuid,
        metrics: { utilization: only(utilization), memory_used: only(memory_used) }
      }))
    });
  }

  /**
   * Append a sample unless the buffer already contains it. If the server's clock was set back, discard the
   * history, as the server does.
   */
  add(sample: Sample): void {
    if (sample.time < this.series.newest) {
      this.restart({ t: [], gpus: [] });
    }
    this.series.add(sample, Infinity);
    this.since = NaN;
  }

  /** Time of the newest sample in epoch seconds; NaN if the buffer is empty. */
  get newest(): number {
    const { newest } = this.series;
    return newest === -Infinity ? NaN : newest;
  }

  /**
   * Write the curve of one GPU from `since` on into `into`, with memory in percent of `total`. The curve is
   * interrupted between two samples that are more than `gap` seconds apart.
   */
  curve(uuid: string, since: number, total: number | null, gap: number, into: Curve): void {
    const { series, axis } = this;
    if (since !== this.since || gap !== this.gap) {
      series.axisWithGaps(since, gap, axis);
      [this.since, this.gap] = [since, gap];
    }
    const [times, utilization, memory] = into;
    axis.times.forEach((time, row) => (times[row] = time));
    times.length = axis.times.length;
    series.percentages(uuid, 'utilization', 100, axis.indices, utilization);
    series.percentages(uuid, 'memory_used', total, axis.indices, memory);
  }
}
