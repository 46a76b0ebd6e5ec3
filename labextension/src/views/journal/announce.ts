import type { Notification } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';

import { causeText, figuresText, outcomeOf, outcomeText } from './journalMessages';
import type { RunActions } from './runActions';
import type { RunNews } from '../../model/cells/journalModel';
import type { notify } from '../../ui/notification';
import type { JournalRun } from '../../wire/wire';

/** At most this many runs have a notification each. */
const MAX_NOTIFICATIONS = 3;

/** For how long a notification is shown if the panel lists the run, whose row it would cover. */
const LISTED_MS = 15_000;

/** The types of the notifications. */
const TYPES = { finished: 'success', failed: 'error', interrupted: 'info', died: 'error' } as const;

/** The dependencies of notifications. */
export interface AnnounceOptions {
  readonly trans: TranslationBundle;
  readonly locale: string;
  readonly actions: Pick<RunActions, 'show' | 'put' | 'showCard'>;
  readonly notify: typeof notify;
  /** Whether the panel lists a run. */
  readonly isListed: (run: JournalRun) => boolean;
}

/** Show notifications about runs that have ended, the newest first. `now` is in epoch seconds. */
export function announce(
  { trans, locale, actions, notify, isListed }: AnnounceOptions,
  news: readonly RunNews[],
  now: number
): void {
  const heading = trans.__('Watched cells');
  for (const { run, name } of news.slice(0, MAX_NOTIFICATIONS)) {
    const count = run.execution_count === null ? '' : ` [${String(run.execution_count)}]`;
    // A long text is cut, so the cause is before the figures.
    const parts = [
      outcomeText(trans, run, name + count, now, locale),
      causeText(run),
      figuresText(trans, run)
    ];
    const show: Notification.IAction = {
      label: trans.__('Show'),
      caption: trans.__('Go to the cell'),
      callback: () => void actions.show(run)
    };
    const put: Notification.IAction = {
      label: trans.__('Put the card under its cell'),
      callback: () => void actions.put(run)
    };
    const showCard: Notification.IAction = {
      label: trans.__('Show card'),
      callback: () => void actions.showCard(run)
    };
    const text = parts.filter(part => part !== '').join(' · ');
    const possible = run.path === null ? [showCard] : [show, put];
    notify(trans, heading, text, TYPES[outcomeOf(run)], isListed(run) ? LISTED_MS : false, possible);
  }
  const others = news.length - MAX_NOTIFICATIONS;
  if (others > 0) {
    const text = trans._n('%1 more watched run has ended.', '%1 more watched runs have ended.', others);
    notify(trans, heading, text, 'info', false);
  }
}
