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
      return trans.__('found');
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
    return [null, trans.__('looking…')];
  }
  const doctors = known.flatMap(state => (state.kind === 'done' ? [state.doctor] : []));
  const broken = titles(doctors, ['broken']);
  if (broken.length > 0) {
    return [
      'broken',
      trans._n(
        '%1 link broken: %2',
        '%1 links broken: %2',
        broken.length,
        broken.map(title => trans.__(title)).join(', ')
      )
    ];
  }
  if (known.some(({ kind }) => kind === 'failed')) {
    return ['unknown', trans.__('could not be looked at')];
  }
  if (doctors.length === 0) {
    return [null, trans.__('not looked at yet')];
  }
  const warnings = titles(doctors, ['warning', 'unknown']);
  return warnings.length === 0
    ? ['ok', trans.__('all links found')]
    : [
        'warning',
        trans._n(
          '%1 to look at: %2',
          '%1 to look at: %2',
          warnings.length,
          warnings.map(title => trans.__(title)).join(', ')
        )
      ];
}

/** Return the titles of the checks that have one of these statuses, without duplicates. */
function titles(doctors: readonly Diagnosis[], statuses: readonly Check['status'][]): string[] {
  const checks = doctors.flatMap(({ links }) => links).filter(({ status }) => statuses.includes(status));
  return [...new Map(checks.map(({ id, title }) => [id, title])).values()];
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
