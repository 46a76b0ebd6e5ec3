import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { PageConfig } from '@jupyterlab/coreutils';
import { ITranslator, nullTranslator, type TranslationBundle } from '@jupyterlab/translation';

import { alertText, type AlertKind } from '../model/alerts/alertRules';
import { AlertTracker, type AlertStore } from '../model/alerts/alertTracker';
import { liveValue } from '../model/freshness';
import { serverAlerts, ServerNotifications } from '../model/alerts/serverAlerts';
import { CommandIds, DOMAIN, HolderCommandIds, IGpuSettings, IMonitor } from '../tokens';

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

/** Return the actions of the notification of an idle holder. */
function holderActions(
  commands: JupyterFrontEnd['commands'],
  trans: TranslationBundle,
  kernel: string
): Notification.IAction[] {
  return [
    {
      label: trans.__('Free cache'),
      caption: trans.__(
        'Release the memory that PyTorch has cached but does not use (torch.cuda.empty_cache())'
      ),
      callback: () => void commands.execute(HolderCommandIds.freeCache, { kernel })
    },
    {
      label: trans.__('Shut down…'),
      caption: trans.__('Shut down the kernel, after a confirmation that lists what you will lose'),
      callback: () => void commands.execute(HolderCommandIds.confirmShutDown, { kernel })
    }
  ];
}

/** Notifications about GPUs. */
export const alerts: JupyterFrontEndPlugin<void> = {
  id: 'jupyterlab-gpuwidget:alerts',
  description: 'Notifications about GPUs, idle notebooks and Slurm jobs.',
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
    const notifications = new ServerNotifications(
      ({ kind, id, text }) => {
        const actions = kind === 'idle' ? holderActions(app.commands, trans, id) : [];
        return Notification.warning(text, { autoClose: false, actions });
      },
      notification => {
        Notification.dismiss(notification);
      }
    );
    // The administrator has turned on notifications about this server, so listen even if no view is visible.
    const serverNotifies = PageConfig.getOption('gpuwidgetNotifications') === 'true';
    const updateMonitor = (): void => {
      // While the page is hidden, it receives no samples. Alerts for events in that time are raised when the
      // page is visible again.
      const { when } = settings.current.alerts;
      const wanted = when === 'always' || (when !== 'never' && serverNotifies);
      monitor.setBackground(tracker, wanted && document.visibilityState === 'visible');
    };
    settings.changed.connect(() => {
      tracker.configure(settings.current.alerts);
      updateMonitor();
    });
    document.addEventListener('visibilitychange', updateMonitor);
    monitor.changed.connect(() => {
      const data = liveValue(monitor.data);
      if (data === null) {
        return; // Alerts are about the present.
      }
      const { sample, server, usage } = data;
      if (usage !== null) {
        const alerts = serverAlerts(trans, usage, sample.time);
        notifications.update(alerts, tracker.takeServerAlerts(alerts));
      }
      for (const alert of tracker.take(sample, server?.interval ?? 0, monitor.hasOtherUsers(tracker))) {
        const show = SEVERE.has(alert.kind) ? Notification.error : Notification.warning;
        const notify = (text: string): void => {
          show(text, {
            autoClose: false,
            actions: [
              { label: trans.__('Show GPUs'), callback: () => void app.commands.execute(CommandIds.show) }
            ]
          });
        };
        const text = alertText(trans, alert, sample.time);
        if (alert.kind === 'xid') {
          // Without an answer, the server has stopped, or has another version since the page was loaded.
          import(/* webpackChunkName: "xids" */ '../model/alerts/xidText').then(
            ({ xidAlertText }) => {
              notify(xidAlertText(trans, alert));
            },
            () => {
              notify(text);
            }
          );
        } else {
          notify(text);
        }
      }
    });
    updateMonitor();
  }
};
