import type { TranslationBundle } from '@jupyterlab/translation';

import { memoryShares } from '../stream/streamModel';
import { HARMFUL_THROTTLE_REASONS, type Gpu, type Reading } from '../../wire/wire';
import type { Settings } from '../settings/settings';
import { gpuNumbers } from '../memory/holders';
import { gpuNumber, moment, temperature, throttleReasons, whole } from '../format';

/** Which alerts the user wants, and when. */
export type AlertSettings = Settings['alerts'];

export type AlertKind = 'lost' | 'errors' | 'xid' | 'memory' | 'temperature' | 'throttle';

/** The state of one alert condition on one GPU. */
export interface Finding {
  readonly kind: AlertKind;
  readonly gpu: Gpu;
  /**
   * `on`: the condition holds. `off`: it clearly does not hold. `between`: the value is slightly below the
   * limit, so the condition neither begins nor ends. `unknown`: the value is unknown.
   */
  readonly state: 'on' | 'off' | 'between' | 'unknown';
  /**
   * The value that the message contains: a percentage, degrees, an error count, an XID, epoch seconds or
   * throttle reasons.
   */
  readonly value: number | readonly string[];
}

/** One notification: a condition on one or more GPUs. */
export interface Alert {
  readonly kind: AlertKind;
  readonly findings: readonly Finding[];
}

const HARMFUL_REASONS: ReadonlySet<string> = new Set(HARMFUL_THROTTLE_REASONS);
/**
 * How far a value must fall below its limit to end the condition, in percentage points of memory and in
 * degrees Celsius.
 */
const MEMORY_MARGIN = 5;
const TEMPERATURE_MARGIN = 5;

/**
 * Return whether a GPU is lost, or null for a MIG slice: a slice is lost together with its parent, and only
 * the parent raises an alert.
 */
export function checkLost(gpu: Gpu, { lost_since: since, answered }: Reading): Finding | null {
  if (gpu.mig_parent !== null) {
    return null;
  }
  const state = since !== null ? 'on' : answered === null ? 'unknown' : 'off';
  return { kind: 'lost', gpu, state, value: since ?? 0 };
}

/**
 * Return the states of the enabled conditions that must last for some time before they raise an alert:
 * memory, temperature and throttling.
 */
export function checkLevels(gpu: Gpu, reading: Reading, settings: AlertSettings): Finding[] {
  const findings: Finding[] = [];
  if (settings.memory) {
    const percent = memoryPercent(gpu, reading);
    findings.push(compare('memory', gpu, percent, settings.memoryPercent, MEMORY_MARGIN));
  }
  if (settings.temperature) {
    const { temperature_c: temperature } = reading;
    findings.push(compare('temperature', gpu, temperature, settings.temperatureCelsius, TEMPERATURE_MARGIN));
  }
  if (settings.throttle) {
    const reasons = reading.throttle?.filter(reason => HARMFUL_REASONS.has(reason)) ?? null;
    const state = reasons === null ? 'unknown' : reasons.length > 0 ? 'on' : 'off';
    findings.push({ kind: 'throttle', gpu, state, value: reasons ?? [] });
  }
  return findings;
}

/** Return whether the settings turn on alerts of this kind. */
export function isEnabled(kind: AlertKind, settings: AlertSettings): boolean {
  return settings.when !== 'never' && settings[kind === 'xid' ? 'errors' : kind];
}

function compare(kind: AlertKind, gpu: Gpu, value: number | null, limit: number, margin: number): Finding {
  const state =
    value === null ? 'unknown' : value >= limit ? 'on' : value < limit - margin ? 'off' : 'between';
  return { kind, gpu, state, value: value ?? 0 };
}

function memoryPercent(gpu: Gpu, reading: Reading): number | null {
  const { used, free } = memoryShares({ gpu, reading, kernel: null, usage: null, activeKernelId: null });
  return used === null || free === null || used + free === 0 ? null : (100 * used) / (used + free);
}

/** Return the text of a notification. `now` is in epoch seconds. */
export function alertText(trans: TranslationBundle, { kind, findings }: Alert, now: number): string {
  const [first] = findings;
  if (first === undefined) {
    return '';
  }
  const gpus = gpuNumbers(
    trans,
    findings.map(({ gpu }) => gpuNumber(gpu))
  );
  switch (kind) {
    case 'lost':
      return trans.__(
        '%1 lost since %2. A GPU reset or a restart of the machine is needed.',
        gpus,
        moment(Number(first.value), now)
      );
    case 'errors':
      return trans.__(
        '%1: new uncorrected memory errors (ECC): %2. Work done there may have failed, or its results may be wrong.',
        gpus,
        listed(findings, String)
      );
    case 'xid':
      return trans.__('%1: XID %2.', gpus, listed(findings, String));
    case 'memory':
      return trans.__('%1: %2 % of the memory is in use.', gpus, listed(findings, whole));
    case 'temperature':
      return trans.__('%1: %2.', gpus, listed(findings, temperature));
    case 'throttle':
      return trans.__(
        '%1 throttled (%2).',
        gpus,
        [
          ...new Set(
            findings.map(({ value }) =>
              (typeof value === 'number' ? [] : throttleReasons(trans, value)).join(', ')
            )
          )
        ].join('; ')
      );
  }
}

function listed(findings: readonly Finding[], format: (value: number) => string): string {
  return findings.map(({ value }) => format(Number(value))).join(', ');
}
