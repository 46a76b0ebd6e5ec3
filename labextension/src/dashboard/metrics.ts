import type { TranslationBundle } from '@jupyterlab/translation';

import { memoryUnit, UNKNOWN } from '../ui/format';
import { temperatureUnit } from '../ui/units';
import type { Activity, Gpu, Reading } from '../wire';

const FROM_READING = [
  'utilization',
  'memory_utilization',
  'memory_used',
  'power_w',
  'temperature_c',
  'memory_temperature_c',
  'sm_clock_mhz'
] as const;
const FROM_ACTIVITY = [
  'graphics',
  'sm',
  'sm_occupancy',
  'tensor',
  'dram',
  'fp64',
  'fp32',
  'fp16',
  'pcie_tx',
  'pcie_rx',
  'nvlink_tx',
  'nvlink_rx'
] as const;

type FromReading = (typeof FROM_READING)[number] & keyof Reading;
type FromActivity = (typeof FROM_ACTIVITY)[number] & keyof Activity;

/** The server's name of a metric that has a chart. */
export type MetricName = FromReading | FromActivity;

/** All metrics in display order. */
export const METRICS: readonly MetricName[] = [...FROM_READING, ...FROM_ACTIVITY];

const READING_METRICS: ReadonlySet<string> = new Set(FROM_READING);
const MIB = 1024 ** 2;

/** A display unit: `value / size + zero` converts the server's value to it. */
export interface Unit {
  readonly name: string;
  readonly size: number;
  readonly zero?: number;
}

/** The kind of quantity, which determines the unit and the axis. */
export type Kind = 'percent' | 'memory' | 'power' | 'temperature' | 'clock' | 'rate';

/** Return the kind of quantity of a metric. */
export function kindOf(name: MetricName): Kind {
  switch (name) {
    case 'memory_used':
      return 'memory';
    case 'power_w':
      return 'power';
    case 'temperature_c':
    case 'memory_temperature_c':
      return 'temperature';
    case 'sm_clock_mhz':
      return 'clock';
    case 'pcie_tx':
    case 'pcie_rx':
    case 'nvlink_tx':
    case 'nvlink_rx':
      return 'rate';
    default:
      return 'percent';
  }
}

/** Return whether `name` is a metric of this version. */
export function isMetric(name: unknown): name is MetricName {
  return (METRICS as readonly unknown[]).includes(name);
}

/** Return whether a metric comes from the hardware counters, which not every GPU has. */
export function isCounter(name: MetricName): boolean {
  return !READING_METRICS.has(name);
}

/** Return the value of a metric; null is unknown. */
export function valueOf(reading: Reading, name: MetricName): number | null {
  return READING_METRICS.has(name)
    ? reading[name as FromReading]
    : (reading.activity?.[name as FromActivity] ?? null);
}

/** Return why the value of a metric is unknown; empty if the server gives no reason. */
export function reasonOf(reading: Reading, name: MetricName): string {
  return reading.missing[name] ?? (isCounter(name) ? reading.missing.activity : undefined) ?? '';
}

/** Return the name of a metric and a description. */
export function displayName(trans: TranslationBundle, name: MetricName): readonly [string, string] {
  switch (name) {
    case 'utilization':
      return [trans.__('Utilization'), trans.__('Time in which any kernel ran, as the driver says it')];
    case 'memory_utilization':
      return [trans.__('Memory utilization'), trans.__('Time in which device memory was read or written')];
    case 'memory_used':
      return [trans.__('Memory'), trans.__('Memory in use, without what the driver keeps for itself')];
    case 'power_w':
      return [trans.__('Power'), trans.__('Power drawn at the moment')];
    case 'temperature_c':
      return [trans.__('Temperature'), trans.__('Temperature of the core')];
    case 'memory_temperature_c':
      return [trans.__('Memory temperature'), trans.__('Temperature of the memory')];
    case 'sm_clock_mhz':
      return [trans.__('SM clock'), trans.__('Clock of the multiprocessors')];
    case 'graphics':
      return [trans.__('Engine'), trans.__('Time in which a graphics or compute engine was active')];
    case 'sm':
      return [trans.__('SM active'), trans.__('Share of the multiprocessors with work in them')];
    case 'sm_occupancy':
      return [trans.__('SM occupancy'), trans.__('Warps resident over warps possible')];
    case 'tensor':
      return [trans.__('Tensor cores'), trans.__('Use of the tensor-core pipes')];
    case 'dram':
      return [trans.__('Memory bandwidth'), trans.__('Use of the memory bandwidth')];
    case 'fp64':
      return [trans.__('FP64'), trans.__('Use of the double-precision pipes')];
    case 'fp32':
      return [trans.__('FP32'), trans.__('Use of the single-precision pipes')];
    case 'fp16':
      return [trans.__('FP16'), trans.__('Use of the half-precision pipes')];
    case 'pcie_tx':
      return [trans.__('PCIe sent'), trans.__('Sent by the GPU over PCIe')];
    case 'pcie_rx':
      return [trans.__('PCIe received'), trans.__('Received by the GPU over PCIe')];
    case 'nvlink_tx':
      return [trans.__('NVLink sent'), trans.__('Sent by the GPU over all NVLinks')];
    case 'nvlink_rx':
      return [trans.__('NVLink received'), trans.__('Received by the GPU over all NVLinks')];
  }
}

/** Return the unit for an axis that ends at `top`. */
export function unitOf(name: MetricName, top: number): Unit {
  switch (kindOf(name)) {
    case 'percent':
      return { name: '%', size: 1 };
    case 'memory':
      return memoryUnit([top]);
    case 'power':
      return { name: 'W', size: 1 };
    case 'temperature':
      return temperatureUnit();
    case 'clock':
      return { name: 'MHz', size: 1 };
    case 'rate':
      return top >= 1e9 ? { name: 'GB/s', size: 1e9 } : { name: 'MB/s', size: 1e6 };
  }
}

/** Return a value as a number of `unit` without its name, with one decimal place if it is small and not an integer. */
export function formatIn(value: number | null, unit: Unit): string {
  if (value === null || Number.isNaN(value)) {
    return UNKNOWN;
  }
  const number = value / unit.size + (unit.zero ?? 0);
  if (number > 0 && number < 0.05) {
    return '<0.1';
  }
  return number < 99.95 && unit.name !== 'MHz' && !Number.isInteger(number)
    ? number.toFixed(1)
    : number.toFixed(0);
}

/** Return the end of the axis for values up to `highest`: a round number, so that it seldom changes. */
export function axisTop(
  name: MetricName,
  highest: number,
  gpus: readonly Gpu[],
  powerLimits: readonly number[]
): number {
  const value = Number.isFinite(highest) ? highest : 0;
  switch (kindOf(name)) {
    case 'percent':
      return Math.max(100, value);
    case 'temperature':
      return Math.max(100, roundUp(value, 1));
    case 'memory':
      return Math.max(MIB, value, ...gpus.map(gpu => gpu.memory_total ?? 0));
    case 'power':
      return Math.max(100, roundUp(Math.max(value, ...powerLimits), 1));
    case 'clock':
      return Math.max(500, roundUp(value, 1));
    case 'rate':
      return Math.max(1e6, roundUp(value, 1));
  }
}

/** Return the next number that is 1, 1.5, 2, 2.5, 3, 4, 5, 6 or 8 times a power of ten. */
function roundUp(value: number, minimum: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(minimum, value)));
  const factor = [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].find(step => step * power >= value) ?? 10;
  return factor * power;
}
