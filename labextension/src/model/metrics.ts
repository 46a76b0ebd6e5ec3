import type { TranslationBundle } from '@jupyterlab/translation';

import { memoryUnit, powerOf, temperature, temperatureUnit, UNKNOWN, withUnit } from './format';
import { METRIC_TABLE, type MetricKind, type MetricName, type MetricSection } from '../wire/metricTable';
import type { Reading } from '../wire/wire';

/** All metrics with a chart, in display order. */
export const METRICS: readonly MetricName[] = METRIC_TABLE.map(({ name }) => name);

const ROWS = new Map<MetricName, (typeof METRIC_TABLE)[number]>(METRIC_TABLE.map(row => [row.name, row]));
const MIB = 1024 ** 2;
/** Relative error of a division that leads to a round number. */
const TOLERANCE = 1e-9;

/** A display unit: `value / size + zero` converts the server's value to this unit. */
export interface Unit {
  readonly name: string;
  readonly size: number;
  readonly zero?: number;
}

/** Return the kind of quantity that a metric measures. */
export function kindOf(name: MetricName): MetricKind {
  return ROWS.get(name)?.kind ?? 'percent';
}

/** Return the titles of the sections in display order. */
export function sectionTitles(trans: TranslationBundle): (readonly [MetricSection, string])[] {
  return [
    ['use', trans.__('Use')],
    ['memory', trans.__('Memory')],
    ['power', trans.__('Power')],
    ['traffic', trans.__('Traffic')],
    ['rest', trans.__('Rest')]
  ];
}

/** Return the section of a metric's chart. */
export function sectionOf(name: MetricName): MetricSection {
  return ROWS.get(name)?.section ?? 'rest';
}

/** Return whether `name` is a metric in this version of gpuwidget. */
export function isMetric(name: unknown): name is MetricName {
  return (METRICS as readonly unknown[]).includes(name);
}

/** Return whether a metric is measured by hardware counters, which not every GPU has. */
export function isCounter(name: MetricName): boolean {
  return ROWS.get(name)?.counter === true;
}

/** Return the value of a metric; null if it is unknown. */
export function valueOf(reading: Reading, name: MetricName): number | null {
  const values = isCounter(name) ? reading.activity : reading;
  return (values as Partial<Record<MetricName, number | null>> | null)?.[name] ?? null;
}

/** The server's reason for a value that it is about to read. Its chart keeps its place until then. */
const NOT_READ_YET = 'not read yet';

/** Return why the value of a metric is unknown; an empty text if the server gives no reason, or none yet. */
export function reasonOf(reading: Reading, name: MetricName): string {
  const reason = reading.missing[name] ?? (isCounter(name) ? reading.missing.activity : undefined) ?? '';
  return reason === NOT_READ_YET ? '' : reason;
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

/**
 * Return a value, converted to `unit`, as text without the unit's name. A small value that is not an integer
 * has one decimal place.
 */
export function formatIn(value: number | null, unit: Unit): string {
  if (value === null || Number.isNaN(value)) {
    return UNKNOWN;
  }
  // Without rounding, a tick at 50 °F would be 49.99999999999999 and get a decimal place.
  const number = Number((value / unit.size + (unit.zero ?? 0)).toPrecision(12));
  if (number > 0 && number < 0.05) {
    return '<0.1';
  }
  return number < 99.95 && unit.name !== 'MHz' && !Number.isInteger(number)
    ? number.toFixed(1)
    : number.toFixed(0);
}

/** Return the value of a metric with its unit, such as `51 °C`. `powerLimit` is the GPU's limit in watts. */
export function metricText(
  trans: TranslationBundle,
  name: MetricName,
  value: number | null,
  powerLimit: number | null
): string {
  switch (kindOf(name)) {
    case 'power':
      return powerOf(trans, value, powerLimit);
    case 'temperature':
      return temperature(value);
    default: {
      const unit = unitOf(name, value ?? 0);
      return withUnit(formatIn(value, unit), unit.name);
    }
  }
}

/**
 * Return the upper end of the axis for values up to `highest`: a round number, so that the axis seldom
 * changes.
 */
export function axisTop(
  name: MetricName,
  highest: number,
  memoryTotals: readonly number[],
  powerLimits: readonly number[]
): number {
  const value = Number.isFinite(highest) ? highest : 0;
  switch (kindOf(name)) {
    case 'percent':
      return Math.max(100, value);
    case 'temperature':
      return Math.max(100, roundUp(value, 1));
    case 'memory':
      return Math.max(MIB, value, ...memoryTotals);
    case 'power':
      return Math.max(100, roundUp(Math.max(value, ...powerLimits), 1));
    case 'clock':
      return Math.max(500, roundUp(value, 1));
    case 'rate':
      return Math.max(1e6, roundUp(value, 1));
  }
}

/**
 * Return the smallest number that is at least `value` and is 1, 1.5, 2, 2.5, 3, 4, 5, 6 or 8 times a power of
 * ten. A value below `minimum` is replaced by `minimum`.
 */
function roundUp(value: number, minimum: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(minimum, value)));
  const factor = [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].find(step => step * power >= value) ?? 10;
  return factor * power;
}

/**
 * Return the values of the ticks for an axis from 0 to `top`, with at most `intervals` intervals between
 * them. The ticks are round numbers in `unit`; `top` and the returned values are in the server's unit.
 */
export function axisTicks(top: number, unit: Unit, intervals: number): number[] {
  const zero = unit.zero ?? 0;
  const end = top / unit.size + zero;
  const power = 10 ** Math.floor(Math.log10((end - zero) / intervals));
  const fits = (step: number): boolean => Math.floor((end - zero) / step + TOLERANCE) <= intervals;
  // Tick labels have one decimal place, so the step has no more.
  const steps = [1, 2, 2.5, 4, 5, 10]
    .map(factor => factor * power)
    .filter(step => fits(step) && isInteger(10 * step));
  // If possible, the end of the axis has a tick, and there are at least two intervals. Otherwise, multiples of 4
  // are avoided.
  const dividing = steps.find(step => 2 * step <= end - zero + TOLERANCE && isInteger(end / step));
  const step = dividing ?? steps.find(round => round !== 4 * power) ?? end;
  const ticks: number[] = [];
  for (let index = Math.ceil(zero / step); index * step <= end * (1 + TOLERANCE); index++) {
    ticks.push((index * step - zero) * unit.size);
  }
  return ticks;
}

function isInteger(value: number): boolean {
  return Math.abs(value - Math.round(value)) < TOLERANCE;
}
