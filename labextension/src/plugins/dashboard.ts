import {
  ILabShell,
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette, IThemeManager, type MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { BROWSER_CLOCK } from '../model/clock';
import { restoreState, type DashboardState } from '../model/history/dashboardState';
import { GpuDashboard } from '../views/dashboard/gpuDashboard';
import { ServerClient } from '../model/server/serverClient';
import { isMetric } from '../model/metrics';
import type { MetricName } from '../wire/metricTable';
import { CommandIds, DOMAIN, ICellRuns, IClusterModel, IGpuSettings, IMonitor } from '../tokens';
import { dashboardIcon, gpuIcon } from '../ui/icon';
import { activateInMainArea, openInMainArea } from '../ui/mainArea';

const RANK = 9;

/** The dashboard in the main area. */
export const dashboard: JupyterFrontEndPlugin<void> = {
  id: 'jupyterlab-gpuwidget:dashboard',
  description: 'Every metric of every GPU over time, in the main area.',
  autoStart: true,
  requires: [IMonitor, IClusterModel, ICellRuns, IGpuSettings],
  optional: [ICommandPalette, ILabShell, ILauncher, ILayoutRestorer, IThemeManager, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    monitor: IMonitor,
    cluster: IClusterModel,
    cells: ICellRuns,
    settings: IGpuSettings,
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
    const server = new ServerClient(serviceManager.serverSettings, trans);
    /**
     * The state of the dashboard that was opened last. After that dashboard is closed, a new one starts with
     * this state.
     */
    let lastState: DashboardState | undefined;
    const openTab = (metric: MetricName, state: DashboardState): void => {
      void commands.execute(CommandIds.dashboard, { metric, state: { ...state, zoom: copyZoom(state) } });
    };
    /** Open the dashboard of all metrics, or a tab with the chart of one `metric`. */
    const open = (state: unknown, metric: MetricName | null): void => {
      const content = new GpuDashboard(
        { trans, monitor, server, cluster, cells, settings, clock: BROWSER_CLOCK, metric, openTab },
        restoreState(state, Date.now() / 1000)
      );
      const remember = (last: DashboardState): void => {
        if (metric === null) {
          lastState = last;
        }
      };
      remember(content.state);
      content.stateChanged.connect(() => {
        remember({ ...content.state, zoom: null });
      });
      openInMainArea({ shell, labShell, tracker }, widgetId(metric), content);
    };
    commands.addCommand(CommandIds.dashboard, {
      label: trans.__('GPU Dashboard'),
      // The caption names a button with only an icon.
      caption: args =>
        args.toolbar === true ? trans.__('GPU Dashboard') : trans.__('Every metric of every GPU over time'),
      icon: args => (args.toolbar === true ? dashboardIcon : args.isLauncher === true ? gpuIcon : undefined),
      describedBy: {
        args: {
          type: 'object',
          properties: {
            state: { type: 'object', description: trans.__('State of the view') },
            metric: { type: 'string', description: trans.__('The metric of a chart in its own tab') },
            toolbar: {
              type: 'boolean',
              description: trans.__('Whether the command is a button in a toolbar')
            },
            isLauncher: { type: 'boolean', description: trans.__('Whether the command is in the launcher') }
          }
        }
      },
      execute: args => {
        const metric = isMetric(args.metric) ? args.metric : null;
        const content = tracker.find(widget => widget.content.metric === metric)?.content;
        if (content === undefined) {
          open(args.state === undefined ? lastState : withChoice(lastState, args.state), metric);
        } else if (args.state !== undefined) {
          content.showState(restoreState(withChoice(content.state, args.state), Date.now() / 1000));
        }
        activateInMainArea({ shell, labShell, tracker }, widgetId(metric));
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
      args: ({ content: { state, metric } }) => ({ metric, state: { ...state, zoom: copyZoom(state) } }),
      name: ({ content: { metric } }) => metric ?? 'dashboard'
    });
  }
};

/** Return the id of the dashboard, or of the tab with the chart of one `metric`. */
function widgetId(metric: MetricName | null): string {
  return metric === null ? 'gpuwidget-dashboard' : `gpuwidget-dashboard-${metric}`;
}

/** Return the zoom as JSON, whose type does not include read-only interfaces. */
function copyZoom({ zoom }: DashboardState): { from: number; to: number } | null {
  return zoom && { ...zoom };
}

/**
 * Return a dashboard's state with some fields replaced by those of `args`. A machine is shown live, and a part
 * of the history is the own machine's, unless `args` contains both.
 */
function withChoice(state: DashboardState | undefined, args: unknown): object {
  return { ...state, zoom: null, node: null, ...(args as Partial<DashboardState>) };
}
