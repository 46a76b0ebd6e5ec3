import { ILabShell, type JupyterFrontEnd, type JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import type { IKernels } from '../model/kernel/kernels';
import { CommandIds, DOMAIN, IGpuPanel, IMonitor } from '../tokens';
import { gpuIcon } from '../ui/icon';
import { showInSidebar } from '../ui/notebook7Layout';

/** The methods of JupyterLab's shell that collapse a sidebar. */
type Sidebars = Pick<ILabShell, 'collapseLeft' | 'collapseRight'>;

const NO_ARGUMENTS = { args: { type: 'object', properties: {} } } as const;

/** The commands for the panel. */
export const commands: JupyterFrontEndPlugin<void> = {
  id: 'jupyterlab-gpuwidget:commands',
  description: 'Commands for the GPU panel and the default torch device.',
  autoStart: true,
  requires: [IMonitor, IGpuPanel],
  optional: [ILabShell, ICommandPalette, ITranslator],
  activate: (
    { commands, shell }: JupyterFrontEnd,
    { kernels }: IMonitor,
    panel: IGpuPanel,
    labShell: ILabShell | null,
    palette: ICommandPalette | null,
    translator: ITranslator | null
  ) => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const isReady = (): boolean => kernels.state !== null;
    commands.addCommand(CommandIds.show, {
      label: trans.__('Show GPU Panel'),
      caption: trans.__('Show the GPU panel in the sidebar'),
      icon: gpuIcon,
      describedBy: NO_ARGUMENTS,
      execute: () => {
        showInSidebar(shell, panel);
      }
    });
    commands.addCommand(CommandIds.toggle, {
      label: trans.__('GPU Panel'),
      caption: trans.__('Show or hide the GPU panel in the sidebar'),
      describedBy: NO_ARGUMENTS,
      isToggled: () => panel.isVisible,
      execute: () => {
        if (panel.isVisible) {
          // In Notebook 7, `labShell` is null, but `shell` has the same two methods. To use Notebook's token
          // `INotebookShell`, this extension would have to bundle the whole application of Notebook, since
          // JupyterLab does not provide the token's package.
          hide(shell, labShell ?? (shell as Partial<Sidebars>), panel);
        } else {
          showInSidebar(shell, panel);
        }
      }
    });
    commands.addCommand(CommandIds.device, {
      label: trans.__('Choose Default Device…'),
      caption: trans.__('Focus the dropdown with the default PyTorch device of the active notebook'),
      describedBy: NO_ARGUMENTS,
      execute: () => {
        showInSidebar(shell, panel);
        // The palette closes after the command, and then gives the focus back to the notebook.
        setTimeout(() => {
          panel.focusDevice();
        });
      }
    });
    commands.addCommand(CommandIds.watch, {
      label: trans.__('Watch Cells'),
      caption: trans.__(
        'Show a one-line GPU summary under every cell of the active notebook (%gpu watch on)'
      ),
      describedBy: NO_ARGUMENTS,
      isEnabled: () => mayHavePython(kernels),
      isToggled: () => kernels.watching,
      execute: async () => {
        await kernels.toggleWatching();
        if (!isReady()) {
          showInSidebar(shell, panel); // The panel shows why cells cannot be watched.
        }
      }
    });
    commands.addCommand(CommandIds.load, {
      label: trans.__('Load gpuwidget'),
      caption: trans.__(
        'Load gpuwidget in the active notebook’s kernel (%load_ext gpuwidget), without an output'
      ),
      describedBy: NO_ARGUMENTS,
      isEnabled: () => !isReady() && mayHavePython(kernels),
      execute: () => kernels.load()
    });
    kernels.changed.connect(() => {
      commands.notifyCommandChanged(CommandIds.watch);
      commands.notifyCommandChanged(CommandIds.load);
    });
    for (const command of [CommandIds.toggle, CommandIds.device, CommandIds.watch, CommandIds.load]) {
      palette?.addItem({ command, category: trans.__('GPU') });
    }
  }
};

/** Return whether there is a kernel that is, or may be, a Python kernel. */
function mayHavePython({ view }: IKernels): boolean {
  return !['no-notebook', 'no-kernel', 'not-python'].includes(view.condition.kind);
}

/**
 * Collapse the sidebar that contains the panel: the user may have moved the panel to the left one. If the
 * focus was in the panel, move it to the current document.
 */
function hide(shell: JupyterFrontEnd.IShell, sidebars: Partial<Sidebars>, panel: IGpuPanel): void {
  const focused = panel.node.contains(document.activeElement);
  if ([...shell.widgets('left')].includes(panel)) {
    sidebars.collapseLeft?.();
  } else {
    sidebars.collapseRight?.();
  }
  if (focused && shell.currentWidget !== null) {
    shell.activateById(shell.currentWidget.id);
  }
}
