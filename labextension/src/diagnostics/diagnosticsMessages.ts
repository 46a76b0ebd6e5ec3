import type { TranslationBundle } from '@jupyterlab/translation';

import type { TranslatedDiagnosis } from '../kernel/kernelReply';
import type { Check, Diagnosis } from '../wire';
import type { DiagnosisState } from './diagnosticsModel';

/** Symbols shown beside the status, so that the status is not indicated by color alone. */
export const SYMBOLS: Readonly<Record<Check['status'], string>> = {
  ok: '✓',
  broken: '✕',
  warning: '▲',
  unknown: '?',
  skipped: '–'
};

/** Return the status of a check in one word. */
export function statusLabel(trans: TranslationBundle, status: Check['status']): string {
  switch (status) {
    case 'ok':
      return trans.__('OK');
    case 'broken':
      return trans.__('broken');
    case 'warning':
      return trans.__('warning');
    case 'unknown':
      return trans.__('unknown');
    case 'skipped':
      return trans.__('skipped');
  }
}

/** Return the worst status in several diagnoses, and a short description of it. */
export function diagnosticsSummary(
  trans: TranslationBundle,
  states: readonly (DiagnosisState | null)[]
): readonly [Check['status'] | null, string] {
  const known = states.filter(state => state !== null);
  if (known.some(({ kind }) => kind === 'running')) {
    return [null, trans.__('running…')];
  }
  const doctors = known.flatMap(state => (state.kind === 'done' ? [state.doctor] : []));
  const [broken, warnings, unknown] = (['broken', 'warning', 'unknown'] as const).map(status =>
    titles(doctors, status).map(title => trans.__(title))
  ) as [string[], string[], string[]];
  if (broken.length > 0) {
    return ['broken', trans._n('%1 problem: %2', '%1 problems: %2', broken.length, broken.join(', '))];
  }
  if (known.some(({ kind }) => kind === 'failed')) {
    return ['unknown', trans.__('could not run')];
  }
  if (doctors.length === 0) {
    return [null, trans.__('not run')];
  }
  if (warnings.length > 0) {
    return ['warning', trans._n('%1 warning: %2', '%1 warnings: %2', warnings.length, warnings.join(', '))];
  }
  return unknown.length === 0
    ? ['ok', trans.__('no problems')]
    : ['unknown', trans.__('no result: %1', unknown.join(', '))];
}

/** Return the titles of the checks that have this status, without duplicates. */
function titles(doctors: readonly Diagnosis[], wanted: Check['status']): string[] {
  const checks = doctors.flatMap(({ links }) => links).filter(({ status }) => status === wanted);
  return [...new Map(checks.map(({ id, title }) => [id, title])).values()];
}

/** The checks of the kernel's and the server's diagnosis. */
export interface MergedChecks {
  /** The checks with the same result in both. */
  readonly shared: readonly Check[];
  readonly kernel: readonly Check[];
  readonly server: readonly Check[];
}

/** Return the checks of two diagnoses, broken checks first, and equal results only once. */
export function mergedChecks(kernel: Diagnosis | null, server: Diagnosis | null): MergedChecks {
  const own = (kernel?.links ?? []).map(check => [check, JSON.stringify(check)] as const);
  const others = (server?.links ?? []).map(check => [check, JSON.stringify(check)] as const);
  const [ownKeys, otherKeys] = [new Set(own.map(([, key]) => key)), new Set(others.map(([, key]) => key))];
  return {
    shared: sorted(own.filter(([, key]) => otherKeys.has(key))),
    kernel: sorted(own.filter(([, key]) => !otherKeys.has(key))),
    server: sorted(others.filter(([, key]) => !ownKeys.has(key)))
  };
}

/** The statuses in the order of display. */
const ORDER: readonly Check['status'][] = ['broken', 'warning', 'unknown', 'ok', 'skipped'];

/** Return the rank of the worst status in a list of checks, the lowest for broken checks. */
export function worstRank(checks: readonly Check[]): number {
  return Math.min(ORDER.length, ...checks.map(({ status }) => ORDER.indexOf(status)));
}

function sorted(checks: readonly (readonly [Check, string])[]): Check[] {
  return checks.map(([check]) => check).sort((one, other) => worstRank([one]) - worstRank([other]));
}

/**
 * Return the text that follows a fix's command, `after`, without the punctuation at the beginning of the text,
 * because the text is shown on a separate line.
 */
export function textAfterCommand(after: string): string {
  return after.replace(/^[.,;\s。，；]+/, '');
}

/** Return a diagnosis, with its texts in English, as JSON in the format of `gpuwidget doctor --json`, which `--diff` can read. */
export function toJson(doctor: TranslatedDiagnosis): string {
  return `${JSON.stringify({ ...doctor, texts: undefined }, null, 2)}\n`;
}
