/**
 * The table of the quantities that the wall shows. An entry has all that there is about a quantity: its place in the
 * toolbar, the colors, the legend, the texts and the CSV file.
 */

import type { TranslationBundle } from '@jupyterlab/translation';

import { xidDescription } from '../../model/alerts/xidText';
import {
  duration,
  memory,
  powerOf,
  temperature,
  temperatureUnit,
  UNKNOWN,
  whole,
  withUnit
} from '../../model/format';
import type { ClusterGpu } from '../../wire/wire';

/** Number of levels of the color scale. */
export const LEVELS = 6;

/** A column of the CSV file. Its unit does not depend on the user's settings, because programs read it. */
export type CsvColumn = readonly [
  title: string,
  value: (gpu: ClusterGpu) => string | number | boolean | null
];

/** One quantity, its color scale and its texts. */
export interface Quantity {
  /** Whether high values need attention: they then have the warm colors. */
  readonly warm: boolean;
  /** The level of a value is the number of bounds that it exceeds. Same unit as `value`. */
  readonly bounds: readonly number[];
  /** How the values of a node's GPUs become the value of the node. */
  readonly summary: 'mean' | 'highest' | 'sum';
  /** Return the value of a GPU; null if it is unknown. */
  readonly value: (gpu: ClusterGpu) => number | null;
  /** Return the title, such as in the dropdown. */
  readonly title: (trans: TranslationBundle) => string;
  /** Return what the numbers of the legend are, with their unit. */
  readonly legendTitle: (trans: TranslationBundle) => string;
  /** Convert a bound to the legend's unit. */
  readonly legendValue: (bound: number) => number;
  /** Return the value of a GPU with its unit. */
  readonly text: (trans: TranslationBundle, gpu: ClusterGpu) => string;
  /** Return a known value of several GPUs together with its unit. */
  readonly summaryText: (trans: TranslationBundle, value: number) => string;
  /** Return what the description of a GPU says; null for nothing. By default, it says `text`. */
  readonly remark?: (trans: TranslationBundle, gpu: ClusterGpu) => string | null;
  readonly csv: readonly CsvColumn[];
}

const SAME_UNIT = (bound: number): number => bound;
const PERCENT = {
  warm: false,
  summary: 'mean',
  legendValue: SAME_UNIT,
  summaryText: (trans: TranslationBundle, value: number) => trans.__('%1 %', whole(value))
} as const;

const QUANTITIES = {
  utilization: {
    ...PERCENT,
    bounds: [0, 20, 40, 60, 80],
    value: gpu => gpu.utilization,
    title: trans => trans.__('Utilization'),
    legendTitle: trans => trans.__('GPU utilization, %'),
    text: (_, gpu) => withUnit(whole(gpu.utilization), '%'),
    csv: [['utilization (%)', gpu => gpu.utilization]]
  },
  memory: {
    ...PERCENT,
    bounds: [1, 25, 50, 75, 90],
    value: gpu => percent(gpu.memory_used, gpu.memory_total),
    title: trans => trans.__('Memory'),
    legendTitle: trans => trans.__('Memory used, % of the total'),
    text: (trans, { memory_used: used, memory_total: total }) =>
      used === null || total === null ? memory(used) : trans.__('%1 of %2', memory(used), memory(total)),
    csv: [
      ['memory used (B)', gpu => gpu.memory_used],
      ['memory total (B)', gpu => gpu.memory_total]
    ]
  },
  power: {
    ...PERCENT,
    bounds: [20, 40, 60, 80, 95],
    value: gpu => percent(gpu.power_w, gpu.power_limit_w),
    title: trans => trans.__('Power'),
    legendTitle: trans => trans.__('Power, % of the limit'),
    text: (trans, gpu) => powerOf(trans, gpu.power_w, gpu.power_limit_w),
    csv: [
      ['power (W)', gpu => gpu.power_w],
      ['power limit (W)', gpu => gpu.power_limit_w]
    ]
  },
  temperature: {
    warm: true,
    bounds: [40, 55, 70, 80, 90],
    summary: 'highest',
    value: gpu => gpu.temperature_c,
    title: trans => trans.__('Temperature'),
    legendTitle: trans => trans.__('Temperature, %1', temperatureUnit().name),
    legendValue: bound => bound / temperatureUnit().size + temperatureUnit().zero,
    text: (_, gpu) => temperature(gpu.temperature_c),
    summaryText: (_, value) => temperature(value),
    csv: [['temperature (°C)', gpu => gpu.temperature_c]]
  },
  errors: {
    warm: true,
    bounds: [0],
    summary: 'sum',
    value: errorCount,
    title: trans => trans.__('Errors'),
    legendTitle: trans => trans.__('XID and uncorrected memory errors in the last hour'),
    legendValue: SAME_UNIT,
    text: errorText,
    summaryText: (_, value) => whole(value),
    remark: errorRemark,
    csv: [
      ['newest XID in the last hour', gpu => gpu.xid],
      ['uncorrected memory errors in the last hour', gpu => gpu.ecc_uncorrected],
      ['lost', gpu => gpu.lost]
    ]
  },
  idle: {
    warm: true,
    bounds: [0, 300, 900, 1800, 3540],
    summary: 'highest',
    value: gpu => gpu.idle_s,
    title: trans => trans.__('Held while idle'),
    legendTitle: trans => trans.__('Memory held without utilization, minutes'),
    legendValue: bound => bound / 60,
    text: (_, gpu) => (gpu.idle_s === null ? UNKNOWN : duration(gpu.idle_s)),
    summaryText: (_, value) => duration(value),
    remark: (trans, { idle_s: idle }) =>
      idle !== null && idle > 0 ? trans.__('held while idle for %1', duration(idle)) : null,
    csv: [['held while idle (s)', gpu => gpu.idle_s]]
  }
} as const satisfies Record<string, Quantity>;

export type QuantityName = keyof typeof QUANTITIES;

/** The names in the order of the toolbar, of a GPU's description and of the CSV file. */
export const QUANTITY_NAMES = Object.keys(QUANTITIES) as readonly QuantityName[];

/** Return the quantity with this name. */
export function quantity(name: QuantityName): Quantity {
  return QUANTITIES[name];
}

/** Return what the description of a GPU says about its quantities. */
export function remarks(trans: TranslationBundle, gpu: ClusterGpu): string[] {
  return QUANTITY_NAMES.map(quantity).flatMap(({ title, text, remark }) => {
    if (remark !== undefined) {
      return remark(trans, gpu) ?? [];
    }
    const value = text(trans, gpu);
    return value === UNKNOWN ? `${title(trans)} ${value}` : value;
  });
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

/** Return the value of several GPUs together with its unit. */
export function summaryText(trans: TranslationBundle, shown: Quantity, gpus: readonly ClusterGpu[]): string {
  const value = summarize(shown, gpus);
  return value === null ? UNKNOWN : shown.summaryText(trans, value);
}

/** Return the range of values of each level that the quantity uses, lowest first, in the legend's unit. */
export function legendRanges({
  bounds,
  legendValue
}: Quantity): { readonly level: number; readonly text: string }[] {
  const texts = bounds.map(bound => whole(legendValue(bound)));
  return [...bounds, Infinity].map((_, index) => {
    const [below, above] = [texts[index - 1], texts[index]];
    const first = bounds[0] === 0 ? '0' : `≤ ${String(above)}`;
    const text = below === undefined ? first : above === undefined ? `> ${below}` : `${below}–${above}`;
    return { level: index === bounds.length ? LEVELS - 1 : index, text };
  });
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

/** Return the errors of a GPU, with what its XID means and what to do; null if it has none. */
function errorRemark(trans: TranslationBundle, gpu: ClusterGpu): string | null {
  if (!hasErrors(gpu)) {
    return null;
  }
  const text = errorText(trans, gpu);
  return [text, ...(gpu.xid === null ? [] : xidDescription(trans, gpu.xid))].join(' · ');
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
