import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Notification as LabNotification } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import type { LongCellNotifier } from '../model/cells/longCells';
import { DOMAIN, ICellRuns, IGpuSettings } from '../tokens';

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
    const before = settings.current.longCells;
    let loaded: Promise<LongCellNotifier> | null = null;
    /** Call `action` if the user has turned notifications on. By default they are off, and nothing is loaded. */
    const notifier = (action: (notifier: LongCellNotifier) => void): void => {
      if (loaded === null && !settings.current.longCells.notify) {
        return;
      }
      loaded ??= import(/* webpackChunkName: "longCells" */ '../ui/browserNotifications').then(
        ({ LongCellNotifier, BROWSER }) => new LongCellNotifier(trans, BROWSER, before, warn)
      );
      loaded.then(action, () => {
        loaded = null; // The server did not answer.
      });
    };
    const configure = (): void => {
      notifier(each => {
        each.configure(settings.current.longCells);
      });
    };
    settings.changed.connect(configure);
    configure();
    runs.finished.connect((_, cell) => {
      notifier(each => {
        each.onFinished(cell);
      });
    });
  }
};
