import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { panel } from './panel';
import { read } from '../settings';
import { StatusItem } from '../status/item';
import type { Monitor } from '../stream/monitor';
import { BROWSER } from '../timers';
import { CommandIds, DOMAIN, IMonitor } from '../tokens';

const RANK = 40;
/** Left of the kernel's own indicator, which stands at the end of Notebook 7's menu bar. */
const MENU_RANK = 9000;

/** The notebook's GPU and memory in the status bar; Notebook 7 has none, there it is in the line of the menus. */
export const statusBar: JupyterFrontEndPlugin<void> = {
  id: 'jupyterlab-gpuwidget:status-bar',
  description: 'The GPU and the memory of the notebook in front in the status bar.',
  autoStart: true,
  requires: [IMonitor, ISettingRegistry],
  optional: [IStatusBar, ITranslator],
  activate: async (
    app: JupyterFrontEnd,
    source: Monitor,
    registry: ISettingRegistry,
    bar: IStatusBar | null,
    translator: ITranslator | null
  ) => {
    const inMenu = bar === null && app.name === 'Jupyter Notebook';
    if (bar === null && !inMenu) {
      return;
    }
    const settings = await registry.load(panel.id);
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const item = new StatusItem(trans, source.kernels, BROWSER, () => {
      void app.commands.execute(CommandIds.show);
    });
    if (inMenu) {
      item.hide();
      item.activeChanged.connect(() => {
        item.setHidden(!item.active);
      });
      app.shell.add(item, 'menu', { rank: MENU_RANK });
    } else {
      bar?.registerStatusItem(statusBar.id, {
        item,
        align: 'right',
        rank: RANK,
        isActive: () => item.active,
        activeStateChanged: item.activeChanged
      });
    }
    item.want(read(settings).show.statusBar);
    settings.changed.connect(changed => {
      item.want(read(changed).show.statusBar);
    });
  }
};
