import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';
import { IStateDB } from '@jupyterlab/statedb';

import { Cells } from '../cells/cells';
import { NotebookCells } from '../cells/jupyter';
import { Preferences } from '../cells/preferences';
import { Reader } from '../cells/reader';
import { Runs } from '../cells/runs';
import type { GpuMonitor } from '../stream/gpuMonitor';
import { stateStore } from '../stateStore';
import { BROWSER_CLOCK } from '../clock';
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
    source: GpuMonitor,
    tracker: INotebookTracker | null,
    database: IStateDB | null
  ) => {
    const preferences = new Preferences(stateStore(database, cells.id));
    const runs = new Runs();
    const made = new Cells(source, new Reader(BROWSER_CLOCK), runs, preferences, BROWSER_CLOCK);
    if (tracker !== null) {
      new NotebookCells(tracker, app.shell, made, runs, BROWSER_CLOCK);
    }
    return made;
  }
};
