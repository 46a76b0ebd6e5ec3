import type { TranslationBundle } from '@jupyterlab/translation';

import type { TranslatedDiagnosis } from '../../wire/kernelReply';
import type { Check, Diagnosis, Problem } from '../../wire/wire';
import type { DiagnosisState } from '../../model/diagnostics/diagnosticsModel';

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
  return {
    ok: trans.__('OK'),
    broken: trans.__('broken'),
    warning: trans.__('warning'),
    unknown: trans.__('unknown'),
    skipped: trans.__('skipped')
  }[status];
}

/**
 * Return the worst status in several diagnoses, and a short description of it. Problems are counted as in the
 * summary of a diagnosis, and a problem of several diagnoses only once.
 */
export function diagnosticsSummary(
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
function causeOf(problem: Problem): string {
  return JSON.stringify({ ...problem, affects: [] });
}

function titleOf(diagnosis: Diagnosis, id: string): string {
  return diagnosis.links.find(check => check.id === id)?.title ?? id;
}

/** A problem with the titles of the other checks that it affects. */
export interface ShownProblem {
  readonly problem: Problem;
  readonly affects: readonly string[];
}

/**
 * A check with the problems that it has found, and the titles of the checks that have found the causes of its
 * other issues.
 */
export interface ShownCheck {
  readonly check: Check;
  readonly problems: readonly ShownProblem[];
  readonly causes: readonly string[];
}

/** The checks of the kernel's and the server's diagnosis. */
export interface MergedChecks {
  /** The checks with the same result in both. */
  readonly shared: readonly ShownCheck[];
  readonly kernel: readonly ShownCheck[];
  readonly server: readonly ShownCheck[];
}

/**
 * Return the checks of two diagnoses, problems first in the order of fixing, and equal results only once. A
 * check of both has only the raw data that are the same in both.
 */
export function mergedChecks(kernel: Diagnosis | null, server: Diagnosis | null): MergedChecks {
  const own = new Map(shownChecks(kernel).map(shown => [resultOf(shown), shown]));
  const others = new Map(shownChecks(server).map(shown => [resultOf(shown), shown]));
  return {
    shared: [...own].flatMap(([key, shown]) => {
      const same = others.get(key)?.check.evidence;
      if (same === undefined) {
        return [];
      }
      const entries = Object.entries(shown.check.evidence).filter(([name, value]) => same[name] === value);
      return [{ ...shown, check: { ...shown.check, evidence: Object.fromEntries(entries) } }];
    }),
    kernel: [...own].flatMap(([key, shown]) => (others.has(key) ? [] : [shown])),
    server: [...others].flatMap(([key, shown]) => (own.has(key) ? [] : [shown]))
  };
}

/**
 * Return the result of a check as text. It depends neither on its raw data nor on the other checks that its
 * problems affect.
 */
function resultOf({ check, problems, causes }: ShownCheck): string {
  return JSON.stringify([
    { ...check, evidence: null },
    problems.map(({ problem }) => causeOf(problem)),
    causes
  ]);
}

/** Return the checks that have found problems in the order of fixing, then the others, the worst first. */
function shownChecks(diagnosis: Diagnosis | null): ShownCheck[] {
  if (diagnosis === null) {
    return [];
  }
  const { links, problems } = diagnosis;
  const fixing = problems.map(({ check }) => check);
  const rank = (check: Check): number => {
    const place = fixing.indexOf(check.id);
    return place >= 0 ? place : fixing.length + ORDER.indexOf(check.status);
  };
  return [...links]
    .sort((one, other) => rank(one) - rank(other))
    .map(check => ({
      check,
      problems: problems
        .filter(problem => problem.check === check.id)
        .map(problem => ({ problem, affects: problem.affects.map(id => titleOf(diagnosis, id)) })),
      causes: [
        ...new Set(
          problems
            .filter(({ affects }) => affects.includes(check.id))
            .map(cause => titleOf(diagnosis, cause.check))
        )
      ]
    }));
}

/** The statuses in the order of display. */
const ORDER: readonly Check['status'][] = ['broken', 'warning', 'unknown', 'ok', 'skipped'];

/** Returns a text of a diagnosis in the language of the page. */
export type Translate = (text: string) => string;

/** Return the checks. If several were skipped, one stands for them, with their reasons by title as evidence. */
export function mergeSkipped(
  trans: TranslationBundle,
  checks: readonly ShownCheck[],
  translate: Translate
): readonly ShownCheck[] {
  const skipped = checks.filter(({ check }) => check.status === 'skipped');
  const [first] = skipped;
  if (first === undefined || skipped.length === 1) {
    return checks;
  }
  const evidence = Object.fromEntries(
    skipped.map(({ check: { title, found } }) => [translate(title), translate(found)])
  );
  const found = [...new Set(Object.values(evidence))].join(', ');
  const check = { ...first.check, title: trans._n('%1 check', '%1 checks', skipped.length), found, evidence };
  return [...checks.filter(shown => !skipped.includes(shown)), { ...first, check }];
}

/** Return the rank of the worst status in a list of checks, the lowest for broken checks. */
export function worstRank(checks: readonly ShownCheck[]): number {
  return Math.min(ORDER.length, ...checks.map(({ check }) => ORDER.indexOf(check.status)));
}

/**
 * Return the sentences that follow a fix's command, `after`, without the full stop of the sentence with the
 * command, because they are shown on a separate line.
 */
export function textAfterCommand(after: string): string {
  return after.replace(/^[.。]\s*/, '');
}

/** Return a diagnosis, with its texts in English, as JSON in the format of `gpuwidget doctor --json`, which `--diff` can read. */
export function toJson(diagnosis: TranslatedDiagnosis): string {
  return `${JSON.stringify({ ...diagnosis, texts: undefined }, null, 2)}\n`;
}
