import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { addCommands } from '../commands';
import type { GpuPanel } from '../panel/panel';
import type { GpuMonitor } from '../stream/gpuMonitor';
import { DOMAIN, IGpuPanel, IMonitor } from '../tokens';

/** The panel's commands. */
export const commands: JupyterFrontEndPlugin<void> = {
  id: 'jupyterlab-gpuwidget:commands',
  description: 'Commands for the GPU panel and the default torch device.',
  autoStart: true,
  requires: [IMonitor, IGpuPanel],
  optional: [ICommandPalette, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    source: GpuMonitor,
    widget: GpuPanel,
    palette: ICommandPalette | null,
    translator: ITranslator | null
  ) => {
    addCommands(app, widget, source.kernels, (translator ?? nullTranslator).load(DOMAIN), palette);
  }
};
