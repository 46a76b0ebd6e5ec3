import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ICommandPalette } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import type { Actions } from './actions';
import type { Kernels } from '../kernel/kernels';
import { HolderCommandIds } from '../tokens';

/** Add what can be done about one that holds memory. */
export function addHolderCommands(
  { commands }: JupyterFrontEnd,
  actions: Actions,
  kernels: Kernels,
  trans: TranslationBundle,
  palette: ICommandPalette | null
): void {
  const about = {
    args: {
      type: 'object',
      properties: {
        kernel: { type: 'string', description: trans.__('Jupyter’s id of the kernel') },
        terminal: { type: 'string', description: trans.__('Name of the server’s terminal') }
      }
    }
  } as const;
  const named = (args: ReadonlyPartialJSONObject, name: string): string | null =>
    typeof args[name] === 'string' ? args[name] : null;
  /** The kernel that is meant, else that of the notebook in front. */
  const meant = (args: ReadonlyPartialJSONObject): string | null =>
    named(args, 'kernel') ?? kernels.view.kernel?.id ?? null;
  commands.addCommand(HolderCommandIds.goTo, {
    label: args =>
      named(args, 'terminal') === null ? trans.__('Go to Its Tab') : trans.__('Go to the Terminal'),
    caption: trans.__('Bring it to the front; opened if it is not'),
    describedBy: about,
    execute: args => actions.goTo({ kernel: named(args, 'kernel'), terminal: named(args, 'terminal') })
  });
  commands.addCommand(HolderCommandIds.freeCache, {
    label: args =>
      named(args, 'kernel') === null
        ? trans.__('Free torch’s Cache of This Notebook')
        : trans.__('Free torch’s Cache'),
    caption: trans.__('Give back what torch keeps and nobody uses (torch.cuda.empty_cache())'),
    describedBy: about,
    isEnabled: args => meant(args) !== null,
    execute: async args => {
      const kernel = meant(args);
      if (kernel !== null) {
        await actions.freeCache(kernel);
      }
    }
  });
  commands.addCommand(HolderCommandIds.shutDown, {
    label: trans.__('Shut Down Its Kernel…'),
    caption: trans.__('End the kernel, after a question that names what is lost'),
    describedBy: about,
    execute: async args => {
      const kernel = named(args, 'kernel');
      if (kernel !== null) {
        await actions.shutDown(kernel);
      }
    }
  });
  kernels.changed.connect(() => {
    commands.notifyCommandChanged(HolderCommandIds.freeCache);
  });
  palette?.addItem({ command: HolderCommandIds.freeCache, category: trans.__('GPU') });
}
