import type { History, Sample } from '../../wire/wire';

/** One GPU's curve as uPlot data: times in seconds, utilization and memory in percent; null if unknown. */
export type Curve = [number[], (number | null)[], (number | null)[]];

interface Columns {
  readonly utilization: Float64Array;
  readonly memory: Float64Array;
}

const UNKNOWN = NaN;

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

/**
 * The recent history of every GPU, which the panel's charts draw. It is a ring buffer of typed arrays, so
 * that memory does not grow while the panel is open.
 */
export class HistoryBuffer {
  private readonly times: Float64Array;
  private readonly columns = new Map<string, Columns>();
  private next = 0;
  private size = 0;

  /** `capacity` is the maximum number of samples. */
  constructor(private readonly capacity: number) {
    this.times = new Float64Array(capacity);
  }

  /** Replace the content by the server's history. */
  restart(history: History): void {
    this.next = 0;
    this.size = 0;
    this.columns.clear();
    const first = Math.max(0, history.t.length - this.capacity);
    for (const gpu of history.gpus) {
      const columns = this.columnsOf(gpu.uuid);
      for (let index = first; index < history.t.length; index++) {
        columns.utilization[index - first] = gpu.utilization[index] ?? UNKNOWN;
        columns.memory[index - first] = gpu.memory_used[index] ?? UNKNOWN;
      }
    }
    history.t.slice(first).forEach((time, index) => (this.times[index] = time));
    this.size = history.t.length - first;
    this.next = this.size % this.capacity;
  }

  /**
   * Append a sample unless the buffer already contains it. If the server's clock was set back, discard the
   * history, as the server does.
   */
  add(sample: Sample): void {
    if (sample.time === this.newest) {
      return;
    }
    if (sample.time < this.newest) {
      this.restart({ t: [], gpus: [] });
    }
    const index = this.next;
    this.times[index] = sample.time;
    for (const columns of this.columns.values()) {
      columns.utilization[index] = UNKNOWN;
      columns.memory[index] = UNKNOWN;
    }
    for (const reading of sample.readings) {
      const columns = this.columnsOf(reading.uuid);
      columns.utilization[index] = reading.utilization ?? UNKNOWN;
      columns.memory[index] = reading.memory_used ?? UNKNOWN;
    }
    this.next = (index + 1) % this.capacity;
    this.size = Math.min(this.size + 1, this.capacity);
  }

  /** Time of the newest sample in epoch seconds; NaN if the buffer is empty. */
  get newest(): number {
    return this.size === 0 ? NaN : (this.times[(this.next + this.capacity - 1) % this.capacity] ?? NaN);
  }

  /**
   * Write the curve of one GPU from `since` on into `into`, with memory in percent of `total`. The curve is
   * interrupted between two samples that are more than `gap` seconds apart.
   */
  curve(uuid: string, since: number, total: number | null, gap: number, into: Curve): void {
    const columns = this.columns.get(uuid);
    const [times, utilization, memory] = into;
    let length = 0;
    const put = (time: number, used: number | null, held: number | null): void => {
      times[length] = time;
      utilization[length] = used;
      memory[length] = held;
      length++;
    };
    let before = NaN;
    for (let step = this.size; step > 0; step--) {
      const index = (this.next + this.capacity - step) % this.capacity;
      const time = this.times[index] ?? NaN;
      if (time < since) {
        continue;
      }
      if (time - before > gap) {
        put((time + before) / 2, null, null);
      }
      before = time;
      const used = columns?.utilization[index] ?? UNKNOWN;
      const held = columns?.memory[index] ?? UNKNOWN;
      put(
        time,
        Number.isNaN(used) ? null : used,
        Number.isNaN(held) || total === null || total <= 0 ? null : (100 * held) / total
      );
    }
    times.length = utilization.length = memory.length = length;
  }

  private columnsOf(uuid: string): Columns {
    let columns = this.columns.get(uuid);
    if (columns === undefined) {
      columns = {
        utilization: new Float64Array(this.capacity).fill(UNKNOWN),
        memory: new Float64Array(this.capacity).fill(UNKNOWN)
      };
      this.columns.set(uuid, columns);
    }
    return columns;
  }
}
