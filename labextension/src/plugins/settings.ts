import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Notification, showErrorMessage } from '@jupyterlab/apputils';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { loadSettings } from '../model/settings/loadSettings';
import { DOMAIN, IGpuSettings } from '../tokens';

/** JupyterLab cuts off a notification after this many characters. */
const NOTIFICATION_LENGTH = 140;

/** The user's settings. */
export const settings: JupyterFrontEndPlugin<IGpuSettings> = {
  id: 'jupyterlab-gpuwidget:settings',
  description: 'The settings of the GPU views.',
  autoStart: true,
  provides: IGpuSettings,
  optional: [ISettingRegistry, ITranslator],
  activate: (
    { serviceManager }: JupyterFrontEnd,
    registry: ISettingRegistry | null,
    translator: ITranslator | null
  ) => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const show = (sentence: string): void => {
      void showErrorMessage(trans.__('GPU Settings'), sentence);
    };
    const notify = (sentence: string): void => {
      const showAll = {
        label: trans.__('Show All'),
        callback: () => {
          show(sentence);
        }
      };
      const actions = sentence.length > NOTIFICATION_LENGTH ? [showAll] : [];
      Notification.warning(sentence, { autoClose: false, actions });
    };
    // Without a settings registry, JupyterLab has no theme, so the text of a notification would be white on
    // white.
    const warn = registry === null ? show : notify;
    return loadSettings({ registry, manager: serviceManager.settings, trans, warn });
  }
};
