import { ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from '@jupyterlab/application';
import {
  createToolbarFactory,
  IThemeManager,
  IToolbarWidgetRegistry,
  setToolbar
} from '@jupyterlab/apputils';
import { PageConfig } from '@jupyterlab/coreutils';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStateDB } from '@jupyterlab/statedb';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { historyLength } from '../dashboard/dashboardState';
import { GpuPanel } from '../panel/gpuPanel';
import { databaseStore, PanelState } from '../panel/panelState';
import { SETTINGS_ID } from '../settings';
import {
  CommandIds,
  DOMAIN,
  ICellRuns,
  IClusterModel,
  IGpuPanel,
  IGpuSettings,
  IHolderActions,
  IMonitor
} from '../tokens';
import { setUnits } from '../ui/format';

const RANK = 700;
/** The name of the panel's toolbar in JupyterLab's toolbar registry and in the settings schema. */
const TOOLBAR = 'GpuPanel';
/** The id of the settings with the buttons in the panel's header. */
const TOOLBAR_SETTINGS_ID = 'jupyterlab-gpuwidget:toolbar';

/** The panel in the right sidebar. */
export const panel: JupyterFrontEndPlugin<IGpuPanel> = {
  id: SETTINGS_ID,
  description: 'The GPU panel of the right sidebar.',
  autoStart: true,
  provides: IGpuPanel,
  requires: [IMonitor, ICellRuns, IHolderActions, IGpuSettings, IClusterModel],
  optional: [ILayoutRestorer, IThemeManager, ITranslator, IStateDB, IToolbarWidgetRegistry, ISettingRegistry],
  activate: (
    { commands, shell }: JupyterFrontEnd,
    monitor: IMonitor,
    cells: ICellRuns,
    holders: IHolderActions,
    settings: IGpuSettings,
    cluster: IClusterModel,
    restorer: ILayoutRestorer | null,
    themes: IThemeManager | null,
    translator: ITranslator | null,
    database: IStateDB | null,
    toolbars: IToolbarWidgetRegistry | null,
    settingRegistry: ISettingRegistry | null
  ) => {
    const apply = (): void => {
      const { chartSeconds, sampleSeconds, units } = settings.current;
      monitor.setHistorySeconds(chartSeconds);
      monitor.setSampleInterval(sampleSeconds);
      setUnits(units);
    };
    apply();
    const widget = new GpuPanel((translator ?? nullTranslator).load(DOMAIN), monitor, {
      cells,
      panelState: new PanelState(database && databaseStore(database, SETTINGS_ID)),
      holders,
      dashboard: {
        historySeconds: historyLength(cluster !== null),
        show: zoom => {
          void commands.execute(CommandIds.dashboard, { state: { zoom: { ...zoom } } });
        }
      },
      thresholds: settings.current.hints,
      shown: settings.current.show,
      hideOtherUsers: PageConfig.getOption('gpuwidgetHideOtherUsers') === 'true',
      locale: (translator ?? nullTranslator).languageCode
    });
    settings.changed.connect(() => {
      apply();
      widget.configure(settings.current.hints, settings.current.show);
    });
    // Open the panel if it is hidden, because it shows the result of an action that was started elsewhere,
    // such as in the command palette.
    holders.message.changed.connect(({ text }) => {
      if (text !== '' && !widget.isVisible) {
        widget.open(shell);
      }
    });
    if (toolbars !== null && settingRegistry !== null) {
      const factory = createToolbarFactory(
        toolbars,
        settingRegistry,
        TOOLBAR,
        TOOLBAR_SETTINGS_ID,
        translator ?? nullTranslator
      );
      setToolbar(widget, factory, widget.toolbar);
    }
    themes?.themeChanged.connect(widget.redraw, widget);
    shell.add(widget, 'right', { rank: RANK, type: 'GPUs' });
    restorer?.add(widget, widget.id);
    return widget;
  }
};
