import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { HolderActions } from '../memory/holderActions';
import { addHolderCommands, openHolderMenu } from '../memory/holderCommands';
import { StatusMessage } from '../memory/statusMessage';
import { DOMAIN, IHolderActions, IMonitor } from '../tokens';

/** The actions on holders of GPU memory. */
export const memory: JupyterFrontEndPlugin<IHolderActions> = {
  id: 'jupyterlab-gpuwidget:memory',
  description: 'Go to, free and shut down the notebooks that hold GPU memory.',
  autoStart: true,
  provides: IHolderActions,
  requires: [IMonitor],
  optional: [ICommandPalette, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    monitor: IMonitor,
    palette: ICommandPalette | null,
    translator: ITranslator | null
  ) => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const message = new StatusMessage();
    const actions = new HolderActions(app, monitor.model, message, trans);
    addHolderCommands(app, actions, monitor.kernels, trans, palette);
    return {
      message,
      openMenu: (target, button) => {
        openHolderMenu(app.commands, target, button);
      },
      goTo: target => void actions.goTo(target)
    };
  }
};
