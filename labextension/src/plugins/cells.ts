import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';

import { CellRuns, RunningCells } from '../cells/cellRuns';
import { CellTracker } from '../cells/cellTracker';
import { ReportReader } from '../cells/reportReader';
import { BROWSER_CLOCK } from '../clock';
import { ICellRuns, IMonitor } from '../tokens';

/** The runs of the active notebook's cells. */
export const cells: JupyterFrontEndPlugin<ICellRuns> = {
  id: 'jupyterlab-gpuwidget:cells',
  description: 'The runs of the active notebook’s cells and what they did to the GPUs.',
  autoStart: true,
  provides: ICellRuns,
  requires: [IMonitor],
  optional: [INotebookTracker],
  activate: ({ shell }: JupyterFrontEnd, monitor: IMonitor, tracker: INotebookTracker | null) => {
    const runningCells = new RunningCells();
    const runs = new CellRuns(monitor, new ReportReader(BROWSER_CLOCK), runningCells, BROWSER_CLOCK);
    if (tracker !== null) {
      new CellTracker(tracker, shell, runs, runningCells, BROWSER_CLOCK);
    }
    return runs;
  }
};
