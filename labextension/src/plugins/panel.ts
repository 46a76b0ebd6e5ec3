import { ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from '@jupyterlab/application';
import {
  createToolbarFactory,
  IThemeManager,
  IToolbarWidgetRegistry,
  Notification,
  setToolbar
} from '@jupyterlab/apputils';
import { PageConfig } from '@jupyterlab/coreutils';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStateDB } from '@jupyterlab/statedb';
import { ITranslator, nullTranslator, type TranslationBundle } from '@jupyterlab/translation';
import { settingsIcon } from '@jupyterlab/ui-components';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import { RunTimes } from '../views/cards/runTimes';
import { GpuPanel } from '../views/panel/gpuPanel';
import { BROWSER_CLOCK } from '../model/clock';
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
import { SHOWN_MS, type IStatusMessage } from '../model/memory/statusMessage';
import { openMenu } from '../ui/menu';
import { notify } from '../ui/notification';

const RANK = 700;
/** The name of the panel's toolbar in JupyterLab's toolbar registry and in the settings schema. */
const TOOLBAR = 'GpuPanel';
/** The id of the settings with the buttons in the panel's header. */
const TOOLBAR_SETTINGS_ID = 'jupyterlab-gpuwidget:toolbar';

/** The types of notifications for messages. */
const NOTIFICATION_TYPES = { progress: 'in-progress', result: 'info', error: 'error' } as const;

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
    settings.changed.connect(apply); // Before the panel shows the new values.
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const widget = new GpuPanel({
      trans,
      monitor,
      cells,
      holders,
      settings,
      panelState: new PanelState(database && databaseStore(database, SETTINGS_ID)),
      times: new RunTimes(trans, cells, commands, cluster !== null),
      clock: BROWSER_CLOCK,
      themes,
      hideOtherUsers: PageConfig.getOption('gpuwidgetHideOtherUsers') === 'true',
      locale: (translator ?? nullTranslator).languageCode
    });
    showMessagesOfHiddenPanel(widget, holders.message, trans);
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
      setToolbar(widget, factory);
    }
    shell.add(widget, 'right', { rank: RANK, type: 'GPUs' });
    restorer?.add(widget, widget.id);
    return widget;
  }
};

/**
 * Show messages as notifications while the panel is hidden, such as the result of an action in the command
 * palette.
 */
function showMessagesOfHiddenPanel(panel: GpuPanel, message: IStatusMessage, trans: TranslationBundle): void {
  let progress: string | null = null;
  message.changed.connect(() => {
    const { text, kind } = message;
    if (progress !== null) {
      Notification.dismiss(progress);
      progress = null;
    }
    if (text !== '' && !panel.isVisible) {
      const id = notify(trans, trans.__('GPUs'), text, NOTIFICATION_TYPES[kind], SHOWN_MS[kind] ?? false);
      progress = kind === 'progress' ? id : null;
    }
  });
}
