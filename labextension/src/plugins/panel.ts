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
import { settingsIcon } from '@jupyterlab/ui-components';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import { RunTimes } from '../views/cards/runTimes';
import { GpuPanel } from '../views/panel/gpuPanel';
import { databaseStore, PanelState } from '../model/panelState';
import { partTitles, SETTINGS_ID, type Part } from '../model/settings/settings';
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
import { setUnits, type Units } from '../model/format';
import { openMenu } from '../ui/menu';

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
      setUnits(units as Units); // JupyterLab's validator allows only the schema's choices.
    };
    apply();
    settings.changed.connect(apply);
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const widget = new GpuPanel(trans, monitor, {
      cells,
      panelState: new PanelState(database && databaseStore(database, SETTINGS_ID)),
      holders,
      times: new RunTimes(trans, cells, commands, cluster !== null),
      settings,
      hideOtherUsers: PageConfig.getOption('gpuwidgetHideOtherUsers') === 'true',
      locale: (translator ?? nullTranslator).languageCode
    });
    // Open the panel if it is hidden, because it shows the result of an action that was started elsewhere,
    // such as in the command palette.
    holders.message.changed.connect(({ text }) => {
      if (text !== '' && !widget.isVisible) {
        widget.open(shell);
      }
    });
    const titles = partTitles(trans);
    const partOf = (args: ReadonlyPartialJSONObject): Part | undefined =>
      titles.find(([part]) => part === args.part)?.[0];
    commands.addCommand(CommandIds.togglePart, {
      label: args => titles.find(([part]) => part === args.part)?.[1] ?? trans.__('Parts to show'),
      describedBy: {
        args: {
          type: 'object',
          properties: { part: { type: 'string', enum: titles.map(([part]) => part) } }
        }
      },
      isToggled: args => {
        const part = partOf(args);
        return part !== undefined && settings.current.show[part];
      },
      execute: async args => {
        const part = partOf(args);
        if (part !== undefined) {
          await settings.togglePart(part);
        }
      }
    });
    commands.addCommand(CommandIds.parts, {
      label: trans.__('Parts to show'),
      icon: settingsIcon,
      describedBy: { args: { type: 'object', properties: {} } },
      execute: () => {
        const button = widget.node.querySelector<HTMLElement>('[data-jp-item-name=parts] > *');
        openMenu(
          commands,
          titles.map(([part]) => ({ command: CommandIds.togglePart, args: { part } })),
          button ?? widget.node
        );
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
