import { ILabShell, type JupyterFrontEnd, type JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IToolbarWidgetRegistry } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { CommandToolbarButton } from '@jupyterlab/ui-components';

import { CommandIds, DOMAIN } from '../tokens';

/**
 * The button in the toolbar of a notebook that shows the panel. It is visible only in Notebook 7: JupyterLab has
 * the panel's icon in its sidebar.
 */
export const notebookButton: JupyterFrontEndPlugin<void> = {
  id: 'jupyterlab-gpuwidget:notebook-button',
  description: 'The button in Notebook 7 that shows the GPU panel.',
  autoStart: true,
  requires: [IToolbarWidgetRegistry],
  optional: [ILabShell, ITranslator],
  activate: (
    { commands }: JupyterFrontEnd,
    toolbars: IToolbarWidgetRegistry,
    labShell: ILabShell | null,
    translator: ITranslator | null
  ) => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    toolbars.addFactory('Notebook', 'gpus', () => {
      const button = new CommandToolbarButton({ commands, id: CommandIds.show, label: trans.__('GPUs') });
      button.addClass('jp-gpuwidget-notebook-button');
      button.setHidden(labShell !== null);
      return button;
    });
  }
};
