/** What the cells of the wall can be colored by. */

import type { TranslationBundle } from '@jupyterlab/translation';

import {
  duration,
  memory,
  powerOf,
  temperature,
  temperatureUnit,
  UNKNOWN,
  whole,
  withUnit
} from '../ui/format';
import type { ClusterGpu } from '../wire';

export const QUANTITY_NAMES = ['utilization', 'memory', 'power', 'temperature', 'errors', 'idle'] as const;
export type QuantityName = (typeof QUANTITY_NAMES)[number];

/** Number of levels of the color scale. */
export const LEVELS = 6;

/** One quantity and its color scale. */
export interface Quantity {
  readonly name: QuantityName;
  /** Whether high values need attention: they then have the warm colors. */
  readonly warm: boolean;
  /** The level of a value is the number of bounds that it exceeds. Same unit as `value`. */
  readonly bounds: readonly number[];
  /** How the values of a node's GPUs become the value of the node. */
  readonly summary: 'mean' | 'highest' | 'sum';
  /** Return the value of a GPU; null if it is unknown. */
  readonly value: (gpu: ClusterGpu) => number | null;
}

const NAMED: Readonly<Record<QuantityName, Quantity>> = {
  utilization: {
    name: 'utilization',
    warm: false,
    bounds: [0, 20, 40, 60, 80],
    summary: 'mean',
    value: gpu => gpu.utilization
  },
  memory: {
    name: 'memory',
    warm: false,
    bounds: [1, 25, 50, 75, 90],
    summary: 'mean',
    value: gpu => percent(gpu.memory_used, gpu.memory_total)
  },
  power: {
    name: 'power',
    warm: false,
    bounds: [20, 40, 60, 80, 95],
    summary: 'mean',
    value: gpu => percent(gpu.power_w, gpu.power_limit_w)
  },
  temperature: {
    name: 'temperature',
    warm: true,
    bounds: [40, 55, 70, 80, 90],
    summary: 'highest',
    value: gpu => gpu.temperature_c
  },
  errors: { name: 'errors', warm: true, bounds: [0], summary: 'sum', value: errorCount },
  idle: {
    name: 'idle',
    warm: true,
    bounds: [0, 300, 900, 1800, 3540],
    summary: 'highest',
    value: gpu => gpu.idle_s
  }
};

/** Return the quantity with this name. */
export function quantity(name: QuantityName): Quantity {
  return NAMED[name];
}

/** Return the level of a value, from 0 to `LEVELS` - 1; null if the value is unknown. */
export function level({ bounds }: Quantity, value: number | null): number | null {
  if (value === null) {
    return null;
  }
  const exceeded = bounds.filter(bound => value > bound).length;
  // A scale with fewer bounds uses the two ends of the colors.
  return exceeded === bounds.length ? LEVELS - 1 : exceeded;
}

/** Return the value of several GPUs together; null if no value is known. */
export function summarize({ summary, value }: Quantity, gpus: readonly ClusterGpu[]): number | null {
  const known = gpus.map(value).filter(one => one !== null);
  if (known.length === 0) {
    return null;
  }
  if (summary === 'highest') {
    return Math.max(...known);
  }
  const sum = known.reduce((total, one) => total + one, 0);
  return summary === 'sum' ? sum : sum / known.length;
}

/** Return the title of a quantity, such as in the dropdown. */
export function quantityTitle(trans: TranslationBundle, name: QuantityName): string {
  switch (name) {
    case 'utilization':
      return trans.__('Utilization');
    case 'memory':
      return trans.__('Memory');
    case 'power':
      return trans.__('Power');
    case 'temperature':
      return trans.__('Temperature');
    case 'errors':
      return trans.__('Errors');
    case 'idle':
      return trans.__('Held while idle');
  }
}

/** Return what the numbers of the legend are, with their unit. */
export function legendTitle(trans: TranslationBundle, name: QuantityName): string {
  switch (name) {
    case 'utilization':
      return trans.__('GPU utilization, %');
    case 'memory':
      return trans.__('Memory used, % of the total');
    case 'power':
      return trans.__('Power, % of the limit');
    case 'temperature':
      return trans.__('Temperature, %1', temperatureUnit().name);
    case 'errors':
      return trans.__('XID and uncorrected memory errors in the last hour');
    case 'idle':
      return trans.__('Memory held without utilization, minutes');
  }
}

/** Return the range of values of each level that the quantity uses, lowest first, in the legend's unit. */
export function legendRanges({
  name,
  bounds
}: Quantity): { readonly level: number; readonly text: string }[] {
  const texts = bounds.map(bound => whole(displayed(name, bound)));
  return [...bounds, Infinity].map((_, index) => {
    const [below, above] = [texts[index - 1], texts[index]];
    const first = bounds[0] === 0 ? '0' : `≤ ${String(above)}`;
    const text = below === undefined ? first : above === undefined ? `> ${below}` : `${below}–${above}`;
    return { level: index === bounds.length ? LEVELS - 1 : index, text };
  });
}

/** Return the value of a GPU with its unit. */
export function valueText(trans: TranslationBundle, name: QuantityName, gpu: ClusterGpu): string {
  switch (name) {
    case 'utilization':
      return withUnit(whole(gpu.utilization), '%');
    case 'memory':
      return gpu.memory_used === null || gpu.memory_total === null
        ? memory(gpu.memory_used)
        : trans.__('%1 of %2', memory(gpu.memory_used), memory(gpu.memory_total));
    case 'power':
      return powerOf(trans, gpu.power_w, gpu.power_limit_w);
    case 'temperature':
      return temperature(gpu.temperature_c);
    case 'errors':
      return errorText(trans, gpu);
    case 'idle':
      return gpu.idle_s === null ? UNKNOWN : duration(gpu.idle_s);
  }
}

/** Return the value of several GPUs together with its unit. */
export function summaryText(trans: TranslationBundle, name: QuantityName, value: number | null): string {
  if (value === null) {
    return UNKNOWN;
  }
  switch (name) {
    case 'temperature':
      return temperature(value);
    case 'errors':
      return whole(value);
    case 'idle':
      return duration(value);
    default:
      return trans.__('%1 %', whole(value));
  }
}

/** Return the errors of a GPU: the XID, and the number of memory errors. */
export function errorText(trans: TranslationBundle, gpu: ClusterGpu): string {
  const errors: string[] = [];
  if (gpu.xid !== null) {
    errors.push(trans.__('XID %1', gpu.xid));
  }
  if (gpu.ecc_uncorrected !== null && gpu.ecc_uncorrected > 0) {
    errors.push(trans._n('%1 memory error', '%1 memory errors', gpu.ecc_uncorrected));
  }
  if (errors.length > 0) {
    return errors.join(', ');
  }
  return gpu.ecc_uncorrected === null ? UNKNOWN : trans.__('none');
}

/** Whether the GPU had an error within the last hour. */
export function hasErrors(gpu: ClusterGpu): boolean {
  return (errorCount(gpu) ?? 0) > 0;
}

/**
 * Return the number of known errors, in which the newest XID counts as one. It is null if there is no XID and
 * the memory errors are unknown, because no XID may mean that the exporter reports none.
 */
function errorCount({ xid, ecc_uncorrected: ecc }: ClusterGpu): number | null {
  return xid === null ? ecc : 1 + (ecc ?? 0);
}

function percent(part: number | null, total: number | null): number | null {
  return part === null || total === null || total <= 0 ? null : (100 * part) / total;
}

/** Convert a bound to the legend's unit. */
function displayed(name: QuantityName, bound: number): number {
  if (name === 'temperature') {
    const { size, zero } = temperatureUnit();
    return bound / size + zero;
  }
  return name === 'idle' ? bound / 60 : bound;
}
