import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { alertText, type AlertKind } from '../alerts/alertRules';
import { AlertTracker, type AlertStore } from '../alerts/alertTracker';
import { CommandIds, DOMAIN, IGpuSettings, IMonitor } from '../tokens';

const KEY = 'gpuwidget:alerts';
/** The kinds of alerts that require action soon. They are shown as errors, all other kinds as warnings. */
const SEVERE: ReadonlySet<AlertKind> = new Set(['lost', 'errors', 'xid']);

/**
 * Stores the raised alerts in the session storage of this browser tab. If that is unavailable, alerts are
 * raised again after a reload.
 */
const SESSION_STORE: AlertStore = {
  load: () => {
    try {
      return window.sessionStorage.getItem(KEY);
    } catch {
      return null;
    }
  },
  save: text => {
    try {
      window.sessionStorage.setItem(KEY, text);
    } catch {
      // The browser does not allow this page to store data.
    }
  }
};

/** Notifications about GPUs. */
export const alerts: JupyterFrontEndPlugin<void> = {
  id: 'jupyterlab-gpuwidget:alerts',
  description: 'Notifications of lost GPUs, errors and limits, once each.',
  autoStart: true,
  requires: [IMonitor, IGpuSettings],
  optional: [ITranslator],
  activate: (
    app: JupyterFrontEnd,
    monitor: IMonitor,
    settings: IGpuSettings,
    translator: ITranslator | null
  ) => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const tracker = new AlertTracker(SESSION_STORE, settings.current.alerts);
    const updateMonitor = (): void => {
      // While the page is hidden, it receives no samples. Alerts for events in that time are raised when the
      // page is visible again.
      monitor.setBackground(
        settings.current.alerts.when === 'always' && document.visibilityState === 'visible'
      );
    };
    settings.changed.connect(() => {
      tracker.configure(settings.current.alerts);
      updateMonitor();
    });
    document.addEventListener('visibilitychange', updateMonitor);
    monitor.changed.connect(({ model }) => {
      const { sample, server } = model;
      if (sample === null) {
        return;
      }
      for (const alert of tracker.take(sample, server?.interval ?? 0)) {
        const notify = SEVERE.has(alert.kind) ? Notification.error : Notification.warning;
        notify(alertText(trans, alert, sample.time), {
          autoClose: false,
          actions: [
            { label: trans.__('Show GPUs'), callback: () => void app.commands.execute(CommandIds.show) }
          ]
        });
      }
    });
    updateMonitor();
  }
};
