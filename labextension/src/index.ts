import { ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, IThemeManager } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { addCommands } from './commands';
import { Connection } from './connection';
import { Kernels } from './kernels';
import { Model } from './model';
import { Monitor } from './monitor';
import { Notebooks } from './notebooks';
import { GpuPanel } from './panel';
import { JupyterServer } from './server';
import { read } from './settings';
import { BROWSER } from './timers';
import { IGpuPanel, IMonitor } from './tokens';

const DOMAIN = 'jupyterlab_gpuwidget';
const RANK = 700;

const monitor: JupyterFrontEndPlugin<Monitor> = {
  id: 'jupyterlab-gpuwidget:monitor',
  description: 'Live GPU samples of the server and the default torch device of the notebook in front.',
  autoStart: true,
  provides: IMonitor,
  optional: [INotebookTracker],
  activate: (_: JupyterFrontEnd, tracker: INotebookTracker | null) => {
    const model = new Model();
    const connection = new Connection(new JupyterServer(() => model.seconds), BROWSER, Math.random);
    const kernels = new Kernels(BROWSER);
    if (tracker !== null) {
      new Notebooks(tracker, kernels);
    }
    return new Monitor(model, kernels, connection, BROWSER);
  }
};

const panel: JupyterFrontEndPlugin<GpuPanel> = {
  id: 'jupyterlab-gpuwidget:panel',
  description: 'The GPU panel of the right sidebar.',
  autoStart: true,
  provides: IGpuPanel,
  requires: [IMonitor, ISettingRegistry],
  optional: [ILayoutRestorer, IThemeManager, ITranslator],
  activate: async (
    app: JupyterFrontEnd,
    source: Monitor,
    registry: ISettingRegistry,
    restorer: ILayoutRestorer | null,
    themes: IThemeManager | null,
    translator: ITranslator | null
  ) => {
    const settings = await registry.load(panel.id);
    source.keep(read(settings).chartSeconds);
    const widget = new GpuPanel((translator ?? nullTranslator).load(DOMAIN), source);
    settings.changed.connect(changed => {
      source.keep(read(changed).chartSeconds);
    });
    themes?.themeChanged.connect(() => {
      widget.recolour();
    });
    app.shell.add(widget, 'right', { rank: RANK, type: 'GPUs' });
    restorer?.add(widget, widget.id);
    return widget;
  }
};

const commands: JupyterFrontEndPlugin<void> = {
  id: 'jupyterlab-gpuwidget:commands',
  description: 'Commands for the GPU panel and the default torch device.',
  autoStart: true,
  requires: [IMonitor, IGpuPanel],
  optional: [ICommandPalette, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    source: Monitor,
    widget: GpuPanel,
    palette: ICommandPalette | null,
    translator: ITranslator | null
  ) => {
    addCommands(app, widget, source.kernels, (translator ?? nullTranslator).load(DOMAIN), palette);
  }
};

export default [monitor, panel, commands];
