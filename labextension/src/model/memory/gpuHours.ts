import type { TranslationBundle } from '@jupyterlab/translation';

import { UNKNOWN } from '../format';
import type { GpuHours, SlurmJob } from '../../wire/wire';
import { approximateDuration } from './holders';

const HOUR_S = 3600;
const GIB = 1024 ** 3;
const JOULES_PER_KWH = 3.6e6;
/** A smaller amount would round to zero. */
const MIN_AMOUNT = 0.005;
const NO_BREAK_SPACE = '\u00a0';

/**
 * Return a notebook's use of the GPUs, such as `3.2 GPU-hours held · 1.1 busy · 40 GiB-hours · 0.60 kWh`. If the
 * notebook has shared its GPUs, busy time and energy are marked as a part of its use by `≥`. A line can wrap only
 * between two values, not between a number and its unit.
 */
export function gpuHoursText(trans: TranslationBundle, hours: GpuHours): string {
  const { held_s: held, busy_s: busy, memory_byte_s: memory, energy_j: energy, price, currency } = hours;
  const part = hours.shared ? atLeast : amount;
  return [
    trans.__('%1 GPU-hours held', amount(held / HOUR_S)),
    trans.__('%1 busy', busy === null ? UNKNOWN : part(busy / HOUR_S)),
    ...(memory === null ? [] : [trans.__('%1 GiB-hours', amount(memory / GIB / HOUR_S))]),
    ...(energy === null ? [] : [trans.__('%1 kWh', part(energy / JOULES_PER_KWH))]),
    ...(price === null ? [] : [`${price.toFixed(2)} ${currency}`.trim()])
  ]
    .map(value => value.replaceAll(' ', NO_BREAK_SPACE))
    .join(' · ');
}

/** Return the sentences that explain how GPU-hours are counted, for a tooltip. */
export function gpuHoursTitle(trans: TranslationBundle, { shared, price }: GpuHours): string {
  return [
    trans.__('Since the server’s start, including earlier kernels of this notebook.'),
    trans.__('Busy time and energy are counted only while no one else uses the notebook’s GPU.'),
    ...(shared
      ? [
          trans.__(
            'This notebook has shared its GPUs, so busy time and energy are lower bounds (≥) or unknown.'
          )
        ]
      : []),
    ...(price === null ? [] : [trans.__('The price is for the hours held.')])
  ].join(' ');
}

/** Return a Slurm job, such as `Slurm job 1234 · 2 GPUs · 3 h left`. `now` is in epoch seconds. */
export function jobText(trans: TranslationBundle, { id, gpus, end }: SlurmJob, now: number): string {
  return [
    trans.__('Slurm job %1', id),
    ...(gpus === null ? [] : [trans._n('%1 GPU', '%1 GPUs', gpus)]),
    ...(end === null ? [] : [trans.__('%1 left', timeLeft(Math.max(0, end - now)))])
  ].join(' · ');
}

/** Return the time that is left in hours and minutes, rounded down: `3 h 12 min`, `12 min`, `40 s`. */
export function timeLeft(seconds: number): string {
  if (seconds < HOUR_S || seconds >= 48 * HOUR_S) {
    return approximateDuration(seconds);
  }
  const minutes = Math.floor(seconds / 60);
  return `${String(Math.floor(minutes / 60))} h ${String(minutes % 60)} min`;
}

/** Return a lower bound, such as `≥ 1.1`. */
function atLeast(value: number): string {
  return `≥ ${value < MIN_AMOUNT ? '0' : amount(value)}`;
}

/** Return a number with two significant digits, and without decimals from 10 on. */
function amount(value: number): string {
  if (value === 0) {
    return '0';
  }
  return value >= 9.95
    ? value.toFixed(0)
    : value >= 0.995
      ? value.toFixed(1)
      : value < MIN_AMOUNT
        ? '<0.01'
        : value.toFixed(2);
}
