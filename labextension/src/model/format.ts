/** Functions that format values in the same way as the Python package. */

import type { TranslationBundle } from '@jupyterlab/translation';
import { Signal, type ISignal } from '@lumino/signaling';

import type { Gpu } from '../wire/wire';

/**
 * The units in which values are displayed. Messages from the server always use bytes and degrees
 * Celsius.
 */
export interface Units {
  /** A GiB is 1024³ bytes, a GB is 1000³ bytes. */
  readonly memory: 'GiB' | 'GB';
  readonly temperature: 'C' | 'F';
}

/** A unit of memory. */
export interface MemoryUnit {
  readonly name: string;
  /** Size in bytes. */
  readonly size: number;
}

/** The units of memory, largest first. */
export type MemoryScale = readonly [giga: MemoryUnit, mega: MemoryUnit, kilo: MemoryUnit];

/** A unit of temperature. `celsius / size + zero` converts degrees Celsius to this unit. */
export interface TemperatureUnit {
  readonly name: string;
  /** The size of one degree of this unit in degrees Celsius. */
  readonly size: number;
  /** The value of 0 °C in this unit. */
  readonly zero: number;
}

const MEMORY_SCALES: Readonly<Record<Units['memory'], MemoryScale>> = {
  GiB: [
    { name: 'GiB', size: 1024 ** 3 },
    { name: 'MiB', size: 1024 ** 2 },
    { name: 'KiB', size: 1024 }
  ],
  GB: [
    { name: 'GB', size: 1e9 },
    { name: 'MB', size: 1e6 },
    { name: 'kB', size: 1e3 }
  ]
};
const TEMPERATURE_UNITS: Readonly<Record<Units['temperature'], TemperatureUnit>> = {
  C: { name: '°C', size: 1, zero: 0 },
  F: { name: '°F', size: 5 / 9, zero: 32 }
};

let units: Units = { memory: 'GiB', temperature: 'C' };
const sender = {};
const changes = new Signal<object, void>(sender);

/** Emitted after the units have changed. */
export const unitsChanged: ISignal<object, void> = changes;

/** Display all values of the page in these units. */
export function setUnits({ memory, temperature }: Units): void {
  if (memory !== units.memory || temperature !== units.temperature) {
    units = { memory, temperature };
    changes.emit();
  }
}

/** Return the current units of memory. The returned object is the same until the units change. */
export function memoryScale(): MemoryScale {
  return MEMORY_SCALES[units.memory];
}

/** Return the current unit of temperature. */
export function temperatureUnit(): TemperatureUnit {
  return TEMPERATURE_UNITS[units.temperature];
}

/**
 * Half of one unit. A value that is at most this far below 1000 (or 1024) units would round to that number,
 * so it is written in the next larger unit.
 */
const ROUNDED = 0.5;

/** The text of an unknown value. */
export let UNKNOWN = 'n/a';
const MINUS = '\u2212';
/** A space as wide as a digit in fonts with tabular digits. */
const FIGURE_SPACE = '\u2007';
/** A space as wide as a decimal point. */
const PUNCTUATION_SPACE = '\u2008';

/** Translate `UNKNOWN` to the language of the page, which can change only by a reload. */
export function translateUnknown(trans: TranslationBundle): void {
  UNKNOWN = trans.__('n/a');
}

type Optional = number | null | undefined;

function known(value: Optional): value is number {
  return value !== null && value !== undefined && Number.isFinite(value);
}

/**
 * Return a number that isn't negative with `decimals` decimals. A number that is exactly halfway between two,
 * such as 12.25, is rounded to the even one, as in Python: the cell's card must show the same figure.
 * `toFixed` would round it up.
 */
function fixed(value: number, decimals: number): string {
  const text = value.toFixed(decimals);
  const isHalfway = (value * 2 ** (decimals + 1)) % 2 === 1;
  return isHalfway && Number(text.slice(-1)) % 2 === 1
    ? (Number(text) - 10 ** -decimals).toFixed(decimals)
    : text;
}

/**
 * Return a size in bytes as text: `15.6 GiB`, `64 MiB` if it is below 1 GiB, or `512 KiB` if it is below 1
 * MiB.
 */
export function memory(size: Optional): string {
  if (!known(size)) {
    return UNKNOWN;
  }
  const [giga, mega, kilo] = memoryScale();
  if (size === 0) {
    return `0 ${mega.name}`;
  }
  if (size >= giga.size - ROUNDED * mega.size) {
    return `${fixed(size / giga.size, 1)} ${giga.name}`;
  }
  if (size >= mega.size - ROUNDED * kilo.size) {
    return `${fixed(size / mega.size, size < 9.95 * mega.size ? 1 : 0)} ${mega.name}`;
  }
  return size >= kilo.size - ROUNDED ? `${fixed(size / kilo.size, 0)} ${kilo.name}` : `${fixed(size, 0)} B`;
}

/**
 * Return a common unit for several sizes: the unit in which the largest size is written, but at least MiB.
 */
export function memoryUnit(sizes: readonly Optional[]): MemoryUnit {
  const [giga, mega] = memoryScale();
  return Math.max(0, ...sizes.filter(known)) >= giga.size - ROUNDED * mega.size ? giga : mega;
}

/**
 * Return a size in bytes as a number in `unit`, without the unit's name; `<0.1` for a value that would round
 * to zero. It has no decimals from 10 MiB and from 100 GiB on.
 */
export function figure(size: Optional, unit: MemoryUnit): string {
  if (!known(size)) {
    return UNKNOWN;
  }
  if (size === 0) {
    return '0';
  }
  if (size < 0.05 * unit.size) {
    return '<0.1';
  }
  const [giga] = memoryScale();
  return fixed(size / unit.size, size >= (unit.size < giga.size ? 9.95 : 99.95) * unit.size ? 0 : 1);
}

/**
 * Return a used and a total size in bytes as `117 of 140 GiB`. The used size has one decimal below ten units
 * and is as wide as the total size, so that nothing moves when it changes.
 */
export function memoryOf(trans: TranslationBundle, used: Optional, total: Optional): string {
  if (!known(used) || !known(total)) {
    return memory(used);
  }
  const unit = memoryUnit([total]);
  const all = shortFigure(total, unit);
  return trans.__(
    '%1 of %2 %3',
    padded(shortFigure(used, unit), all.replace('.', '').length),
    all,
    unit.name
  );
}

/** Return a size in bytes like `memory`, but from ten units on without a decimal, such as `71 GiB`. */
export function shortMemory(size: Optional): string {
  const unit = memoryUnit([size]);
  return known(size) ? `${shortFigure(size, unit)} ${unit.name}` : UNKNOWN;
}

/** Return a size in bytes as a number in `unit` like `figure`, but from ten units on without a decimal. */
export function shortFigure(size: number, unit: MemoryUnit): string {
  return size < 9.95 * unit.size ? figure(size, unit) : whole(size / unit.size);
}

/** Return a temperature in degrees Celsius as `51 °C`, or in the unit of the settings, such as `124 °F`. */
export function temperature(celsius: Optional): string {
  const { name, size, zero } = temperatureUnit();
  return known(celsius) ? `${whole(celsius / size + zero)} ${name}` : UNKNOWN;
}

/** Return a number rounded to an integer. */
export function whole(value: Optional): string {
  return known(value) ? fixed(value, 0) : UNKNOWN;
}

/**
 * Pad `text` on the left to the width of `digits` digits, so that right-aligned numbers do not move. A Chinese
 * character, such as in the translation of `n/a`, is about as wide as two digits, and a decimal point as half a
 * digit.
 */
export function padded(text: string, digits: number): string {
  const wide = text.replace(/[^\u2e80-\uffef]/g, '').length;
  const half = text.includes('.') && text.length <= digits ? PUNCTUATION_SPACE : '';
  return half + text.padStart(digits - wide, FIGURE_SPACE);
}

/** Return a part of a time, such as its minutes, with at least two digits. */
export function twoDigits(value: number): string {
  return String(value).padStart(2, '0');
}

/** Append a unit to a number, but not to the text of an unknown value. */
export function withUnit(text: string, unit: string): string {
  return text.endsWith(UNKNOWN) ? text : `${text} ${unit}`;
}

/** Return a power draw and its limit as `611 of 700 W`, or only the power draw if the limit is unknown. */
export function powerOf(trans: TranslationBundle, watts: Optional, limit: Optional): string {
  if (!known(watts)) {
    return UNKNOWN;
  }
  return known(limit) ? trans.__('%1 of %2 W', whole(watts), whole(limit)) : `${whole(watts)} W`;
}

/**
 * Return a signed change in bytes as a number in `unit` without the unit's name; `±0` if there is no change.
 */
export function change(size: Optional, unit: MemoryUnit): string {
  if (!known(size)) {
    return UNKNOWN;
  }
  return size === 0 ? '±0' : `${size < 0 ? MINUS : '+'}${figure(Math.abs(size), unit)}`;
}

/** Return a signed change in bytes, such as `+3.2 GiB`; `±0` if there is no change. */
export function memoryChange(size: Optional): string {
  if (!known(size)) {
    return UNKNOWN;
  }
  return size === 0 ? '±0' : `${size < 0 ? MINUS : '+'}${memory(Math.abs(size))}`;
}

/**
 * Return an energy in joules as `0.4 J`, `850 J`, `2.3 kJ`, `137 kJ` or `1.25 MJ`. Cards have one decimal more from
 * 100 kJ on, for which the panel has no room.
 */
export function energy(joules: Optional): string {
  if (!known(joules)) {
    return UNKNOWN;
  }
  if (joules >= 999.5e3) {
    return `${fixed(joules / 1e6, 2)} MJ`;
  }
  return joules >= 999.5
    ? `${fixed(joules / 1e3, joules < 99.95e3 ? 1 : 0)} kJ`
    : `${fixed(joules, joules < 9.95 ? 1 : 0)} J`;
}

/** Return a measured duration in seconds as `380 µs`, `2.1 ms`, `14.0 s`, `3 min 05 s` or `2 h 04 min`. */
export function elapsedTime(seconds: Optional): string {
  if (!known(seconds)) {
    return UNKNOWN;
  }
  if (seconds < 0.9995e-3) {
    return `${fixed(1e6 * seconds, 0)} µs`;
  }
  if (seconds < 0.9995) {
    return `${fixed(1e3 * seconds, seconds < 9.95e-3 ? 1 : 0)} ms`;
  }
  return seconds < 59.95 ? `${fixed(seconds, 1)} s` : duration(seconds);
}

/** Return a duration, rounded to seconds, as `12 s`, `3 min 05 s` or `2 h 04 min`. */
export function duration(seconds: number): string {
  const all = Number(fixed(Math.max(0, seconds), 0));
  if (all < 60) {
    return `${String(all)} s`;
  }
  if (all < 3600) {
    return `${String(Math.floor(all / 60))} min ${twoDigits(all % 60)} s`;
  }
  const minutes = Number(fixed(seconds / 60, 0));
  return `${String(Math.floor(minutes / 60))} h ${twoDigits(minutes % 60)} min`;
}

/**
 * Return the time of day, such as `14:03:20`, preceded by the date if `now` is on another day. `epoch` and
 * `now` are in epoch seconds.
 */
export function moment(epoch: number, now: number): string {
  const then = new Date(epoch * 1000);
  const time = [then.getHours(), then.getMinutes(), then.getSeconds()].map(twoDigits).join(':');
  if (then.toDateString() === new Date(now * 1000).toDateString()) {
    return time;
  }
  return `${String(then.getFullYear())}-${twoDigits(then.getMonth() + 1)}-${twoDigits(then.getDate())} ${time}`;
}

/**
 * Return the day and the time of day in the language of the page, such as `Nov 25, 16:05`; for another year, the day and
 * the year. Return an empty text if `now` is on the same day. Times are in epoch seconds.
 */
export function otherDay(epoch: number, now: number, locale: string): string {
  const [then, today] = [new Date(epoch * 1000), new Date(now * 1000)];
  if (then.toDateString() === today.toDateString()) {
    return '';
  }
  const rest: Intl.DateTimeFormatOptions =
    then.getFullYear() === today.getFullYear()
      ? { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' }
      : { year: 'numeric' };
  const options = { day: 'numeric', month: 'short', ...rest } as const;
  try {
    return then.toLocaleString(locale, options);
  } catch {
    // JupyterLab accepts any text as the language in its settings.
    return then.toLocaleString(undefined, options);
  }
}

/** Return the name of a GPU model without its vendor, such as `H200` or `GeForce RTX 4090 Laptop GPU`. */
export function model(name: string): string {
  return name.replace(/^NVIDIA /, '');
}

/**
 * Return the index of a GPU as in `nvidia-smi`. For a MIG slice, return the index of the GPU and the index
 * of the slice, as in `0:1`.
 */
export function gpuNumber({ index, mig_index: slice }: Pick<Gpu, 'index' | 'mig_index'>): string {
  return slice === null ? String(index) : `${String(index)}:${String(slice)}`;
}

/** Return the translated throttle reasons of a GPU. The server sends them in English. */
export function throttleReasons(trans: TranslationBundle, reasons: readonly string[]): string[] {
  return reasons.map(reason => trans.__(reason));
}

/** Return the message of a caught error. */
export function errorText(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Return an error as a sentence: with a period, which the browser's own errors, such as `Failed to fetch`, lack. */
export function sentence(error: string): string {
  return error.replace(/[^.!?。！？]$/, '$&.');
}

/** From these shares of its memory in use on, a GPU is nearly full, and full. */
const HIGH = 0.9;
const FULL = 0.97;

/** How full a GPU's memory is. */
export type MemoryLevel = '' | 'high' | 'full';

/** Return how full a GPU with `total` bytes is; empty if it has room, or if that is unknown. */
export function memoryLevel(used: number | null, total: number | null): MemoryLevel {
  const share = used === null || total === null ? 0 : used / total;
  return share >= FULL ? 'full' : share >= HIGH ? 'high' : '';
}
