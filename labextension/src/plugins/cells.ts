import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';
import { IStateDB } from '@jupyterlab/statedb';

import { Cells } from '../cells/cells';
import { NotebookCells } from '../cells/jupyter';
import { Preferences } from '../cells/preferences';
import { Reader } from '../cells/reader';
import { Runs } from '../cells/runs';
import type { Monitor } from '../stream/monitor';
import { storeIn } from '../store';
import { BROWSER } from '../timers';
import { ICells, IMonitor } from '../tokens';

/** What the cells of the notebook in front did, from the reports in its outputs. */
export const cells: JupyterFrontEndPlugin<Cells> = {
  id: 'jupyterlab-gpuwidget:cells',
  description: 'What the cells of the notebook in front did to the GPUs, and which one runs.',
  autoStart: true,
  provides: ICells,
  requires: [IMonitor],
  optional: [INotebookTracker, IStateDB],
  activate: (
    app: JupyterFrontEnd,
    source: Monitor,
    tracker: INotebookTracker | null,
    database: IStateDB | null
  ) => {
    const preferences = new Preferences(storeIn(database, cells.id));
    const runs = new Runs();
    const made = new Cells(source, new Reader(BROWSER), runs, preferences, BROWSER);
    if (tracker !== null) {
      new NotebookCells(tracker, app.shell, made, runs, BROWSER);
    }
    return made;
  }
};
