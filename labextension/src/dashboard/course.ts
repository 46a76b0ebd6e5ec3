import type { MetricHistory as Told, Sample } from '../wire';
import { valueOf, type MetricName } from './metrics';

/** One quantity of one GPU; NaN is unknown. */
interface Columns {
  readonly low: Float64Array;
  readonly mean: Float64Array;
  readonly high: Float64Array;
  /** Of how many samples: not always of all, a metric may be unknown for a part of a step. */
  readonly counts: Float64Array;
}

/** The moments that are drawn; in `places` where each stands, -1 for a gap. */
export interface Moments {
  readonly times: number[];
  readonly places: number[];
}

/** The course of one quantity of one GPU at some moments; null is unknown. */
export interface Line {
  readonly low: (number | null)[];
  readonly mean: (number | null)[];
  readonly high: (number | null)[];
  /** The highest value, NaN where nothing is known. */
  highest: number;
  /** Whether anything moved within a step. */
  spread: boolean;
}

/** A line to be written. */
export function emptyLine(): Line {
  return { low: [], mean: [], high: [], highest: NaN, spread: false };
}

const NOT_KNOWN = NaN;
const SMALLEST_GAP_S = 2;
const GAP_STEPS = 2.5;
const GAP_INTERVALS = 4;

/**
 * A part of the past in steps, as the server told it, and the samples that followed: each step's lowest, mean and
 * highest value, so that no spike is lost. In typed arrays of a fixed size: the heap stays flat however long it goes on.
 */
export class Course {
  private readonly times: Float64Array;
  private readonly columns = new Map<string, Map<MetricName, Columns>>();
  private first = 0;
  private end = 0;
  private step = 0;
  private last = -Infinity;

  /** Room for so many steps of these metrics. */
  constructor(
    private readonly capacity: number,
    private readonly metrics: readonly MetricName[]
  ) {
    this.times = new Float64Array(capacity);
  }

  /** Seconds of a step, 0 where each sample has its own. */
  get stepSeconds(): number {
    return this.step;
  }

  /** Epoch seconds of the newest sample, -Infinity before the first. */
  get newest(): number {
    return this.last;
  }

  /** How many steps are held. */
  get length(): number {
    return this.end - this.first;
  }

  /** The GPUs that anything is held of. */
  get uuids(): string[] {
    return [...this.columns.keys()];
  }

  /** Put what the server told in the place of everything held. */
  restart(told: Told): void {
    this.columns.clear();
    this.first = 0;
    const skipped = Math.max(0, told.t.length - this.capacity);
    this.end = told.t.length - skipped;
    this.step = told.step_s;
    this.last = told.newest ?? -Infinity;
    for (let place = 0; place < this.end; place++) {
      this.times[place] = told.t[place + skipped] ?? NaN;
    }
    const copy = (from: readonly (number | null)[], to: Float64Array): void => {
      for (let place = 0; place < this.end; place++) {
        to[place] = from[place + skipped] ?? NOT_KNOWN;
      }
    };
    for (const { uuid, metrics } of told.gpus) {
      for (const name of this.metrics) {
        const steps = metrics[name];
        if (steps !== undefined) {
          const columns = this.of(uuid, name);
          copy(steps.mean, columns.mean);
          copy(steps.min ?? steps.mean, columns.low);
          copy(steps.max ?? steps.mean, columns.high);
          columns.mean.subarray(0, this.end).forEach((value, place) => {
            columns.counts[place] = Number.isNaN(value) ? 0 : (told.samples[place + skipped] ?? 1);
          });
        }
      }
    }
  }

  /**
   * Add one sample, once, and let go of what is older than `since`. False where there is no room for it, or where the
   * clock was set back: what is held then has to be asked for anew.
   */
  add(sample: Sample, since: number): boolean {
    if (sample.time <= this.last) {
      return sample.time === this.last || this.last - sample.time < 1;
    }
    const number =
      this.step === 0
        ? sample.time
        : Math.floor(Math.round((sample.time / this.step) * 1e3) / 1e3) * this.step;
    const open = this.end - 1;
    const goesOn =
      this.step > 0 && this.end > this.first && number <= (this.times[open] ?? NaN) + this.step / 2;
    if (!goesOn) {
      this.forget(since);
      if (this.end === this.capacity) {
        return false;
      }
      this.begin(number);
    }
    this.last = sample.time;
    this.merge(sample);
    return true;
  }

  /** The moments since `since`, with a gap where nothing was read for long; `interval` is from sample to sample. */
  moments(since: number, interval: number, into: Moments): void {
    const gap = Math.max(SMALLEST_GAP_S, GAP_STEPS * this.step, GAP_INTERVALS * interval);
    const { times, places } = into;
    let length = 0;
    let before = NaN;
    for (let place = this.first; place < this.end; place++) {
      const start = this.times[place] ?? NaN;
      if (start + this.step < since) {
        continue;
      }
      // In the middle of its step; the step that goes on has no middle yet.
      const time = Math.max(start, Math.min(start + this.step / 2, this.last));
      if (time - before > gap) {
        times[length] = (time + before) / 2;
        places[length++] = -1;
      }
      times[length] = before = time;
      places[length++] = place;
    }
    times.length = places.length = length;
  }

  /** Write the course of one quantity of one GPU at these moments. */
  line(uuid: string, name: MetricName, { places }: Moments, into: Line): void {
    const columns = this.columns.get(uuid)?.get(name);
    const { low, mean, high } = into;
    let highest = NaN;
    let spread = false;
    places.forEach((place, row) => {
      const value = place < 0 ? NaN : (columns?.mean[place] ?? NaN);
      if (Number.isNaN(value) || columns === undefined) {
        low[row] = mean[row] = high[row] = null;
        return;
      }
      const least = columns.low[place] ?? value;
      const most = columns.high[place] ?? value;
      mean[row] = value;
      low[row] = least;
      high[row] = most;
      spread ||= least < most;
      if (!(most <= highest)) {
        highest = most;
      }
    });
    low.length = mean.length = high.length = places.length;
    into.highest = highest;
    into.spread = spread;
  }

  private of(uuid: string, name: MetricName): Columns {
    let metrics = this.columns.get(uuid);
    if (metrics === undefined) {
      metrics = new Map();
      this.columns.set(uuid, metrics);
    }
    let columns = metrics.get(name);
    if (columns === undefined) {
      const made = (): Float64Array => new Float64Array(this.capacity).fill(NOT_KNOWN);
      columns = { low: made(), mean: made(), high: made(), counts: new Float64Array(this.capacity) };
      metrics.set(name, columns);
    }
    return columns;
  }

  private forget(since: number): void {
    while (this.first < this.end && (this.times[this.first] ?? NaN) + this.step < since) {
      this.first++;
    }
    if (this.end < this.capacity || this.first === 0) {
      return;
    }
    const move = (values: Float64Array): void => {
      values.copyWithin(0, this.first, this.end);
    };
    move(this.times);
    for (const metrics of this.columns.values()) {
      for (const { low, mean, high, counts } of metrics.values()) {
        [low, mean, high, counts].forEach(move);
      }
    }
    this.end -= this.first;
    this.first = 0;
  }

  private begin(time: number): void {
    const place = this.end++;
    this.times[place] = time;
    for (const metrics of this.columns.values()) {
      for (const { low, mean, high, counts } of metrics.values()) {
        low[place] = mean[place] = high[place] = NOT_KNOWN;
        counts[place] = 0;
      }
    }
  }

  private merge(sample: Sample): void {
    const place = this.end - 1;
    for (const reading of sample.readings) {
      for (const name of this.metrics) {
        const value = valueOf(reading, name);
        if (value === null) {
          continue;
        }
        const { low, mean, high, counts } = this.of(reading.uuid, name);
        const before = mean[place] ?? NaN;
        const count = (counts[place] ?? 0) + 1;
        counts[place] = count;
        if (Number.isNaN(before)) {
          low[place] = mean[place] = high[place] = value;
        } else {
          mean[place] = before + (value - before) / count;
          low[place] = Math.min(low[place] ?? value, value);
          high[place] = Math.max(high[place] ?? value, value);
        }
      }
    }
  }
}
