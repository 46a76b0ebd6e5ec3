import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ICommandPalette } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';

import { gpuIcon } from './ui/icon';
import type { Kernels } from './kernel/kernels';
import type { GpuPanel } from './panel/panel';
import { CommandIds } from './tokens';

/** JupyterLab's shell and Notebook 7's put their sidebars away so. */
interface Sidebars {
  collapseLeft(): void;
  collapseRight(): void;
}

const NO_ARGUMENTS = { args: { type: 'object', properties: {} } } as const;

/** Add the commands, and show them in the palette where there is one. */
export function addCommands(
  app: JupyterFrontEnd,
  panel: GpuPanel,
  kernels: Kernels,
  trans: TranslationBundle,
  palette: ICommandPalette | null
): void {
  const { commands, shell } = app;
  const answers = (): boolean => kernels.state !== null;
  commands.addCommand(CommandIds.show, {
    label: trans.__('Show GPUs'),
    caption: trans.__('Show the GPU panel in the sidebar'),
    icon: gpuIcon,
    describedBy: NO_ARGUMENTS,
    execute: () => {
      shell.activateById(panel.id);
    }
  });
  commands.addCommand(CommandIds.toggle, {
    label: trans.__('Show or Hide GPUs'),
    caption: trans.__('Show the GPU panel in the sidebar, or put it away'),
    icon: gpuIcon,
    describedBy: NO_ARGUMENTS,
    execute: () => {
      if (panel.isVisible) {
        hide(shell, panel);
      } else {
        shell.activateById(panel.id);
      }
    }
  });
  commands.addCommand(CommandIds.device, {
    label: trans.__('Choose the Default Torch Device'),
    caption: trans.__('Go to the device dropdown of the notebook in front'),
    describedBy: NO_ARGUMENTS,
    execute: () => {
      shell.activateById(panel.id);
      panel.focusDevice();
    }
  });
  commands.addCommand(CommandIds.watch, {
    label: trans.__('Watch Every Cell of This Notebook'),
    caption: trans.__('Annotate every cell with what it did to the GPU (%gpu watch on)'),
    describedBy: NO_ARGUMENTS,
    isEnabled: () => !['no-notebook', 'no-kernel', 'not-python'].includes(kernels.view.condition.kind),
    isToggled: () => kernels.state?.watching === true,
    execute: async () => {
      await kernels.toggleWatch();
      if (!answers()) {
        shell.activateById(panel.id); // which says why not
      }
    }
  });
  commands.addCommand(CommandIds.load, {
    label: trans.__('Load gpuwidget in This Kernel'),
    caption: trans.__('Load it silently, outside the history (%load_ext gpuwidget)'),
    describedBy: NO_ARGUMENTS,
    isEnabled: () =>
      !answers() && !['no-notebook', 'no-kernel', 'not-python'].includes(kernels.view.condition.kind),
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

/** Put the sidebar away in which the panel is; the user may have moved it. The keyboard goes back to the work. */
function hide(shell: JupyterFrontEnd.IShell, panel: GpuPanel): void {
  const sidebars: Partial<Sidebars> = shell as unknown as Sidebars;
  const hadKeyboard = panel.node.contains(document.activeElement);
  if ([...shell.widgets('left')].includes(panel)) {
    sidebars.collapseLeft?.();
  } else {
    sidebars.collapseRight?.();
  }
  if (hadKeyboard && shell.currentWidget !== null) {
    shell.activateById(shell.currentWidget.id);
  }
}
