import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { BROWSER_CLOCK } from '../clock';
import { ActiveKernel } from '../kernel/activeKernel';
import { ActiveNotebookTracker } from '../kernel/activeNotebook';
import { Connection } from '../stream/connection';
import { GpuMonitor } from '../stream/gpuMonitor';
import { ServerApi } from '../stream/serverApi';
import { StreamModel } from '../stream/streamModel';
import { DOMAIN, IMonitor } from '../tokens';
import { translateUnknown } from '../ui/format';

/** The live data that all views display. */
export const monitor: JupyterFrontEndPlugin<IMonitor> = {
  id: 'jupyterlab-gpuwidget:monitor',
  description: 'Live GPU samples of the server and the default torch device of the notebook in front.',
  autoStart: true,
  provides: IMonitor,
  optional: [INotebookTracker, ITranslator],
  activate: (app: JupyterFrontEnd, tracker: INotebookTracker | null, translator: ITranslator | null) => {
    // Every view requires this plugin, so no view has created a text yet.
    translateUnknown((translator ?? nullTranslator).load(DOMAIN));
    const model = new StreamModel();
    const server = new ServerApi(app.serviceManager.serverSettings, () => model.seconds);
    const connection = new Connection(server, BROWSER_CLOCK, Math.random);
    const kernels = new ActiveKernel(BROWSER_CLOCK);
    if (tracker !== null) {
      const notebooks = new ActiveNotebookTracker(tracker, kernels);
      connection.received.connect((_, message) => {
        notebooks.receive(message);
      });
    }
    return new GpuMonitor(model, kernels, connection, BROWSER_CLOCK);
  }
};
