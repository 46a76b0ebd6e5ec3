import type { TranslationBundle } from '@jupyterlab/translation';

import type { Check, Diagnosis, Problem } from '../../wire/wire';
import type { DiagnosisState } from '../../model/doctor/doctorModel';

/** Symbols shown beside the status, so that the status is not indicated by color alone. */
export const SYMBOLS: Readonly<Record<Check['status'], string>> = {
  ok: '✓',
  broken: '✕',
  warning: '▲',
  unknown: '?',
  skipped: '–'
};

/**
 * Return the worst status in several diagnoses, and a short description of it. Problems are counted as in the
 * summary of a diagnosis, and a problem of several diagnoses only once.
 */
export function doctorSummary(
  trans: TranslationBundle,
  states: readonly (DiagnosisState | null)[]
): readonly [Check['status'] | null, string] {
  const known = states.filter(state => state !== null);
  if (known.some(({ kind }) => kind === 'running')) {
    return [null, trans.__('running…')];
  }
  const diagnoses = known.flatMap(state => (state.kind === 'done' ? [state.diagnosis] : []));
  const [broken, warnings, unknown] = (['broken', 'warning', 'unknown'] as const).map(status =>
    countProblems(trans, diagnoses, status)
  ) as [Count, Count, Count];
  if (broken.number > 0) {
    return ['broken', trans._n('%1 problem: %2', '%1 problems: %2', broken.number, broken.titles)];
  }
  if (known.some(({ kind }) => kind === 'failed')) {
    return ['unknown', trans.__('could not run')];
  }
  if (diagnoses.length === 0) {
    return [null, trans.__('not run')];
  }
  if (diagnoses.some(({ unfinished }) => unfinished.length > 0)) {
    return ['unknown', trans.__('incomplete')];
  }
  const parts = [
    ...(warnings.number > 0
      ? [trans._n('%1 warning: %2', '%1 warnings: %2', warnings.number, warnings.titles)]
      : []),
    ...(unknown.number > 0 ? [trans.__('no result: %1', unknown.titles)] : [])
  ];
  if (parts.length > 0) {
    return [warnings.number > 0 ? 'warning' : 'unknown', parts.join(trans.__('; '))];
  }
  // The doctor skips the check of the GPUs only on a machine without one.
  return diagnoses.some(({ links }) => links.some(({ id, status }) => id === 'gpu' && status === 'skipped'))
    ? ['skipped', trans.__('no NVIDIA GPU')]
    : ['ok', trans.__('no problems')];
}

/** A number of problems, and the titles of the checks that have found them. */
interface Count {
  readonly number: number;
  readonly titles: string;
}

/** Count the different problems with this status. A check that has found several is named once. */
function countProblems(
  trans: TranslationBundle,
  diagnoses: readonly Diagnosis[],
  wanted: Problem['status']
): Count {
  const found = diagnoses.flatMap(diagnosis =>
    diagnosis.problems
      .filter(({ status }) => status === wanted)
      .map(problem => [causeOf(problem), titleOf(diagnosis, problem.check)] as const)
  );
  const titles = new Set(found.map(([, title]) => trans.__(title)));
  return { number: new Set(found.map(([cause]) => cause)).size, titles: [...titles].join(', ') };
}

/** Return a problem as text. It does not depend on the other checks that the problem affects. */
export function causeOf(problem: Problem): string {
  return JSON.stringify({ ...problem, affects: [] });
}

/** Return the title of the check with this id. */
export function titleOf(diagnosis: Diagnosis, id: string): string {
  return diagnosis.links.find(check => check.id === id)?.title ?? id;
}
