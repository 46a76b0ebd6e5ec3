import type { TranslationBundle } from '@jupyterlab/translation';

import { endOf } from '../../model/cells/journal';
import type { Doubt } from '../../model/cells/cardPlacer';
import { visibleText } from '../../model/cells/report';
import { duration, otherDay, shortMemory, twoDigits } from '../../model/format';
import type { JournalRun } from '../../wire/wire';

/** A longer name would leave no room for what happened. */
const MAX_NAME_LENGTH = 40;

/** The outcomes of runs. */
export type Outcome = 'finished' | 'failed' | 'interrupted' | 'died';

/** Return what has become of a run. */
export function outcomeOf({ state, status }: JournalRun): Outcome {
  if (state === 'died' || status === 'died') {
    return 'died';
  }
  return status === 'error' ? 'failed' : status === 'interrupted' ? 'interrupted' : 'finished';
}

/** Return a run's execution count and its label, or the first line of its code, such as `[7] train`. */
export function runTitle({ execution_count: count, label }: JournalRun, code: string): string {
  const name = (label === null ? '' : visibleText(label)) || code;
  const short = name.length > MAX_NAME_LENGTH ? `${name.slice(0, MAX_NAME_LENGTH - 1)}…` : name;
  return [count === null ? '' : `[${String(count)}]`, short].filter(part => part !== '').join(' ');
}

/** Return a sentence about when and how a run ended. `now` is in epoch seconds. */
export function outcomeText(
  trans: TranslationBundle,
  run: JournalRun,
  name: string,
  now: number,
  locale: string
): string {
  const end = endOf(run);
  const day = otherDay(end, now, locale);
  const then = new Date(end * 1000);
  const time = [then.getHours(), then.getMinutes()].map(twoDigits).join(':');
  switch (outcomeOf(run)) {
    case 'died':
      return day === '' ? trans.__('%1 died at %2', name, time) : trans.__('%1 died on %2', name, day);
    case 'failed':
      return day === '' ? trans.__('%1 failed at %2', name, time) : trans.__('%1 failed on %2', name, day);
    case 'interrupted':
      return day === ''
        ? trans.__('%1 was interrupted at %2', name, time)
        : trans.__('%1 was interrupted on %2', name, day);
    case 'finished':
      return day === ''
        ? trans.__('%1 finished at %2', name, time)
        : trans.__('%1 finished on %2', name, day);
  }
}

/** Return a run's time and peak memory, such as `4 h 10 min · peak 61 GiB`. */
export function figuresText(trans: TranslationBundle, run: JournalRun): string {
  return [duration(run.seconds), peakText(trans, run)].filter(part => part !== '').join(' · ');
}

/** Return a run's peak memory, such as `peak 61 GiB`; empty if unknown. */
export function peakText(trans: TranslationBundle, { peak, peak_kind: kind }: JournalRun): string {
  const size = shortMemory(peak);
  const texts = {
    torch: trans.__('peak %1', size),
    process: trans.__('sampled peak %1', size),
    device: trans.__('sampled peak of the whole GPU %1', size)
  };
  return peak === null ? '' : texts[kind ?? 'process'];
}

/** Return why a run died or was interrupted, and whether that is certain; empty if there is no reason. */
export function causeText({ death }: JournalRun): string {
  return death?.text ?? '';
}

/** Return why the user is asked before a card is put under its cell. */
export function doubtText(trans: TranslationBundle, doubt: Doubt): string {
  switch (doubt) {
    case 'edited':
      return trans.__('The cell’s code has changed since this run, so the card would be below other code.');
    case 'run-again':
      return trans.__('The cell has been run again since, so the card would be below a later run’s outputs.');
    case 'edited-and-run-again':
      return trans.__(
        'The cell’s code has changed since this run, and it has been run again, so the card would be below another run’s outputs.'
      );
  }
}
