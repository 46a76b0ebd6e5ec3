import { ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IThemeManager } from '@jupyterlab/apputils';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import type { Cells } from '../cells/cells';
import { GpuPanel } from '../panel/panel';
import { read } from '../settings';
import type { Monitor } from '../stream/monitor';
import { DOMAIN, ICells, IGpuPanel, IMonitor } from '../tokens';

const RANK = 700;

/** The panel of the right sidebar. */
export const panel: JupyterFrontEndPlugin<GpuPanel> = {
  id: 'jupyterlab-gpuwidget:panel',
  description: 'The GPU panel of the right sidebar.',
  autoStart: true,
  provides: IGpuPanel,
  requires: [IMonitor, ICells, ISettingRegistry],
  optional: [ILayoutRestorer, IThemeManager, ITranslator],
  activate: async (
    app: JupyterFrontEnd,
    source: Monitor,
    cells: Cells,
    registry: ISettingRegistry,
    restorer: ILayoutRestorer | null,
    themes: IThemeManager | null,
    translator: ITranslator | null
  ) => {
    const settings = await registry.load(panel.id);
    source.keep(read(settings).chartSeconds);
    const widget = new GpuPanel((translator ?? nullTranslator).load(DOMAIN), source, cells);
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
