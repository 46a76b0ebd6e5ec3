import type { History, Sample } from '../wire';

/** One GPU's curve as uPlot takes it: seconds, percent, percent; null where nothing is known. */
export type Curve = [number[], (number | null)[], (number | null)[]];

interface Columns {
  readonly utilization: Float64Array;
  readonly memory: Float64Array;
}

const NOT_KNOWN = NaN;

/**
 * The last minutes of every GPU: a ring of typed arrays of a fixed size, so that the heap stays flat however
 * long the panel is open.
 */
export class Past {
  private readonly times: Float64Array;
  private readonly columns = new Map<string, Columns>();
  private next = 0;
  private held = 0;

  /** Room for `capacity` moments. */
  constructor(private readonly capacity: number) {
    this.times = new Float64Array(capacity);
  }

  /** Put a server's history in the place of everything held. */
  restart(history: History): void {
    this.next = 0;
    this.held = 0;
    this.columns.clear();
    const first = Math.max(0, history.t.length - this.capacity);
    for (const gpu of history.gpus) {
      const columns = this.of(gpu.uuid);
      for (let place = first; place < history.t.length; place++) {
        columns.utilization[place - first] = gpu.utilization[place] ?? NOT_KNOWN;
        columns.memory[place - first] = gpu.memory_used[place] ?? NOT_KNOWN;
      }
    }
    history.t.slice(first).forEach((time, place) => (this.times[place] = time));
    this.held = history.t.length - first;
    this.next = this.held % this.capacity;
  }

  /** Add one sample, once; where the clock was set back, as the server's own past does, it begins anew. */
  add(sample: Sample): void {
    if (sample.time === this.newest) {
      return;
    }
    if (sample.time < this.newest) {
      this.restart({ t: [], gpus: [] });
    }
    const place = this.next;
    this.times[place] = sample.time;
    for (const columns of this.columns.values()) {
      columns.utilization[place] = NOT_KNOWN;
      columns.memory[place] = NOT_KNOWN;
    }
    for (const reading of sample.readings) {
      const columns = this.of(reading.uuid);
      columns.utilization[place] = reading.utilization ?? NOT_KNOWN;
      columns.memory[place] = reading.memory_used ?? NOT_KNOWN;
    }
    this.next = (place + 1) % this.capacity;
    this.held = Math.min(this.held + 1, this.capacity);
  }

  /** Epoch seconds of the newest moment; NaN where there is none. */
  get newest(): number {
    return this.held === 0 ? NaN : (this.times[(this.next + this.capacity - 1) % this.capacity] ?? NaN);
  }

  /**
   * Write the curve of one GPU since `since` into `into`, memory in percent of `total`. Where more than
   * `gap` seconds passed without a sample the curve is broken: nobody looked, and nothing is made up.
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
    for (let step = this.held; step > 0; step--) {
      const place = (this.next + this.capacity - step) % this.capacity;
      const time = this.times[place] ?? NaN;
      if (time < since) {
        continue;
      }
      if (time - before > gap) {
        put((time + before) / 2, null, null);
      }
      before = time;
      const used = columns?.utilization[place] ?? NOT_KNOWN;
      const held = columns?.memory[place] ?? NOT_KNOWN;
      put(
        time,
        Number.isNaN(used) ? null : used,
        Number.isNaN(held) || total === null || total <= 0 ? null : (100 * held) / total
      );
    }
    times.length = utilization.length = memory.length = length;
  }

  private of(uuid: string): Columns {
    let columns = this.columns.get(uuid);
    if (columns === undefined) {
      columns = {
        utilization: new Float64Array(this.capacity).fill(NOT_KNOWN),
        memory: new Float64Array(this.capacity).fill(NOT_KNOWN)
      };
      this.columns.set(uuid, columns);
    }
    return columns;
  }
}
