import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { Alerts, type Memory } from '../alerts/alerts';
import type { AlertKind } from '../alerts/rules';
import { alertText } from '../alerts/words';
import { read, SETTINGS } from '../settings';
import type { Monitor } from '../stream/monitor';
import { CommandIds, DOMAIN, IMonitor } from '../tokens';

const KEY = 'gpuwidget:alerts';
/** What needs somebody soon; the others are only to be known. */
const GRAVE: ReadonlySet<AlertKind> = new Set(['lost', 'errors', 'xid']);

/** Of this tab, so that a reload repeats nothing; where the browser keeps nothing for a page, it does. */
const SESSION: Memory = {
  recall: () => {
    try {
      return window.sessionStorage.getItem(KEY);
    } catch {
      return null;
    }
  },
  keep: text => {
    try {
      window.sessionStorage.setItem(KEY, text);
    } catch {
      // What was told is known until the next reload.
    }
  }
};

/** Notifications of what the user wants to be told. */
export const alerts: JupyterFrontEndPlugin<void> = {
  id: 'jupyterlab-gpuwidget:alerts',
  description: 'Notifications of lost GPUs, errors and limits, once each.',
  autoStart: true,
  requires: [IMonitor, ISettingRegistry],
  optional: [ITranslator],
  activate: async (
    app: JupyterFrontEnd,
    source: Monitor,
    registry: ISettingRegistry,
    translator: ITranslator | null
  ) => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const settings = await registry.load(SETTINGS);
    const found = new Alerts(SESSION);
    let wanted = read(settings).alerts;
    const listen = (): void => {
      // A page that is in nobody's sight costs the server nothing; what happened meanwhile is told when it is seen.
      source.overhear(wanted.when === 'always' && document.visibilityState === 'visible');
    };
    settings.changed.connect(changed => {
      wanted = read(changed).alerts;
      listen();
    });
    document.addEventListener('visibilitychange', listen);
    source.changed.connect(({ model }) => {
      const { sample, server } = model;
      if (sample === null) {
        return;
      }
      for (const alert of found.take(sample, server?.interval ?? 0, wanted)) {
        const tell = GRAVE.has(alert.kind) ? Notification.error : Notification.warning;
        tell(alertText(trans, alert, sample.time), {
          autoClose: false,
          actions: [
            { label: trans.__('Show GPUs'), callback: () => void app.commands.execute(CommandIds.show) }
          ]
        });
      }
    });
    listen();
  }
};
