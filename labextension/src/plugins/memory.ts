import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ITranslator, nullTranslator, type TranslationBundle } from '@jupyterlab/translation';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import { BROWSER_CLOCK } from '../model/clock';
import { HolderActions, shutDownLabel } from '../views/memory/holderActions';
import { StatusMessage } from '../model/memory/statusMessage';
import { DOMAIN, IHolderActions, IMonitor, HolderCommandIds } from '../tokens';
import { holderOf, holderSelector } from '../views/memory/runningHolders';
import type { ActionTarget, HolderKind } from '../model/memory/holders';
import type { IKernels } from '../model/kernel/kernels';
import { disabledFreeCacheLabel } from '../views/memory/holderActions';
import { openMenu } from '../ui/menu';

/** The commands of a kernel's menu, in this order. */
const KERNEL_COMMANDS = [
  HolderCommandIds.goTo,
  HolderCommandIds.interrupt,
  HolderCommandIds.restart,
  HolderCommandIds.freeCache,
  HolderCommandIds.confirmShutDown
] as const;

/** The actions on holders of GPU memory. */
export const memory: JupyterFrontEndPlugin<IHolderActions> = {
  id: 'jupyterlab-gpuwidget:memory',
  description: 'Actions on the notebooks that hold GPU memory.',
  autoStart: true,
  provides: IHolderActions,
  requires: [IMonitor],
  optional: [ICommandPalette, INotebookTracker, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    monitor: IMonitor,
    palette: ICommandPalette | null,
    notebooks: INotebookTracker | null,
    translator: ITranslator | null
  ) => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const message = new StatusMessage(BROWSER_CLOCK);
    notebooks?.currentChanged.connect(() => {
      message.clear();
    });
    const { languageCode } = translator ?? nullTranslator;
    const actions = new HolderActions(app, monitor, message, trans, languageCode);
    addHolderCommands(app, actions, monitor.kernels, trans, palette);
    return {
      message,
      openMenu: ({ kernel, terminal }, button) => {
        const args = kernel === null ? { terminal } : { kernel };
        const ids = kernel === null ? [HolderCommandIds.goTo] : KERNEL_COMMANDS;
        openMenu(
          app.commands,
          ids.map(command => ({ command, args })),
          button
        );
      },
      goTo: target => void actions.goTo(target),
      shutDownNow: kernel => void actions.shutDownNow(kernel)
    };
  }
};

/** Add the commands that act on holders of memory. */
function addHolderCommands(
  app: JupyterFrontEnd,
  actions: HolderActions,
  activeKernel: IKernels,
  trans: TranslationBundle,
  palette: ICommandPalette | null
): void {
  const { commands } = app;
  const describedBy = {
    args: {
      type: 'object',
      properties: {
        kernel: { type: 'string', description: trans.__('Jupyter’s kernel ID') },
        terminal: { type: 'string', description: trans.__('Name of the server’s terminal') },
        clicked: {
          type: 'boolean',
          description: trans.__('Whether to act on the holder whose context menu is open')
        }
      }
    }
  } as const;
  // While a context menu is open, the list may be redrawn: the clicked node may then be removed, or show another
  // holder. Therefore find the holder when the menu opens, and before JupyterLab computes the labels.
  let clicked: ActionTarget = { kernel: null, terminal: null };
  const rememberClicked = ({ target }: Event): void => {
    const node = target instanceof Element ? target.closest<HTMLElement>('[data-context]') : null;
    clicked = (node && holderOf(node)) ?? { kernel: null, terminal: null };
  };
  document.addEventListener('contextmenu', rememberClicked, true);
  const targetOf = (args: ReadonlyPartialJSONObject): ActionTarget => {
    if (args.clicked === true) {
      return clicked;
    }
    const text = (name: string): string | null => (typeof args[name] === 'string' ? args[name] : null);
    return { kernel: text('kernel'), terminal: text('terminal') };
  };
  /** Add a command that acts on the kernel of a holder. */
  const addKernelCommand = (
    id: string,
    label: string,
    caption: string,
    act: (kernel: string) => Promise<void>
  ): void => {
    commands.addCommand(id, {
      label,
      caption,
      describedBy,
      execute: async args => {
        const { kernel } = targetOf(args);
        if (kernel !== null) {
          await act(kernel);
        }
      }
    });
  };
  commands.addCommand(HolderCommandIds.goTo, {
    label: args => {
      const { kernel, terminal } = targetOf(args);
      const kind = terminal !== null ? 'terminal' : kernel === null ? 'kernel' : actions.kindOf(kernel);
      return openLabel(trans, kind);
    },
    caption: trans.__('Show the tab, or open it if it is closed'),
    describedBy,
    execute: args => actions.goTo(targetOf(args))
  });
  addKernelCommand(
    HolderCommandIds.interrupt,
    trans.__('Interrupt Kernel'),
    trans.__('Stop the running cell; the variables are kept'),
    kernel => actions.interrupt(kernel)
  );
  addKernelCommand(
    HolderCommandIds.restart,
    trans.__('Restart Kernel…'),
    trans.__('Restart the kernel, after a confirmation that lists what you will lose'),
    kernel => actions.restart(kernel)
  );
  commands.addCommand(HolderCommandIds.freeCache, {
    label: args =>
      disabledFreeCacheLabel(trans, activeKernel, targetOf(args).kernel) ?? trans.__('Free PyTorch Cache'),
    caption: trans.__(
      'Release the memory that PyTorch has cached but does not use (torch.cuda.empty_cache())'
    ),
    describedBy,
    isEnabled: args => disabledFreeCacheLabel(trans, activeKernel, targetOf(args).kernel) === null,
    execute: async args => {
      const kernel = targetOf(args).kernel ?? activeKernel.view.kernel?.id;
      if (kernel !== undefined) {
        await actions.freeCache(kernel);
      }
    }
  });
  addKernelCommand(
    HolderCommandIds.confirmShutDown,
    shutDownLabel(trans),
    trans.__('Shut down the kernel, after a confirmation that lists what you will lose'),
    kernel => actions.confirmShutDown(kernel)
  );
  activeKernel.changed.connect(() => {
    commands.notifyCommandChanged(HolderCommandIds.freeCache);
  });
  palette?.addItem({ command: HolderCommandIds.freeCache, category: trans.__('GPU') });
  for (const [rank, command] of KERNEL_COMMANDS.entries()) {
    app.contextMenu.addItem({ command, args: { clicked: true }, selector: holderSelector('kernel'), rank });
  }
  app.contextMenu.addItem({
    command: HolderCommandIds.goTo,
    args: { clicked: true },
    selector: holderSelector('terminal')
  });
}

/** Return the label of the command that opens a holder. */
function openLabel(trans: TranslationBundle, kind: HolderKind): string {
  switch (kind) {
    case 'notebook':
      return trans.__('Open Notebook');
    case 'console':
      return trans.__('Open Console');
    case 'terminal':
      return trans.__('Open Terminal');
    default:
      return trans.__('Open');
  }
}
