import { shares } from '../stream/model';
import type { Gpu, Reading } from '../wire';

/** What the user wants to be told; limits are null where it is nothing. */
export interface AlertSettings {
  /** `panel` only while a view of gpuwidget is open anyway; `always` keeps a stream in every visible page. */
  readonly when: 'panel' | 'always' | 'never';
  readonly lost: boolean;
  readonly errors: boolean;
  readonly throttle: boolean;
  /** Percent of a GPU's memory. */
  readonly memory: number | null;
  /** Degrees Celsius. */
  readonly temperature: number | null;
}

export type AlertKind = 'lost' | 'errors' | 'xid' | 'memory' | 'temperature' | 'throttle';

/** How it is with one thing that may be told. */
export interface Finding {
  readonly kind: AlertKind;
  readonly gpu: Gpu;
  /**
   * `on` it is so; `off` it clearly is not; `between` it is over but may be back at once; `unknown` nobody says.
   */
  readonly state: 'on' | 'off' | 'between' | 'unknown';
  /** What is told of it: a percentage, degrees, a number of errors, an XID, epoch seconds or words. */
  readonly value: number | readonly string[];
}

/** What slows a GPU down because something is wrong: gpuwidget/sources/throttle.py has the words. */
const BRAKES: ReadonlySet<string> = new Set([
  'too hot (hardware)',
  'power brake',
  'hardware slowdown',
  'too hot'
]);
/** So far below its limit a value has to fall before the event is over. */
const MEMORY_MARGIN = 5;
const TEMPERATURE_MARGIN = 5;

/** Whether a GPU is lost; a MIG slice is lost with its parent, which says it. */
export function lost(gpu: Gpu, { lost_since: since, answered }: Reading): Finding | null {
  if (gpu.mig_parent !== null) {
    return null;
  }
  const state = since !== null ? 'on' : answered === null ? 'unknown' : 'off';
  return { kind: 'lost', gpu, state, value: since ?? 0 };
}

/** What has a limit or lasts: memory, temperature, brakes; as far as they are wanted. */
export function levels(gpu: Gpu, reading: Reading, settings: AlertSettings): Finding[] {
  const found: Finding[] = [];
  if (settings.memory !== null) {
    found.push(compared('memory', gpu, memoryPercent(gpu, reading), settings.memory, MEMORY_MARGIN));
  }
  if (settings.temperature !== null) {
    found.push(compared('temperature', gpu, reading.temperature_c, settings.temperature, TEMPERATURE_MARGIN));
  }
  if (settings.throttle) {
    const words = reading.throttle?.filter(word => BRAKES.has(word)) ?? null;
    const state = words === null ? 'unknown' : words.length > 0 ? 'on' : 'off';
    found.push({ kind: 'throttle', gpu, state, value: words ?? [] });
  }
  return found;
}

function compared(kind: AlertKind, gpu: Gpu, value: number | null, limit: number, margin: number): Finding {
  const state =
    value === null ? 'unknown' : value >= limit ? 'on' : value < limit - margin ? 'off' : 'between';
  return { kind, gpu, state, value: value ?? 0 };
}

function memoryPercent(gpu: Gpu, reading: Reading): number | null {
  const { used, free } = shares({ gpu, reading, kernel: null, usage: null, front: null });
  return used === null || free === null || used + free === 0 ? null : (100 * used) / (used + free);
}
