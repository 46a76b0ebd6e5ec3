import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { TranslationBundle } from '@jupyterlab/translation';

import type { CellReport } from '../../model/cells/report';
import { historyLength, SERVER_HISTORY_S } from '../../model/history/dashboardState';
import { CommandIds, type ICellRuns } from '../../tokens';

/** Minimum time, in seconds, that the dashboard shows before and after a cell's run. */
const MIN_MARGIN_S = 5;
/** Fraction of a run's duration that the dashboard shows before and after it. */
const MARGIN_SHARE = 0.1;

type RunTime = Pick<CellReport, 'started' | 'duration'>;

/** Shows the times of runs in the dashboard. */
export class RunTimes {
  /** `hasPrometheus` is whether the dashboard can show more than the server's history. */
  constructor(
    private readonly trans: TranslationBundle,
    private readonly cells: Pick<ICellRuns, 'clockSkew'>,
    private readonly commands: Pick<JupyterFrontEnd['commands'], 'execute'>,
    private readonly hasPrometheus: boolean
  ) {}

  /** Open the dashboard with the time of a run. */
  show({ started, duration }: RunTime): void {
    if (started !== null) {
      const length = duration ?? 0;
      const margin = Math.max(MIN_MARGIN_S, MARGIN_SHARE * length);
      const from = this.cells.clockSkew.onServer(started);
      const zoom = { from: from - margin, to: from + length + margin };
      void this.commands.execute(CommandIds.dashboard, { state: { zoom } });
    }
  }

  /** Return why the time of a run can't be shown; null if it can. */
  problem({ started, duration }: RunTime): string | null {
    if (started === null) {
      return this.trans.__('The report does not contain the cell’s start time.');
    }
    const historySeconds = historyLength(this.hasPrometheus);
    const { clockSkew } = this.cells;
    const now = clockSkew.pageOnServer(Date.now() / 1000);
    if (clockSkew.onServer(started) + (duration ?? 0) >= now - historySeconds) {
      return null;
    }
    return historySeconds <= SERVER_HISTORY_S
      ? this.trans.__('The server stores only the last hour. A Prometheus server can store more.')
      : this.trans.__('The dashboard shows the last 30 days.');
  }
}
