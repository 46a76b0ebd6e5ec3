import {
  ILabShell,
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette, IThemeManager, type MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { BROWSER_CLOCK } from '../clock';
import { restoreState, type DashboardState } from '../dashboard/dashboardState';
import { GpuDashboard } from '../dashboard/gpuDashboard';
import { ServerApi } from '../stream/serverApi';
import { CommandIds, DOMAIN, IClusterModel, IMonitor } from '../tokens';
import { gpuIcon } from '../ui/icon';
import { openInMainArea } from '../ui/mainArea';

const RANK = 9;
const WIDGET_ID = 'gpuwidget-dashboard';

/** The dashboard in the main area. */
export const dashboard: JupyterFrontEndPlugin<void> = {
  id: 'jupyterlab-gpuwidget:dashboard',
  description: 'Every metric of every GPU over time, in the main area.',
  autoStart: true,
  requires: [IMonitor, IClusterModel],
  optional: [ICommandPalette, ILabShell, ILauncher, ILayoutRestorer, IThemeManager, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    monitor: IMonitor,
    cluster: IClusterModel,
    palette: ICommandPalette | null,
    labShell: ILabShell | null,
    launcher: ILauncher | null,
    restorer: ILayoutRestorer | null,
    themes: IThemeManager | null,
    translator: ITranslator | null
  ) => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    // The names of the launcher's categories are translated by JupyterLab's catalog.
    const labTrans = (translator ?? nullTranslator).load('jupyterlab');
    const { commands, serviceManager, shell } = app;
    const tracker = new WidgetTracker<MainAreaWidget<GpuDashboard>>({ namespace: 'gpuwidget-dashboard' });
    const server = new ServerApi(serviceManager.serverSettings, () => 0);
    /**
     * The state of the dashboard that was opened last. After that dashboard is closed, a new one starts with
     * this state.
     */
    let lastState: DashboardState | undefined;
    const open = (state: unknown): void => {
      const content = new GpuDashboard(
        { trans, monitor, server, cluster, clock: BROWSER_CLOCK },
        restoreState(state, Date.now() / 1000)
      );
      lastState = content.state;
      content.stateChanged.connect(() => {
        lastState = { ...content.state, zoom: null };
      });
      openInMainArea({ shell, labShell, tracker }, WIDGET_ID, content);
    };
    commands.addCommand(CommandIds.dashboard, {
      label: args => (args.toolbar === true ? trans.__('Dashboard') : trans.__('GPU Dashboard')),
      caption: trans.__('Every metric of every GPU over time'),
      icon: args => (args.isLauncher === true ? gpuIcon : undefined),
      describedBy: {
        args: {
          type: 'object',
          properties: {
            state: { type: 'object', description: trans.__('What it shows') },
            toolbar: {
              type: 'boolean',
              description: trans.__('Whether the command is a button in a toolbar')
            },
            isLauncher: { type: 'boolean', description: trans.__('Whether the command is in the launcher') }
          }
        }
      },
      execute: args => {
        const content = tracker.currentWidget?.content;
        if (content === undefined) {
          open(args.state === undefined ? lastState : withChoice(lastState, args.state));
        } else if (args.state !== undefined) {
          content.showState(restoreState(withChoice(content.state, args.state), Date.now() / 1000));
        }
        shell.activateById(WIDGET_ID);
      }
    });
    themes?.themeChanged.connect(() => {
      tracker.forEach(({ content }) => {
        content.handleThemeChange();
      });
    });
    palette?.addItem({ command: CommandIds.dashboard, category: trans.__('GPU') });
    launcher?.add({
      command: CommandIds.dashboard,
      args: { isLauncher: true },
      category: labTrans.__('Other'),
      rank: RANK
    });
    void restorer?.restore(tracker, {
      command: CommandIds.dashboard,
      args: ({ content: { state } }) => ({ state: { ...state, zoom: state.zoom && { ...state.zoom } } }),
      name: () => 'dashboard'
    });
  }
};

/**
 * Return a dashboard's state with some fields replaced by those of `args`. A machine is shown live, and a part
 * of the history is the own machine's, unless `args` contains both.
 */
function withChoice(state: DashboardState | undefined, args: unknown): object {
  return { ...state, zoom: null, node: null, ...(args as Partial<DashboardState>) };
}
