/** Numbers in the units that people read, in the same words as gpuwidget/units.py. */

import type { TranslationBundle } from '@jupyterlab/translation';

import { memoryScale, temperatureUnit } from './units';
import type { Gpu } from '../wire';

/** What would be rounded to a thousand of one unit is told in the next; of 1024 in binary units. */
const ROUNDED = 0.5;

/** What stands for a value that is not known. */
export let UNKNOWN = 'n/a';
const MINUS = '\u2212';
/** As wide as a digit where digits are tabular: keeps a number's start in its place. */
const FIGURE_SPACE = '\u2007';

/** Say it in the language of the page, which is the same for all of it until it is loaded anew. */
export function speak(trans: TranslationBundle): void {
  UNKNOWN = trans.__('n/a');
}

/** A unit that figures share: `GiB`, `MiB`, `GB` or `MB`. */
export interface MemoryUnit {
  readonly name: string;
  /** Bytes. */
  readonly size: number;
}

type Unsure = number | null | undefined;

function known(value: Unsure): value is number {
  return value !== null && value !== undefined && Number.isFinite(value);
}

/** Bytes as `15.6 GiB`, `64 MiB` below 1 GiB, `512 KiB` below 1 MiB; `n/a` for what is not known. */
export function memory(size: Unsure): string {
  if (!known(size)) {
    return UNKNOWN;
  }
  const [giga, mega, kilo] = memoryScale();
  if (size === 0) {
    return `0 ${mega.name}`;
  }
  if (size >= giga.size - ROUNDED * mega.size) {
    return `${(size / giga.size).toFixed(1)} ${giga.name}`;
  }
  if (size >= mega.size - ROUNDED * kilo.size) {
    return `${(size / mega.size).toFixed(size < 9.95 * mega.size ? 1 : 0)} ${mega.name}`;
  }
  return size >= kilo.size - ROUNDED
    ? `${(size / kilo.size).toFixed(0)} ${kilo.name}`
    : `${size.toFixed(0)} B`;
}

/** The one unit for figures that stand together: that of the largest, MiB at least. */
export function memoryUnit(sizes: readonly Unsure[]): MemoryUnit {
  const [giga, mega] = memoryScale();
  return Math.max(0, ...sizes.filter(known)) >= giga.size - ROUNDED * mega.size ? giga : mega;
}

/** Bytes as a bare number of `unit`, `<0.1` for what would round to nothing: a little memory is not none. */
export function figure(size: Unsure, unit: MemoryUnit): string {
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
  return (size / unit.size).toFixed(unit.size < giga.size && size >= 9.95 * unit.size ? 0 : 1);
}

/** Degrees Celsius as `51 °C`, or as the settings have it. */
export function temperature(celsius: Unsure): string {
  const { name, size, zero } = temperatureUnit();
  return known(celsius) ? `${whole(celsius / size + zero)} ${name}` : UNKNOWN;
}

/** A whole number, `n/a` for what is not known. */
export function whole(value: Unsure): string {
  return known(value) ? value.toFixed(0) : UNKNOWN;
}

/** As wide as `digits` characters, so that what is flush right does not begin elsewhere when it grows. */
export function padded(text: string, digits: number): string {
  return text.padStart(digits, FIGURE_SPACE);
}

/** A number with its unit; what is not known has none. */
export function withUnit(text: string, unit: string): string {
  return text.endsWith(UNKNOWN) ? text : `${text} ${unit}`;
}

/** A part of a whole with the unit once, `611 of 700 W`; the part alone where the whole is not known. */
export function powerOf(trans: TranslationBundle, watts: Unsure, limit: Unsure): string {
  if (!known(watts)) {
    return UNKNOWN;
  }
  return known(limit) ? trans.__('%1 of %2 W', whole(watts), whole(limit)) : `${whole(watts)} W`;
}

/** A change of bytes as a bare number of `unit` with its sign, `±0` for none. */
export function change(size: Unsure, unit: MemoryUnit): string {
  if (!known(size)) {
    return UNKNOWN;
  }
  return size === 0 ? '±0' : `${size < 0 ? MINUS : '+'}${figure(Math.abs(size), unit)}`;
}

/** A change of bytes as `+3.2 GiB`, `±0` for none. */
export function memoryChange(size: Unsure): string {
  if (!known(size)) {
    return UNKNOWN;
  }
  return size === 0 ? '±0' : `${size < 0 ? MINUS : '+'}${memory(Math.abs(size))}`;
}

/** Joules as `0.4 J`, `850 J`, `2.3 kJ` or `1.25 MJ`. */
export function energy(joules: Unsure): string {
  if (!known(joules)) {
    return UNKNOWN;
  }
  if (joules >= 999.5e3) {
    return `${(joules / 1e6).toFixed(2)} MJ`;
  }
  return joules >= 999.5 ? `${(joules / 1e3).toFixed(1)} kJ` : `${joules.toFixed(joules < 9.95 ? 1 : 0)} J`;
}

/** Seconds that something took, as `380 µs`, `2.1 ms`, `14.0 s`, `3 min 05 s` or `2 h 04 min`. */
export function took(seconds: Unsure): string {
  if (!known(seconds)) {
    return UNKNOWN;
  }
  if (seconds < 0.9995e-3) {
    return `${(1e6 * seconds).toFixed(0)} µs`;
  }
  if (seconds < 0.9995) {
    return `${(1e3 * seconds).toFixed(seconds < 9.95e-3 ? 1 : 0)} ms`;
  }
  return seconds < 59.95 ? `${seconds.toFixed(1)} s` : duration(seconds);
}

/** The same for a narrow column: from a minute on as `3:05 min`, from an hour on as `2:04 h`. */
export function tookShort(seconds: Unsure): string {
  const whole = known(seconds) ? Math.round(seconds) : 0;
  if (!known(seconds) || seconds < 59.95) {
    return took(seconds);
  }
  const [large, small, unit] =
    whole < 3600
      ? [Math.floor(whole / 60), whole % 60, 'min']
      : [Math.floor(Math.round(seconds / 60) / 60), Math.round(seconds / 60) % 60, 'h'];
  return `${String(large)}:${String(small).padStart(2, '0')} ${unit}`;
}

/** Whole seconds as `12 s`, `3 min 05 s` or `2 h 04 min`. */
export function duration(seconds: number): string {
  const all = Math.max(0, Math.round(seconds));
  if (all < 60) {
    return `${String(all)} s`;
  }
  const two = (value: number): string => String(value).padStart(2, '0');
  if (all < 3600) {
    return `${String(Math.floor(all / 60))} min ${two(all % 60)} s`;
  }
  const minutes = Math.round(all / 60);
  return `${String(Math.floor(minutes / 60))} h ${two(minutes % 60)} min`;
}

/** A time of the day as `14:03:20`, with the date unless it is that of `now`; both in epoch seconds. */
export function moment(epoch: number, now: number): string {
  const then = new Date(epoch * 1000);
  const two = (value: number): string => String(value).padStart(2, '0');
  const time = [then.getHours(), then.getMinutes(), then.getSeconds()].map(two).join(':');
  if (then.toDateString() === new Date(now * 1000).toDateString()) {
    return time;
  }
  return `${String(then.getFullYear())}-${two(then.getMonth() + 1)}-${two(then.getDate())} ${time}`;
}

/** A model's name without its maker, whose end tells more: `H200`, `GeForce RTX 4090 Laptop GPU`. */
export function model(name: string): string {
  return name.replace(/^NVIDIA /, '');
}

/** The number of a GPU, that of `nvidia-smi`; a slice has its parent's before it. */
export function gpuNumber({ index, mig_index: slice }: Pick<Gpu, 'index' | 'mig_index'>): string {
  return slice === null ? String(index) : `${String(index)}:${String(slice)}`;
}
