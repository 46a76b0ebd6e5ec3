import type { MetricHistory, Sample } from '../../wire/wire';
import type { MetricName } from '../../wire/metricTable';
import { valueOf } from '../metrics';

/**
 * The values of one metric of one GPU, one per step; NaN if unknown. If every sample is a step, `low`, `mean` and
 * `high` are the same array.
 */
interface Columns {
  readonly low: Float64Array;
  readonly mean: Float64Array;
  readonly high: Float64Array;
  /**
   * Number of samples with a known value in each step. It may be less than the number of all samples in the
   * step. Null if every sample is a step.
   */
  readonly counts: Float64Array | null;
}

/** The times to draw, and the index of the step at each time. A gap is a time whose index is -1. */
export interface TimeAxis {
  readonly times: number[];
  readonly indices: number[];
}

/** The values of one metric of one GPU at the times of an axis; null if unknown. */
export interface Line {
  readonly low: (number | null)[];
  readonly mean: (number | null)[];
  readonly high: (number | null)[];
  /** The highest value; NaN if all are unknown. */
  highest: number;
  /** Whether minimum and maximum differ in any step. */
  varies: boolean;
}

/** Return an empty line that `TimeSeries.line` can fill. */
export function emptyLine(): Line {
  return { low: [], mean: [], high: [], highest: NaN, varies: false };
}

/**
 * Write the mean over `lines`, which have the same time axis, into `into`; minimum and maximum are those of all
 * lines. At each time, lines with an unknown value are ignored.
 */
export function meanOfLines(lines: readonly Line[], into: Line): void {
  const { low, mean, high } = into;
  const length = lines[0]?.mean.length ?? 0;
  into.highest = NaN;
  into.varies = false;
  for (let row = 0; row < length; row++) {
    let [sum, count, least, most] = [0, 0, Infinity, -Infinity];
    for (const line of lines) {
      const value = line.mean[row] ?? null;
      if (value !== null) {
        sum += value;
        count++;
        least = Math.min(least, line.low[row] ?? value);
        most = Math.max(most, line.high[row] ?? value);
      }
    }
    mean[row] = count === 0 ? null : sum / count;
    low[row] = count === 0 ? null : least;
    high[row] = count === 0 ? null : most;
    into.varies ||= least < most;
    if (count > 0 && !(most <= into.highest)) {
      into.highest = most;
    }
  }
  low.length = mean.length = high.length = length;
}

/**
 * Replace each value of `line` by the mean of the last `points` values, and minimum and maximum by those of
 * the same points. The values before a gap are not used after it.
 */
export function smooth(line: Line, points: number): void {
  const [low, mean, high] = [[...line.low], [...line.mean], [...line.high]];
  let start = 0;
  for (let row = 0; row < mean.length; row++) {
    if ((mean[row] ?? null) === null) {
      start = row + 1;
      continue;
    }
    start = Math.max(start, row - points + 1);
    let [sum, least, most] = [0, Infinity, -Infinity];
    for (let index = start; index <= row; index++) {
      const value = mean[index] ?? 0;
      sum += value;
      least = Math.min(least, low[index] ?? value);
      most = Math.max(most, high[index] ?? value);
    }
    line.mean[row] = sum / (row - start + 1);
    line.low[row] = least;
    line.high[row] = most;
    line.varies ||= least < most;
  }
}

/** A shorter time without samples at the beginning of the axis is not a gap. */
const MIN_FIRST_GAP_S = 5;

/**
 * Return the beginning and end of each part of a time range in which there is no sample. What was before `since`,
 * the beginning of the loaded time, is unknown.
 */
export function gapsOf(
  { times, indices }: TimeAxis,
  range: { readonly from: number; readonly to: number },
  since: number
): (readonly [number, number])[] {
  const [from, to] = [Math.max(range.from, since), range.to];
  const first = times[0] ?? to;
  return [
    ...(first - from > MIN_FIRST_GAP_S ? [[from, first] as const] : []),
    ...indices.flatMap((index, row) =>
      index < 0 ? [[times[row - 1] ?? from, times[row + 1] ?? to] as const] : []
    )
  ];
}

const UNKNOWN = NaN;
const NO_VALUES = new Float64Array(0);
/** With fewer spacings than this, the usual one is unknown. */
const MIN_SPACINGS = 4;
const MIN_GAP_S = 2;
const GAP_STEPS = 2.5;
const GAP_INTERVALS = 4;

/**
 * A part of the history in steps with minimum, mean and maximum, so that no spike is lost.
 *
 * It begins with the server's history, to which new samples are appended. It is a ring buffer of typed arrays, so
 * that memory use does not grow over time.
 */
export class TimeSeries {
  private readonly times: Float64Array;
  private readonly columns = new Map<string, Map<MetricName, Columns>>();
  /** Place of the oldest step in the arrays. */
  private first = 0;
  private size = 0;
  private stepLength = 0;
  /** The usual time between two steps of the server's history; at least `stepLength`. */
  private spacing = 0;
  private last = -Infinity;
  /** The beginning of the time that was loaded, in epoch seconds. */
  since = -Infinity;

  /** `capacity` is the maximum number of steps. */
  constructor(
    private readonly capacity: number,
    private readonly metrics: readonly MetricName[]
  ) {
    this.times = new Float64Array(capacity);
  }

  /** Length of a step in seconds; 0 if every sample is a step. */
  get stepSeconds(): number {
    return this.stepLength;
  }

  /** Time of the newest sample in epoch seconds; -Infinity before the first sample. */
  get newest(): number {
    return this.last;
  }

  /** Replace the content with a part of the server's history. */
  restart(history: MetricHistory): void {
    this.columns.clear();
    this.first = 0;
    const skipped = Math.max(0, history.t.length - this.capacity);
    this.size = history.t.length - skipped;
    this.stepLength = history.step_s;
    this.spacing = Math.max(this.stepLength, usualSpacing(history.t));
    this.last = history.newest ?? -Infinity;
    this.since = history.since;
    const copy = (from: readonly (number | null)[], to: Float64Array): void => {
      for (let index = 0; index < this.size; index++) {
        to[index] = from[index + skipped] ?? UNKNOWN;
      }
    };
    copy(history.t, this.times);
    for (const { uuid, metrics } of history.gpus) {
      for (const name of this.metrics) {
        const steps = metrics[name];
        if (steps === undefined) {
          continue;
        }
        const { low, mean, high, counts } = this.columnsOf(uuid, name);
        copy(steps.mean, mean);
        if (counts !== null) {
          copy(steps.min ?? steps.mean, low);
          copy(steps.max ?? steps.mean, high);
          mean.subarray(0, this.size).forEach((value, index) => {
            counts[index] = Number.isNaN(value) ? 0 : (history.samples[index + skipped] ?? 1);
          });
        }
      }
    }
  }

  /**
   * Add a sample unless the series already contains it. If there is no room for a new step, the oldest step makes
   * room if it is before `since`.
   *
   * Return false if there is no room left or if the server's clock was set back. The caller must then load
   * the history again.
   */
  add(sample: Sample, since: number): boolean {
    if (sample.time <= this.last) {
      return sample.time === this.last || this.last - sample.time < 1;
    }
    const start =
      this.stepLength === 0
        ? sample.time
        : Math.floor(Math.round((sample.time / this.stepLength) * 1e3) / 1e3) * this.stepLength;
    const open = this.times[this.place(this.size - 1)] ?? NaN;
    const continues = this.stepLength > 0 && this.size > 0 && start <= open + this.stepLength / 2;
    if (!continues) {
      if (this.size === this.capacity) {
        if ((this.times[this.first] ?? NaN) + this.stepLength >= since) {
          return false;
        }
        this.first = this.place(1);
        this.size--;
      }
      this.beginStep(start);
    }
    this.last = sample.time;
    this.addToStep(sample);
    return true;
  }

  /**
   * Write the times after `since` into `into`. If two times are much further apart than the usual `interval`,
   * a gap is inserted between them.
   */
  axis(since: number, interval: number, into: TimeAxis): void {
    this.axisWithGaps(since, Math.max(MIN_GAP_S, GAP_STEPS * this.spacing, GAP_INTERVALS * interval), into);
  }

  /** Write the times after `since` into `into`, with a gap between two times that are more than `gap` apart. */
  axisWithGaps(since: number, gap: number, into: TimeAxis): void {
    const { times, indices } = into;
    let length = 0;
    let before = NaN;
    for (let step = 0; step < this.size; step++) {
      const index = this.place(step);
      const start = this.times[index] ?? NaN;
      if (start + this.stepLength < since) {
        continue;
      }
      // A step is drawn at its middle, but not later than the newest sample, since the newest step is
      // incomplete.
      const time = Math.max(start, Math.min(start + this.stepLength / 2, this.last));
      if (time - before > gap) {
        times[length] = (time + before) / 2;
        indices[length++] = -1;
      }
      times[length] = before = time;
      indices[length++] = index;
    }
    times.length = indices.length = length;
  }

  /** Write the values of one metric of one GPU into `into`, at the times of an axis. */
  line(uuid: string, name: MetricName, { indices }: TimeAxis, into: Line): void {
    const columns = this.columns.get(uuid)?.get(name);
    const { low, mean, high } = into;
    let highest = NaN;
    let varies = false;
    indices.forEach((index, row) => {
      const value = index < 0 ? NaN : (columns?.mean[index] ?? NaN);
      if (Number.isNaN(value) || columns === undefined) {
        low[row] = mean[row] = high[row] = null;
        return;
      }
      const least = columns.low[index] ?? value;
      const most = columns.high[index] ?? value;
      mean[row] = value;
      low[row] = least;
      high[row] = most;
      varies ||= least < most;
      if (!(most <= highest)) {
        highest = most;
      }
    });
    low.length = mean.length = high.length = indices.length;
    into.highest = highest;
    into.varies = varies;
  }

  /** Write the means of one metric of one GPU, in percent of `total`, into `into`, at the places of an axis. */
  percentages(
    uuid: string,
    name: MetricName,
    total: number | null,
    indices: readonly number[],
    into: (number | null)[]
  ): void {
    const means = this.columns.get(uuid)?.get(name)?.mean ?? NO_VALUES;
    const whole = total !== null && total > 0 ? total : NaN;
    for (let row = 0; row < indices.length; row++) {
      const value = (100 * (means[indices[row] ?? -1] ?? NaN)) / whole;
      into[row] = Number.isNaN(value) ? null : value;
    }
    into.length = indices.length;
  }

  /** Return the place in the arrays of the step with a number, of which 0 is the oldest. */
  private place(step: number): number {
    return (this.first + step) % this.capacity;
  }

  private columnsOf(uuid: string, name: MetricName): Columns {
    let metrics = this.columns.get(uuid);
    if (metrics === undefined) {
      metrics = new Map();
      this.columns.set(uuid, metrics);
    }
    let columns = metrics.get(name);
    if (columns === undefined) {
      const create = (): Float64Array => new Float64Array(this.capacity).fill(UNKNOWN);
      const mean = create();
      columns =
        this.stepLength === 0
          ? { low: mean, mean, high: mean, counts: null }
          : { low: create(), mean, high: create(), counts: new Float64Array(this.capacity) };
      metrics.set(name, columns);
    }
    return columns;
  }

  private beginStep(time: number): void {
    const index = this.place(this.size++);
    this.times[index] = time;
    for (const metrics of this.columns.values()) {
      for (const { low, mean, high, counts } of metrics.values()) {
        low[index] = mean[index] = high[index] = UNKNOWN;
        if (counts !== null) {
          counts[index] = 0;
        }
      }
    }
  }

  private addToStep(sample: Sample): void {
    const index = this.place(this.size - 1);
    for (const reading of sample.readings) {
      for (const name of this.metrics) {
        const value = valueOf(reading, name);
        if (value === null) {
          continue;
        }
        const { low, mean, high, counts } = this.columnsOf(reading.uuid, name);
        const before = mean[index] ?? NaN;
        const count = (counts?.[index] ?? 0) + 1;
        if (counts !== null) {
          counts[index] = count;
        }
        if (Number.isNaN(before)) {
          low[index] = mean[index] = high[index] = value;
        } else {
          mean[index] = before + (value - before) / count;
          low[index] = Math.min(low[index] ?? value, value);
          high[index] = Math.max(high[index] ?? value, value);
        }
      }
    }
  }
}

/** Return the median of the spacings between neighboring times; 0 if there are too few. */
function usualSpacing(times: readonly number[]): number {
  const spacings = times.slice(1).map((time, index) => time - (times[index] ?? time));
  const median = spacings.sort((a, b) => a - b)[Math.floor(spacings.length / 2)] ?? 0;
  return spacings.length < MIN_SPACINGS ? 0 : median;
}
