import { ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IThemeManager } from '@jupyterlab/apputils';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStateDB } from '@jupyterlab/statedb';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import type { Cells } from '../cells/cells';
import { Folds } from '../panel/folds';
import { GpuPanel } from '../panel/panel';
import type { HolderPorts } from '../holders/ports';
import { readSettings, SETTINGS_ID, type Settings } from '../settings';
import type { GpuMonitor } from '../stream/gpuMonitor';
import { stateStore } from '../stateStore';
import { DOMAIN, ICells, IGpuPanel, IHolders, IMonitor } from '../tokens';
import { setUnits } from '../ui/units';

const RANK = 700;

/** The panel of the right sidebar. */
export const panel: JupyterFrontEndPlugin<GpuPanel> = {
  id: SETTINGS_ID,
  description: 'The GPU panel of the right sidebar.',
  autoStart: true,
  provides: IGpuPanel,
  requires: [IMonitor, ICells, IHolders, ISettingRegistry],
  optional: [ILayoutRestorer, IThemeManager, ITranslator, IStateDB],
  activate: async (
    app: JupyterFrontEnd,
    source: GpuMonitor,
    cells: Cells,
    holders: HolderPorts,
    registry: ISettingRegistry,
    restorer: ILayoutRestorer | null,
    themes: IThemeManager | null,
    translator: ITranslator | null,
    database: IStateDB | null
  ) => {
    const settings = await registry.load(SETTINGS_ID);
    const first = readSettings(settings);
    const measure = ({ chartSeconds, sampleSeconds, units }: Settings): void => {
      source.setHistorySeconds(chartSeconds);
      source.setSampleInterval(sampleSeconds);
      setUnits(units);
    };
    measure(first);
    const widget = new GpuPanel((translator ?? nullTranslator).load(DOMAIN), source, {
      cells,
      folds: new Folds(stateStore(database, SETTINGS_ID)),
      holders,
      thresholds: first.hints,
      show: first.show
    });
    settings.changed.connect(changed => {
      const now = readSettings(changed);
      measure(now);
      widget.settle(now.hints, now.show);
    });
    // An action of the palette's would end without a word: what came of it stands at the panel's foot.
    holders.outcome.changed.connect(({ sentence }) => {
      if (sentence !== '' && !widget.isVisible) {
        app.shell.activateById(widget.id);
      }
    });
    themes?.themeChanged.connect(() => {
      widget.recolour();
    });
    app.shell.add(widget, 'right', { rank: RANK, type: 'GPUs' });
    restorer?.add(widget, widget.id);
    return widget;
  }
};
