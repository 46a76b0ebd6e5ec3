import { ILabShell, type JupyterFrontEnd, type JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { BROWSER_CLOCK } from '../model/clock';
import { NewestSample } from '../model/stream/newestSample';
import { StatusItem } from '../views/status/statusItem';
import { StatusModel } from '../views/status/statusModel';
import { ServerClient } from '../model/server/serverClient';
import { CommandIds, DOMAIN, IGpuSettings, IMonitor } from '../tokens';

const RANK = 40;
/**
 * The rank of the item in Notebook 7's menu bar. It places the item left of the kernel status, which is at
 * the end.
 */
const MENU_RANK = 9000;

/**
 * The item with the active notebook's device and memory and its GPUs' utilization. It is in the status bar, or in
 * Notebook 7's menu bar, since Notebook 7 has no status bar.
 */
export const statusBar: JupyterFrontEndPlugin<void> = {
  id: 'jupyterlab-gpuwidget:status-bar',
  description: 'GPU memory and utilization in the status bar.',
  autoStart: true,
  requires: [IMonitor, IGpuSettings],
  optional: [ILabShell, IStatusBar, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    monitor: IMonitor,
    settings: IGpuSettings,
    labShell: ILabShell | null,
    bar: IStatusBar | null,
    translator: ITranslator | null
  ) => {
    if (bar === null && labShell !== null) {
      return; // The user has disabled JupyterLab's status bar.
    }
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const server = new ServerClient(app.serviceManager.serverSettings, trans);
    const newest = new NewestSample(server, monitor, BROWSER_CLOCK);
    const model = new StatusModel(trans, monitor.kernels, newest, BROWSER_CLOCK);
    const item = new StatusItem(
      trans,
      model,
      () => settings.current.statusBar,
      () => {
        void app.commands.execute(CommandIds.show);
      }
    );
    if (bar === null) {
      item.hide();
      model.activeChanged.connect(() => {
        item.setHidden(model.text === null);
      });
      app.shell.add(item, 'menu', { rank: MENU_RANK });
    } else {
      bar.registerStatusItem(statusBar.id, {
        item,
        align: 'right',
        rank: RANK,
        isActive: () => model.text !== null,
        activeStateChanged: model.activeChanged
      });
    }
    const update = (): void => {
      model.setWanted(settings.current.statusBar !== 'off', document.visibilityState === 'visible');
      item.update();
    };
    update();
    settings.changed.connect(update);
    document.addEventListener('visibilitychange', update);
    item.disposed.connect(() => {
      settings.changed.disconnect(update);
      document.removeEventListener('visibilitychange', update);
    });
  }
};
