import type { TranslationBundle } from '@jupyterlab/translation';

import type { FinishedCell } from './cellRuns';
import { parseReport, REPORT_MIME, type CellReport } from './report';
import type { Settings } from '../settings/settings';
import { duration, memory, UNKNOWN } from '../format';

/** The part of the browser that shows notifications. */
export interface BrowserNotifications {
  /** Whether the browser tab is hidden. */
  readonly isPageHidden: boolean;
  /** Whether the user allows notifications; null if this page cannot have any, for example without HTTPS. */
  readonly permission: NotificationPermission | null;
  /** Ask the user for the permission. */
  requestPermission(): Promise<NotificationPermission>;
  /** Show a notification. One with the same `tag` is replaced. */
  show(title: string, body: string, tag: string, onClick: () => void): void;
}

/** Sends a browser notification when a long cell has ended while the browser tab is hidden. */
export class LongCellNotifier {
  constructor(
    private readonly trans: TranslationBundle,
    private readonly browser: BrowserNotifications,
    private settings: Settings['longCells'],
    private readonly warn: (sentence: string, retry: (() => void) | null) => void
  ) {}

  /** Apply new settings. If the user has turned notifications on, ask the browser for the permission. */
  configure(settings: Settings['longCells']): void {
    const turnedOn = settings.notify && !this.settings.notify;
    this.settings = settings;
    if (turnedOn) {
      void this.askPermission();
    }
  }

  /** Send a notification about `cell` if the settings and the browser allow it. */
  onFinished(cell: FinishedCell): void {
    const { notify, seconds } = this.settings;
    const { isPageHidden, permission } = this.browser;
    if (!notify || !isPageHidden || cell.seconds < seconds || permission !== 'granted') {
      return;
    }
    const [title, body] = notificationTexts(this.trans, cell);
    // Two tabs with the same notebook send the same tag, so that only one notification is shown.
    this.browser.show(title, body, `gpuwidget ${cell.notebook} ${String(cell.started)}`, cell.reveal);
  }

  private async askPermission(): Promise<void> {
    const { browser, trans } = this;
    const permission =
      browser.permission === 'default' ? await browser.requestPermission() : browser.permission;
    if (permission === null) {
      this.warn(
        trans.__('This page cannot send browser notifications: browsers require HTTPS for them.'),
        null
      );
    } else if (permission === 'denied') {
      this.warn(
        trans.__(
          'The browser blocks notifications from this site. Allow them in the browser’s site settings.'
        ),
        null
      );
    } else if (permission === 'default') {
      // Some browsers show their question only after a click, and the user may have closed it.
      this.warn(trans.__('The browser does not allow notifications from this site yet.'), () => {
        void this.askPermission();
      });
    }
  }
}

/** Return the title and the body of the notification about a finished cell. */
export function notificationTexts(trans: TranslationBundle, cell: FinishedCell): [string, string] {
  const outputs = cell.outputs();
  const count = cell.executionCount === null ? '' : String(cell.executionCount);
  const failed = outputs.some(output => (output as { output_type?: unknown }).output_type === 'error');
  const title = cell.died
    ? trans.__('%1: the kernel died in cell [%2]', cell.notebook, count)
    : failed
      ? trans.__('%1: cell [%2] failed', cell.notebook, count)
      : trans.__('%1: cell [%2] finished', cell.notebook, count);
  return [title, `${duration(cell.seconds)} · ${peakText(trans, outputs)}`];
}

/** Return the peak memory of a cell from the reports in its outputs. */
function peakText(trans: TranslationBundle, outputs: readonly unknown[]): string {
  const reports = outputs.flatMap((output): CellReport[] => {
    const data = (output as { data?: Record<string, unknown> }).data;
    const report = data?.[REPORT_MIME] === undefined ? null : parseReport(data[REPORT_MIME]);
    return report === null ? [] : [report];
  });
  const peaks = reports.flatMap(({ peak, kind }) => (peak === null ? [] : [{ peak, kind }]));
  const highest = peaks.sort((one, other) => other.peak - one.peak)[0];
  if (highest !== undefined) {
    const peak = memory(highest.peak);
    return {
      torch: trans.__('peak GPU memory %1', peak),
      process: trans.__('sampled peak of the GPU memory %1', peak),
      device: trans.__('sampled peak of the whole GPU’s memory %1', peak)
    }[highest.kind];
  }
  if (reports.length === 0) {
    return trans.__('peak GPU memory %1 (the cell was not watched)', UNKNOWN);
  }
  return reports.every(({ gpus, hasGpus }) => gpus.length === 0 && hasGpus !== null)
    ? trans.__('no GPU used')
    : trans.__('peak GPU memory %1', UNKNOWN);
}
