/** Parses the server's messages: those of the stream, single samples and the history. */

import { METRIC_TABLE, type MetricName } from './metricTable';
import {
  amount,
  count,
  dictionary,
  each,
  flag,
  index,
  known,
  later,
  list,
  nullable,
  number,
  object,
  oneOf,
  optionalText,
  optionalTexts,
  orNull,
  parsed,
  partial,
  record,
  ShapeError,
  text,
  time,
  validItems,
  type Parser
} from './parsing';
import {
  SAMPLE_SCHEMA,
  STREAM_SCHEMA,
  type Activity,
  type Gpu,
  type GpuHistory,
  type GpuHours,
  type GpuMemoryOwnership,
  type GpuMetricHistory,
  type History,
  type IdleHolder,
  type InitialMessage,
  type MeanUtilization,
  type MemoryHolder,
  type MemoryOwnership,
  type MetricHistory,
  type MetricSeries,
  type Origin,
  type Reading,
  type Sample,
  type SampleChanges,
  type AlwaysOn,
  type SampleMessage,
  type ServerKernel,
  type SlurmJob,
  type StreamMessage
} from './wire';

/** The sampling intervals in seconds for which the page has room for the history. */
const [MIN_INTERVAL_S, MAX_INTERVAL_S] = [0.01, 3600];
const WHOLE_HISTORY = Infinity;

const optionalTime = orNull(time);
const size = known(amount);

/**
 * Return the parsers of all metrics with a chart: those that hardware counters measure if `counters` is true,
 * otherwise the others.
 */
function metrics<Name extends MetricName>(counters: boolean): Record<Name, Parser<number | null>> {
  return Object.fromEntries(
    METRIC_TABLE.filter(({ counter }) => counter === counters).map(({ name, kind }) => [
      name,
      kind === 'temperature' ? number : amount
    ])
  ) as Record<Name, Parser<number | null>>;
}

const activity = object<Activity>({
  ...metrics<Exclude<MetricName, keyof Reading>>(true),
  since: time,
  until: time
});

const reading = {
  ...metrics<Exclude<MetricName, keyof Activity>>(false),
  ...each(amount, 'power_limit_w', 'pstate', 'energy_j', 'utilization_window', 'ecc_uncorrected', 'xid'),
  ...each(optionalTime, 'answered', 'measured', 'xid_time'),
  // With another value, the GPU would wrongly seem to answer.
  ...each(nullable(time), 'silent_since', 'lost_since'),
  uuid: text,
  throttle: orNull(list(text)),
  activity: orNull(activity),
  missing: optionalTexts,
  // No view needs these.
  processes: () => null,
  missing_ids: () => ({})
};

const shapeOfSample = object<Sample>({
  schema: oneOf(SAMPLE_SCHEMA),
  time,
  origin: object<Origin>({
    kind: oneOf('nvml', 'replay', 'none'),
    reason_id: () => null,
    recording: nullable(text),
    ...each(optionalText, 'reason', 'driver', 'cuda_driver')
  }),
  gpus: list(
    object<Gpu>({
      index,
      mig_index: nullable(index),
      mig_parent: nullable(text),
      unified_memory: flag,
      ...each(text, 'uuid', 'name'),
      ...each(optionalText, 'pci_bus_id', 'compute_capability'),
      ...each(amount, 'memory_total', 'memory_reserved', 'peak_fp32_flops', 'memory_bandwidth')
    })
  ),
  readings: list(object<Reading>(reading))
});

/** Return a sample whose readings are those of its GPUs, in the same order. */
function sample(value: unknown): Sample {
  const found = shapeOfSample(value);
  const { gpus, readings } = found;
  const uuids = new Set(gpus.map(({ uuid }) => uuid));
  if (
    uuids.size !== gpus.length ||
    readings.length !== gpus.length ||
    readings.some(({ uuid }, place) => uuid !== gpus[place]?.uuid)
  ) {
    throw new ShapeError();
  }
  return found;
}

const values = list(amount, WHOLE_HISTORY);
const numbers = list(number, WHOLE_HISTORY);

/** Return times in ascending order. */
function times(value: unknown): readonly number[] {
  const found = list(time, WHOLE_HISTORY)(value);
  if (found.some((each, place) => each < (found[place - 1] ?? -Infinity))) {
    throw new ShapeError();
  }
  return found;
}

const history = object<History>({
  t: times,
  gpus: validItems(
    object<GpuHistory>({ uuid: text, ...each(values, 'utilization', 'memory_used', 'power_w') })
  )
});

/** Return an interval between samples. */
function interval(value: unknown): number {
  const seconds = size(value);
  if (seconds < MIN_INTERVAL_S || seconds > MAX_INTERVAL_S) {
    throw new ShapeError();
  }
  return seconds;
}

/** Return the address of a web page. A link to any other address could run a script. */
function webAddress(value: unknown): string {
  const found = text(value);
  if (!/^https?:/i.test(found)) {
    throw new ShapeError();
  }
  return found;
}

const initialMessage = object<InitialMessage>({
  type: oneOf('hello'),
  schema: oneOf(STREAM_SCHEMA),
  version: text,
  interval_s: interval,
  history_s: size,
  install: optionalText,
  documentation: orNull(webAddress),
  always_on: orNull(flag),
  sample: nullable(sample),
  history: value => parsed(history, value) ?? { t: [], gpus: [] }
});

const sampleChanges = object<SampleChanges>({
  type: oneOf('changes'),
  time,
  readings: list(partial<Reading>(reading))
});

const gpuHours = object<GpuHours>({
  held_s: size,
  shared: flag,
  currency: text,
  ...each(amount, 'busy_s', 'memory_byte_s', 'energy_j', 'price')
});

const memoryOwnership = object<MemoryOwnership>({
  type: oneOf('usage'),
  time,
  kernels: validItems(
    object<ServerKernel>({
      ...each(text, 'id', 'spec'),
      state: oneOf('starting', 'idle', 'busy', 'restarting', 'dead', 'unknown'),
      idle_since: optionalTime,
      ...each(optionalText, 'session', 'kind', 'path', 'name'),
      gpu_hours: orNull(gpuHours),
      idle_holder: orNull(object<IdleHolder>({ since: time, memory: size, complete: flag }))
    })
  ),
  gpus: validItems(
    object<GpuMemoryOwnership>({
      uuid: text,
      holdings: list(
        object<MemoryHolder>({
          pid: count,
          memory: amount,
          source: oneOf('driver', 'torch'),
          other_users: later(flag, false),
          ...each(nullable(text), 'kernel', 'terminal'),
          ...each(optionalText, 'user', 'program')
        })
      ),
      unattributed: amount,
      memory_used: amount,
      older: later(flag, false),
      reason: optionalText,
      means: validItems(object<MeanUtilization>({ seconds: size, utilization: amount }))
    })
  ),
  job: orNull(object<SlurmJob>({ id: text, gpus: count, end: optionalTime, warning_s: size }))
});

const alwaysOn = object<AlwaysOn>({ type: oneOf('always_on'), always_on: flag });

const sampleMessage = object<SampleMessage>({ type: oneOf('sample'), sample });

function streamMessage(value: unknown): StreamMessage {
  switch (record(value).type) {
    case 'hello':
      return initialMessage(value);
    case 'sample':
      return sampleMessage(value);
    case 'changes':
      return sampleChanges(value);
    case 'always_on':
      return alwaysOn(value);
    default:
      return memoryOwnership(value);
  }
}

/**
 * Return the stream's message in `data`; null if the text is no message of this version. Unknown values are
 * null.
 */
export function parseStreamMessage(data: unknown): StreamMessage | null {
  try {
    return parsed(streamMessage, JSON.parse(String(data)));
  } catch (error) {
    if (error instanceof SyntaxError) {
      return null; // The text is not JSON: Python, for example, writes NaN.
    }
    throw error;
  }
}

/** Return `before` with `changes`; null if they are not those of the sample's readings. */
export function applyChanges(before: Sample, { time, readings: changes }: SampleChanges): Sample | null {
  const { readings } = before;
  const unfit = ({ uuid }: Partial<Reading>, place: number): boolean =>
    uuid !== undefined && uuid !== readings[place]?.uuid;
  return changes.length !== readings.length || changes.some(unfit)
    ? null
    : { ...before, time, readings: readings.map((each, place) => ({ ...each, ...changes[place] })) };
}

/** Return a single sample; null if the server's reply is none of this version. */
export function parseSample(reply: unknown): Sample | null {
  return parsed(sample, reply);
}

const metricHistory = object<MetricHistory>({
  ...each(time, 'since', 'until'),
  step_s: size,
  newest: optionalTime,
  t: times,
  samples: list(count, WHOLE_HISTORY),
  gpus: validItems(
    object<GpuMetricHistory>({
      uuid: text,
      metrics: dictionary(
        object<MetricSeries>({ mean: numbers, min: nullable(numbers), max: nullable(numbers) })
      )
    })
  )
});

/** Return a part of the history; null if the server's reply is none of this version. */
export function parseHistory(reply: unknown): MetricHistory | null {
  return parsed(metricHistory, reply);
}
