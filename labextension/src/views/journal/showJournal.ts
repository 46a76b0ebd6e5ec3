import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { INotebookTracker } from '@jupyterlab/notebook';
import type { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import type { TranslationBundle } from '@jupyterlab/translation';

import { announce } from './announce';
import { JournalSection } from './journalSection';
import { RunActions } from './runActions';
import type { Clock } from '../../model/clock';
import { JournalModel, type JournalSource } from '../../model/cells/journalModel';
import { OpenNotebooks, type RevealCell } from '../../model/cells/journalNotebooks';
import { KnownRuns, type RunStorage } from '../../model/cells/knownRuns';
import type { ICellRuns, IGpuPanel, IGpuSettings, IHolderActions, IMonitor } from '../../tokens';
import type { notify } from '../../ui/notification';
import type { JournalRun } from '../../wire/wire';

/** The place of the section: directly below the list of cells. */
const SECTION_RANK = 1001;

/**
 * The dependencies of the journal's view. Functions of modules that are loaded at the start are among them: importing
 * such a module would make the scripts that are loaded at the start larger.
 */
export interface JournalOptions {
  readonly app: JupyterFrontEnd;
  readonly trans: TranslationBundle;
  /** The language tag of the page, such as `zh-CN`. */
  readonly locale: string;
  readonly source: JournalSource;
  readonly clock: Clock;
  readonly reveal: RevealCell;
  readonly notify: typeof notify;
  readonly monitor: IMonitor;
  readonly cells: ICellRuns;
  readonly panel: IGpuPanel;
  readonly settings: IGpuSettings;
  readonly holders: IHolderActions;
  readonly tracker: INotebookTracker | null;
  readonly renderers: IRenderMimeRegistry | null;
}

/** Show the runs of the journal: in the panel, and as notifications. */
export function showJournal(options: JournalOptions): void {
  const { app, trans, locale, source, clock, reveal, notify } = options;
  const { monitor, cells, panel, settings, holders, tracker, renderers } = options;
  const epoch = (): number => Date.now() / 1000;
  const notebooks = new OpenNotebooks(tracker, app, monitor.activities, reveal);
  // On a JupyterHub, the servers of one user have the same origin.
  const key = `jupyterlab-gpuwidget:runs:${app.serviceManager.serverSettings.baseUrl}`;
  const known = new KnownRuns(browserStorage(), key, epoch);
  const model = new JournalModel(source, notebooks, known, clock, epoch);
  const actions = new RunActions({ trans, source, model, notebooks, message: holders.message, renderers });
  const section = new JournalSection({
    ...{ trans, locale, model, actions, notebooks, cells, monitor, settings },
    panelState: panel.panelState
  });
  panel.addSection(section, { rank: SECTION_RANK });
  let runs = cells.runs;
  const share = (): void => {
    const { active } = notebooks;
    if (active !== null) {
      cells.setJournal(active.key, model.notebookJournal);
    }
  };
  model.changed.connect(share);
  cells.changed.connect(() => {
    share();
    // The outputs have other reports than before.
    if (cells.runs !== runs) {
      runs = cells.runs;
      model.update();
    }
  });
  const isListed = (run: JournalRun): boolean =>
    section.isVisible && model.missing.some(each => each.run === run);
  model.news.connect((_, news) => {
    announce({ trans, locale, actions, notify, isListed }, news, epoch());
  });
  let link = monitor.connectionState;
  monitor.changed.connect(() => {
    if (link === 'lost' && monitor.connectionState === 'open') {
      model.reconnect();
    }
    link = monitor.connectionState === 'opening' ? link : monitor.connectionState;
  });
  notebooks.connect(model);
  model.refresh();
}

/** Return the browser's storage; null if the browser blocks it. */
function browserStorage(): RunStorage | null {
  try {
    return window.localStorage;
  } catch {
    return null;
  }
}
