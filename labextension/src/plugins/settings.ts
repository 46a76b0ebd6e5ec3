import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { showErrorMessage } from '@jupyterlab/apputils';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { loadSettings } from '../model/settings/loadSettings';
import { DOMAIN, IGpuSettings } from '../tokens';
import { notify } from '../ui/notification';

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
    const heading = trans.__('GPU Settings');
    const warn = (sentence: string): void => {
      // Without a settings registry, JupyterLab has no theme, so the text of a notification would be white on
      // white.
      if (registry === null) {
        void showErrorMessage(heading, sentence);
      } else {
        notify(trans, heading, sentence, 'warning', false);
      }
    };
    return loadSettings({ registry, manager: serviceManager.settings, trans, warn });
  }
};
