import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { addHolderCommands } from '../holders/commands';
import { JupyterActions } from '../holders/jupyterActions';
import { HolderMenu } from '../holders/menu';
import { Outcome } from '../holders/outcome';
import type { HolderPorts } from '../holders/ports';
import type { GpuMonitor } from '../stream/gpuMonitor';
import { DOMAIN, IHolders, IMonitor } from '../tokens';

/** What can be done about those that hold memory. */
export const holders: JupyterFrontEndPlugin<HolderPorts> = {
  id: 'jupyterlab-gpuwidget:holders',
  description: 'Go to, free and shut down the notebooks that hold GPU memory.',
  autoStart: true,
  provides: IHolders,
  requires: [IMonitor],
  optional: [ICommandPalette, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    source: GpuMonitor,
    palette: ICommandPalette | null,
    translator: ITranslator | null
  ) => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const outcome = new Outcome();
    const actions = new JupyterActions(app, source.model, outcome, trans);
    addHolderCommands(app, actions, source.kernels, trans, palette);
    const menu = new HolderMenu(app.commands);
    return {
      open: (target, button) => {
        menu.open(target, button);
      },
      goTo: target => void actions.goTo(target),
      outcome
    };
  }
};
