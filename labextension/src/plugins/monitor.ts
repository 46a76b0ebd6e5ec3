import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';

import { Kernels } from '../kernel/kernels';
import { Notebooks } from '../kernel/notebooks';
import { Connection } from '../stream/connection';
import { Model } from '../stream/model';
import { Monitor } from '../stream/monitor';
import { JupyterServer } from '../stream/server';
import { BROWSER } from '../timers';
import { IMonitor } from '../tokens';

/** What everything else reads: the stream of samples and the kernel of the notebook in front. */
export const monitor: JupyterFrontEndPlugin<Monitor> = {
  id: 'jupyterlab-gpuwidget:monitor',
  description: 'Live GPU samples of the server and the default torch device of the notebook in front.',
  autoStart: true,
  provides: IMonitor,
  optional: [INotebookTracker],
  activate: (_: JupyterFrontEnd, tracker: INotebookTracker | null) => {
    const model = new Model();
    const connection = new Connection(new JupyterServer(() => model.seconds), BROWSER, Math.random);
    const kernels = new Kernels(BROWSER);
    if (tracker !== null) {
      new Notebooks(tracker, kernels);
    }
    return new Monitor(model, kernels, connection, BROWSER);
  }
};
