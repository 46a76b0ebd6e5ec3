import type { TranslationBundle } from '@jupyterlab/translation';

import { nameOf, type Running } from '../cells/cells';
import type { CellReport, GpuPart } from '../cells/report';
import type { Totals } from '../cells/rows';
import { energy, memory, memoryChange, moment, took, UNKNOWN } from '../ui/format';

/** What stands where a cell used no GPU: nothing is unknown there. */
export const NONE = '–';
/** Follows a figure that is the whole GPU's. */
export const WHOLE = '*';

/** Its number and label, and where it has neither, what it is. */
export function cellName(trans: TranslationBundle, report: CellReport): string {
  return nameOf(report) || trans.__('(no number)');
}

/** How it ended, where not well: a sign and what it means. */
export function ending(trans: TranslationBundle, report: CellReport): [string, string] | null {
  const memoryRanOut =
    report.ooms === 0 ? '' : trans._n('%1 out-of-memory error', '%1 out-of-memory errors', report.ooms);
  if (report.status === 'error') {
    return ['✕', [trans.__('stopped by an error'), memoryRanOut].filter(part => part !== '').join(', ')];
  }
  if (report.status === 'interrupted') {
    return ['■', trans.__('interrupted')];
  }
  return memoryRanOut === '' ? null : ['▲', memoryRanOut];
}

/** What the change and the peak are of, with each GPU's part; for a pointer that rests there. */
export function memoryTitle(trans: TranslationBundle, report: CellReport): string {
  const { gpus, kind, delta, peak, missing } = report;
  if (gpus.length === 0) {
    return report.seen ? trans.__('It used no GPU') : trans.__('There was no GPU');
  }
  const what = {
    torch: trans.__('Allocated by torch'),
    process: report.children
      ? trans.__('Held by this notebook and its child processes')
      : trans.__('Held by this notebook'),
    device: trans.__('Whole GPU: whose memory it is could not be told')
  }[kind];
  const field = { torch: 'torch', process: 'process_memory', device: 'device_memory' }[kind];
  const lines = [
    trans.__('%1: %2, peak %3', what, memoryChange(delta), memory(peak)),
    ...(gpus.length > 1 || delta === null || peak === null
      ? gpus.map(gpu =>
          trans.__('%1: %2, peak %3', gpuWords(trans, gpu), memoryChange(gpu.delta), memory(gpu.peak))
        )
      : [gpus.map(gpu => gpuWords(trans, gpu)).join(', ')])
  ];
  const reason = delta === null || peak === null ? (missing[field] ?? '') : '';
  return [...lines, reason, report.recording ?? ''].filter(line => line !== '').join('\n');
}

/** Seconds and the moment it began; `now` in epoch seconds. */
export function timeTitle(trans: TranslationBundle, report: CellReport, now: number): string {
  const { started, duration } = report;
  const began = started === null ? '' : trans.__('began %1', moment(started, now));
  return [took(duration), began].filter(part => part !== '').join(', ');
}

/** Energy as it stands in a column, `≥` where a GPU's part is not known. */
export function energyText({ joules, atLeast }: { joules: number | null; atLeast: boolean }): string {
  return joules === null ? UNKNOWN : `${atLeast ? '≥' : ''}${energy(joules)}`;
}

/** Energy of each GPU, and why it is not known. */
export function energyTitle(trans: TranslationBundle, report: CellReport): string {
  const { gpus, atLeast, missing } = report;
  if (gpus.length === 0) {
    return memoryTitle(trans, report);
  }
  const parts = gpus.map(gpu => `${gpuWords(trans, gpu)}: ${energy(gpu.energy)}`);
  return [...parts, atLeast ? (missing.energy_j ?? '') : ''].filter(line => line !== '').join('\n');
}

/** All of them in a few words. */
export function totalsText(trans: TranslationBundle, count: number, totals: Totals): string {
  return count === 0
    ? ''
    : [
        trans._n('%1 run', '%1 runs', count),
        ...(totals.seconds === null ? [] : [took(totals.seconds)]),
        ...(totals.joules === null ? [] : [energyText(totals)])
      ].join(' · ');
}

/** Why there is a change of the running cell's, or none. */
export function runningTitle(trans: TranslationBundle, running: Running): string {
  if (running.delta === null) {
    return trans.__('Not known: the kernel did not say what it held before this cell, or does not answer');
  }
  const parts = running.gpus.filter(({ bytes }) => bytes !== 0);
  const torch = running.gpus.some(gpu => gpu.torch);
  return [
    torch
      ? trans.__('Reserved by torch since the cell began: %1', memoryChange(running.delta))
      : trans.__('Held by this notebook since the cell began: %1', memoryChange(running.delta)),
    ...parts.map(({ uuid, torchDevice, bytes }) => `${torchDevice ?? uuid}: ${memoryChange(bytes)}`)
  ].join('\n');
}

function gpuWords(trans: TranslationBundle, { number, torchDevice }: GpuPart): string {
  return torchDevice === null ? trans.__('GPU %1', number) : trans.__('GPU %1 (%2)', number, torchDevice);
}
