import { isGap } from '../stream/gap';
import { levels, lost, type AlertKind, type AlertSettings, type Finding } from './rules';
import { XIDS_OF_PROGRAMS, type Gpu, type Reading, type Sample } from '../wire';

/** So long something has to last before it is told; what is gone sooner needs nobody. */
const LASTS_S = 3;
/** So long it has to be away before it is over, and may be told again. */
const OVER_S = 60;
/** An error of a GPU that is noticed no longer ago than this is news, also to a page that was opened since. */
const NEWS_S = 600;

/** Something to tell once: one kind of thing, on one GPU or on several at the same time. */
export interface Alert {
  readonly kind: AlertKind;
  readonly about: readonly Finding[];
}

/** What has been told, kept across a reload of the page. */
export interface Memory {
  /** What it remembers, as it was handed to {@link keep}; null where it remembers nothing. */
  recall(): string | null;
  keep(text: string): void;
}

interface Told {
  /** By kind and GPU: which event it was. */
  readonly events: Record<string, string>;
  /** By UUID: the errors that were there when it was last looked. */
  readonly errors: Record<string, Errors>;
}

interface Errors {
  readonly uncorrected: number | null;
  readonly xidTime: number;
}

/** Finds in the samples what is to be told: each event once, and again only after it was over and came back. */
export class Alerts {
  private readonly told: Told;
  private readonly since = new Map<string, number>();
  private readonly away = new Map<string, number>();
  private newest = NaN;

  constructor(private readonly memory: Memory) {
    this.told = parsed(memory.recall());
  }

  /** What is to be told now, with `interval` from one sample to the next. A recording is no news of this machine. */
  take(sample: Sample, interval: number, settings: AlertSettings): Alert[] {
    if (isGap(this.newest, sample.time, interval)) {
      // What was so before and is so now need not have been so in between.
      this.since.clear();
      this.away.clear();
    }
    this.newest = sample.time;
    if (settings.when === 'never' || sample.origin.kind !== 'nvml') {
      return [];
    }
    const before = JSON.stringify(this.told);
    const found = sample.gpus.flatMap((gpu, place): Finding[] => {
      const reading = sample.readings[place];
      return reading === undefined ? [] : this.news(gpu, reading, sample.time, settings);
    });
    const after = JSON.stringify(this.told);
    if (after !== before) {
      this.memory.keep(after);
    }
    const kinds = [...new Set(found.map(({ kind }) => kind))];
    return kinds.map(kind => ({ kind, about: found.filter(each => each.kind === kind) }));
  }

  private news(gpu: Gpu, reading: Reading, time: number, settings: AlertSettings): Finding[] {
    const gone = settings.lost ? lost(gpu, reading) : null;
    return [
      ...(gone !== null && this.isNews(gone) ? [gone] : []),
      ...levels(gpu, reading, settings).filter(finding => this.hasBegun(finding, time)),
      ...(settings.errors ? this.newErrors(gpu, reading, time) : [])
    ];
  }

  /** A lost GPU is told at once; lost anew, it is so since another moment. */
  private isNews({ kind, gpu, state, value }: Finding): boolean {
    const key = `${kind} ${gpu.uuid}`;
    const event = String(value);
    if (state === 'off') {
      Reflect.deleteProperty(this.told.events, key);
    }
    if (state !== 'on' || this.told.events[key] === event) {
      return false;
    }
    this.told.events[key] = event;
    return true;
  }

  /** Whether something that lasts is to be told now. */
  private hasBegun({ kind, gpu, state }: Finding, time: number): boolean {
    const key = `${kind} ${gpu.uuid}`;
    const told = key in this.told.events;
    if (state !== 'off') {
      this.away.delete(key);
    }
    if (state !== 'on') {
      this.since.delete(key);
    }
    if (state === 'off' && told && lasted(this.away, key, time, OVER_S)) {
      Reflect.deleteProperty(this.told.events, key);
    }
    if (state !== 'on' || told || !lasted(this.since, key, time, LASTS_S)) {
      return false;
    }
    this.told.events[key] = '';
    return true;
  }

  /** Errors that were not there before: what a GPU has had for weeks is for the doctor. */
  private newErrors(gpu: Gpu, reading: Reading, time: number): Finding[] {
    const uncorrected = reading.ecc_uncorrected;
    const xidTime = reading.xid_time ?? 0;
    const known = this.told.errors[gpu.uuid] ?? { uncorrected, xidTime: time - NEWS_S };
    this.told.errors[gpu.uuid] = {
      // Not known for a moment, it is what it was; fewer, and the driver was loaded anew.
      uncorrected: uncorrected ?? known.uncorrected,
      xidTime: Math.max(known.xidTime, xidTime)
    };
    const found: Finding[] = [];
    const more = uncorrected === null || known.uncorrected === null ? 0 : uncorrected - known.uncorrected;
    if (more > 0) {
      found.push({ kind: 'errors', gpu, state: 'on', value: more });
    }
    const { xid } = reading;
    // What a program did wrong is told by its own error, and concerns nobody else on the GPU.
    if (xid !== null && xidTime > known.xidTime && !XIDS_OF_PROGRAMS.includes(xid)) {
      found.push({ kind: 'xid', gpu, state: 'on', value: xid });
    }
    return found;
  }
}

/** Whether `key` has been so for `seconds`; from `time` on, where it was not before. */
function lasted(since: Map<string, number>, key: string, time: number, seconds: number): boolean {
  const begun = since.get(key) ?? time;
  since.set(key, begun);
  return time - begun >= seconds;
}

function parsed(text: string | null): Told {
  try {
    const told = JSON.parse(text ?? '') as Partial<Told> | null;
    return { events: told?.events ?? {}, errors: told?.errors ?? {} };
  } catch {
    return { events: {}, errors: {} };
  }
}
