import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator, type TranslationBundle } from '@jupyterlab/translation';
import { MenuSvg } from '@jupyterlab/ui-components';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import { HolderActions, StatusMessage } from '../memory/holderActions';
import { DOMAIN, IHolderActions, IMonitor, HolderCommandIds } from '../tokens';
import type { ActionTarget } from '../memory/holders';
import type { ActiveKernel } from '../kernel/activeKernel';

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
    const { languageCode } = translator ?? nullTranslator;
    const actions = new HolderActions(app, monitor.model, message, trans, languageCode);
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

/** Add the commands that act on holders of memory. */
function addHolderCommands(
  { commands }: JupyterFrontEnd,
  actions: HolderActions,
  activeKernel: ActiveKernel,
  trans: TranslationBundle,
  palette: ICommandPalette | null
): void {
  const describedBy = {
    args: {
      type: 'object',
      properties: {
        kernel: { type: 'string', description: trans.__('Jupyter’s id of the kernel') },
        terminal: { type: 'string', description: trans.__('Name of the server’s terminal') }
      }
    }
  } as const;
  const argument = (args: ReadonlyPartialJSONObject, name: string): string | null =>
    typeof args[name] === 'string' ? args[name] : null;
  const kernelOrActive = (args: ReadonlyPartialJSONObject): string | null =>
    argument(args, 'kernel') ?? activeKernel.view.kernel?.id ?? null;
  commands.addCommand(HolderCommandIds.goTo, {
    label: args =>
      argument(args, 'terminal') === null ? trans.__('Go to Its Tab') : trans.__('Go to the Terminal'),
    caption: trans.__('Bring it to the front; opened if it is not'),
    describedBy,
    execute: args => actions.goTo({ kernel: argument(args, 'kernel'), terminal: argument(args, 'terminal') })
  });
  commands.addCommand(HolderCommandIds.freeCache, {
    label: args =>
      argument(args, 'kernel') === null
        ? trans.__('Free torch’s Cache of This Notebook')
        : trans.__('Free torch’s Cache'),
    caption: trans.__('Give back what torch keeps and nobody uses (torch.cuda.empty_cache())'),
    describedBy,
    isEnabled: args => kernelOrActive(args) !== null,
    execute: async args => {
      const kernel = kernelOrActive(args);
      if (kernel !== null) {
        await actions.freeCache(kernel);
      }
    }
  });
  commands.addCommand(HolderCommandIds.shutDown, {
    label: trans.__('Shut Down Its Kernel…'),
    caption: trans.__('End the kernel, after a question that names what is lost'),
    describedBy,
    execute: async args => {
      const kernel = argument(args, 'kernel');
      if (kernel !== null) {
        await actions.shutDown(kernel);
      }
    }
  });
  activeKernel.changed.connect(() => {
    commands.notifyCommandChanged(HolderCommandIds.freeCache);
  });
  palette?.addItem({ command: HolderCommandIds.freeCache, category: trans.__('GPU') });
}

/**
 * Open the menu of actions on `target` below `button`. When the menu closes, the button gets the focus again.
 */
function openHolderMenu(
  commands: JupyterFrontEnd['commands'],
  { kernel, terminal }: ActionTarget,
  button: HTMLElement
): void {
  const menu = new MenuSvg({ commands });
  const args = kernel === null ? { terminal } : { kernel };
  menu.addItem({ command: HolderCommandIds.goTo, args });
  if (kernel !== null) {
    menu.addItem({ command: HolderCommandIds.freeCache, args });
    menu.addItem({ type: 'separator' });
    menu.addItem({ command: HolderCommandIds.shutDown, args });
  }
  button.setAttribute('aria-expanded', 'true');
  menu.aboutToClose.connect(() => {
    button.removeAttribute('aria-expanded');
    button.focus();
    // The command of the chosen item is executed after the menu has closed, so dispose of the menu later.
    window.setTimeout(() => {
      menu.dispose();
    });
  });
  const { left, bottom } = button.getBoundingClientRect();
  menu.open(left, bottom);
}
