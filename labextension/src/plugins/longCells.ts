import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Notification as LabNotification } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { LongCellNotifier, type BrowserNotifications } from '../model/cells/longCells';
import { DOMAIN, ICellRuns, IGpuSettings } from '../tokens';

const BROWSER: BrowserNotifications = {
  get isPageHidden() {
    return document.visibilityState === 'hidden';
  },
  get permission() {
    return 'Notification' in window ? Notification.permission : null;
  },
  requestPermission: () => Notification.requestPermission(),
  show: (title, body, tag, onClick) => {
    const notification = new Notification(title, { body, tag });
    notification.onclick = () => {
      window.focus();
      onClick();
      notification.close();
    };
  }
};

/** Browser notifications about finished long cells. */
export const longCells: JupyterFrontEndPlugin<void> = {
  id: 'jupyterlab-gpuwidget:long-cells',
  description: 'Browser notifications about long cells.',
  autoStart: true,
  requires: [ICellRuns, IGpuSettings],
  optional: [ITranslator],
  activate: (_: JupyterFrontEnd, runs: ICellRuns, settings: IGpuSettings, translator: ITranslator | null) => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const warn = (sentence: string, retry: (() => void) | null): void => {
      const actions = retry === null ? [] : [{ label: trans.__('Allow…'), callback: retry }];
      LabNotification.warning(sentence, { autoClose: false, actions });
    };
    const notifier = new LongCellNotifier(trans, BROWSER, settings.current.longCells, warn);
    settings.changed.connect(() => {
      notifier.configure(settings.current.longCells);
    });
    runs.finished.connect((_, cell) => {
      notifier.onFinished(cell);
    });
  }
};
