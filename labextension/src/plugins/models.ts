import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { PageConfig } from '@jupyterlab/coreutils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { BROWSER_CLOCK } from '../model/clock';
import { ActiveKernel } from '../model/kernel/activeKernel';
import { ActiveNotebookTracker } from '../model/kernel/activeNotebook';
import { Connection } from '../model/stream/connection';
import { GpuMonitor } from '../model/stream/gpuMonitor';
import { ServerClient } from '../model/server/serverClient';
import { StreamModel } from '../model/stream/streamModel';
import { DOMAIN, IClusterModel, IMonitor, ICellRuns } from '../tokens';
import { translateUnknown } from '../model/format';
import { ClusterModel } from '../model/cluster/clusterModel';
import { CellRuns } from '../model/cells/cellRuns';
import { CellTracker } from '../model/cells/cellTracker';
import { ReportReader } from '../model/cells/reportReader';

/** The models of live data that all views display. */
export const monitor: JupyterFrontEndPlugin<IMonitor> = {
  id: 'jupyterlab-gpuwidget:monitor',
  description: 'Live GPU samples and the default torch device.',
  autoStart: true,
  provides: IMonitor,
  optional: [INotebookTracker, ITranslator],
  activate: (app: JupyterFrontEnd, tracker: INotebookTracker | null, translator: ITranslator | null) => {
    // Set the translation of "unknown" here: every view requires this plugin, so none has used the text yet.
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    translateUnknown(trans);
    const model = new StreamModel();
    const server = new ServerClient(app.serviceManager.serverSettings, trans, () => model.seconds);
    const connection = new Connection(server, BROWSER_CLOCK, Math.random);
    const kernels = new ActiveKernel(BROWSER_CLOCK);
    const monitor = new GpuMonitor(model, kernels, connection, BROWSER_CLOCK);
    if (tracker !== null) {
      const { languageCode } = translator ?? nullTranslator;
      new ActiveNotebookTracker(tracker, kernels, monitor.activities, languageCode);
    }
    return monitor;
  }
};

/** The newest snapshot of the cluster. */
export const clusterModel: JupyterFrontEndPlugin<IClusterModel> = {
  id: 'jupyterlab-gpuwidget:cluster-model',
  description: 'The newest values of the cluster’s GPUs.',
  autoStart: true,
  provides: IClusterModel,
  optional: [ITranslator],
  activate: ({ serviceManager }: JupyterFrontEnd, translator: ITranslator | null) => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    // The page config is known before a stream is open, so a layout can be restored without waiting for it.
    return PageConfig.getOption('gpuwidgetCluster') !== 'true'
      ? null // No Prometheus is configured.
      : new ClusterModel(new ServerClient(serviceManager.serverSettings, trans), BROWSER_CLOCK);
  }
};

/** The runs of the active notebook's cells. */
export const cells: JupyterFrontEndPlugin<ICellRuns> = {
  id: 'jupyterlab-gpuwidget:cells',
  description: 'The runs of the active notebook’s cells.',
  autoStart: true,
  provides: ICellRuns,
  requires: [IMonitor],
  optional: [INotebookTracker],
  activate: ({ shell }: JupyterFrontEnd, monitor: IMonitor, tracker: INotebookTracker | null) => {
    const runs = new CellRuns(monitor, new ReportReader(), BROWSER_CLOCK);
    if (tracker !== null) {
      new CellTracker(tracker, shell, runs, monitor.activities, BROWSER_CLOCK);
    }
    return runs;
  }
};
