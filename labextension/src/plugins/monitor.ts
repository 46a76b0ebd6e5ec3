import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { transformSettingsSchema } from '../settingsSchema';
import { ActiveKernel } from '../kernel/activeKernel';
import { ActiveNotebookTracker } from '../kernel/activeNotebook';
import { Connection } from '../stream/connection';
import { Model } from '../stream/model';
import { Monitor } from '../stream/monitor';
import { JupyterServer } from '../stream/server';
import { BROWSER } from '../timers';
import { DOMAIN, IMonitor } from '../tokens';
import { speak } from '../ui/format';

/** What everything else reads: the stream of samples and the kernel of the notebook in front. */
export const monitor: JupyterFrontEndPlugin<Monitor> = {
  id: 'jupyterlab-gpuwidget:monitor',
  description: 'Live GPU samples of the server and the default torch device of the notebook in front.',
  autoStart: true,
  provides: IMonitor,
  optional: [INotebookTracker, ISettingRegistry, ITranslator],
  activate: (
    _: JupyterFrontEnd,
    tracker: INotebookTracker | null,
    registry: ISettingRegistry | null,
    translator: ITranslator | null
  ) => {
    // All views lean on this plugin: none has written anything or loaded the settings yet.
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    speak(trans);
    if (registry !== null) {
      transformSettingsSchema(registry, trans, sentence => {
        Notification.warning(sentence, { autoClose: false });
      });
    }
    const model = new Model();
    const connection = new Connection(new JupyterServer(() => model.seconds), BROWSER, Math.random);
    const kernels = new ActiveKernel(BROWSER);
    if (tracker !== null) {
      const notebooks = new ActiveNotebookTracker(tracker, kernels);
      connection.received.connect((_, message) => {
        notebooks.receive(message);
      });
    }
    return new Monitor(model, kernels, connection, BROWSER);
  }
};
