import type { TranslationBundle } from '@jupyterlab/translation';

import type { TranslatedDiagnosis } from '../../wire/kernelReply';
import type { Check, Diagnosis, Problem } from '../../wire/wire';
import { causeOf, titleOf } from './doctorSummary';

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
