import { ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IThemeManager } from '@jupyterlab/apputils';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStateDB } from '@jupyterlab/statedb';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { GpuPanel } from '../panel/gpuPanel';
import { PanelState } from '../panel/panelState';
import { readSettings, SETTINGS_ID, type Settings } from '../settings';
import { stateStore } from '../stateStore';
import { DOMAIN, ICellRuns, IGpuPanel, IHolderActions, IMonitor } from '../tokens';
import { setUnits } from '../ui/units';

const RANK = 700;

/** The panel in the right sidebar. */
export const panel: JupyterFrontEndPlugin<IGpuPanel> = {
  id: SETTINGS_ID,
  description: 'The GPU panel of the right sidebar.',
  autoStart: true,
  provides: IGpuPanel,
  requires: [IMonitor, ICellRuns, IHolderActions, ISettingRegistry],
  optional: [ILayoutRestorer, IThemeManager, ITranslator, IStateDB],
  activate: async (
    { shell }: JupyterFrontEnd,
    monitor: IMonitor,
    cells: ICellRuns,
    holders: IHolderActions,
    registry: ISettingRegistry,
    restorer: ILayoutRestorer | null,
    themes: IThemeManager | null,
    translator: ITranslator | null,
    database: IStateDB | null
  ) => {
    const settings = await registry.load(SETTINGS_ID);
    const initial = readSettings(settings);
    const apply = ({ chartSeconds, sampleSeconds, units }: Settings): void => {
      monitor.setHistorySeconds(chartSeconds);
      monitor.setSampleInterval(sampleSeconds);
      setUnits(units);
    };
    apply(initial);
    const widget = new GpuPanel((translator ?? nullTranslator).load(DOMAIN), monitor, {
      cells,
      panelState: new PanelState(stateStore(database, SETTINGS_ID)),
      holders,
      thresholds: initial.hints,
      shown: initial.show
    });
    settings.changed.connect(() => {
      const current = readSettings(settings);
      apply(current);
      widget.configure(current.hints, current.show);
    });
    // Open the panel to show the result of an action that was started elsewhere, such as in the command
    // palette.
    holders.message.changed.connect(({ text }) => {
      if (text !== '' && !widget.isVisible) {
        shell.activateById(widget.id);
      }
    });
    themes?.themeChanged.connect(() => {
      widget.redraw();
    });
    shell.add(widget, 'right', { rank: RANK, type: 'GPUs' });
    restorer?.add(widget, widget.id);
    return widget;
  }
};
