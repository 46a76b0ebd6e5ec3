import {
  ILabShell,
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette, IThemeManager, MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { BROWSER_CLOCK } from '../clock';
import { restoreState, type DashboardState } from '../dashboard/dashboardState';
import { GpuDashboard } from '../dashboard/gpuDashboard';
import { ServerApi } from '../stream/serverApi';
import { isMetric } from '../dashboard/metrics';
import type { MetricName } from '../metricTable';
import { CommandIds, DOMAIN, ICellRuns, IClusterModel, IGpuPanel, IGpuSettings, IMonitor } from '../tokens';
import { gpuIcon } from '../ui/icon';
import { addBelow } from '../ui/notebook7Layout';

const RANK = 9;

/** The dashboard in the main area. */
export const dashboard: JupyterFrontEndPlugin<void> = {
  id: 'jupyterlab-gpuwidget:dashboard',
  description: 'Every metric of every GPU over time, in the main area.',
  autoStart: true,
  requires: [IMonitor, IGpuPanel, IClusterModel, ICellRuns, IGpuSettings],
  optional: [ICommandPalette, ILabShell, ILauncher, ILayoutRestorer, IThemeManager, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    monitor: IMonitor,
    panel: IGpuPanel,
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
    const server = new ServerApi(serviceManager.serverSettings, () => 0);
    /**
     * The state of the dashboard that was opened last. After that dashboard is closed, a new one starts with
     * this state.
     */
    let lastState: DashboardState | undefined;
    const openTab = (metric: MetricName, state: DashboardState): void => {
      void commands.execute(CommandIds.dashboard, { metric, state: { ...state, zoom: copyZoom(state) } });
    };
    /** Open the dashboard of all metrics, or a tab with the chart of one `metric`. */
    const open = (state: unknown, metric: MetricName | null): MainAreaWidget<GpuDashboard> => {
      const content = new GpuDashboard(
        { trans, monitor, server, cluster, cells, settings, clock: BROWSER_CLOCK, metric, openTab },
        restoreState(state, Date.now() / 1000)
      );
      const widget = new MainAreaWidget({ content });
      widget.id = metric === null ? 'gpuwidget-dashboard' : `gpuwidget-dashboard-${metric}`;
      // Hide JupyterLab's toolbar. The dashboard has a separate toolbar, whose dropdown must be inside the
      // content.
      widget.toolbar.hide();
      const remember = (last: DashboardState): void => {
        if (metric === null) {
          lastState = last;
        }
      };
      remember(content.state);
      content.stateChanged.connect(() => {
        remember({ ...content.state, zoom: null });
        void tracker.save(widget);
      });
      if (labShell === null) {
        addBelow(shell, widget);
      } else {
        shell.add(widget, 'main', { type: 'GPUs' });
      }
      void tracker.add(widget);
      return widget;
    };
    commands.addCommand(CommandIds.dashboard, {
      label: trans.__('GPU Dashboard'),
      caption: trans.__('Every metric of every GPU over time'),
      icon: gpuIcon,
      describedBy: {
        args: {
          type: 'object',
          properties: {
            state: { type: 'object', description: trans.__('What it shows') },
            metric: { type: 'string', description: trans.__('The metric of a chart in its own tab') }
          }
        }
      },
      execute: args => {
        const metric = isMetric(args.metric) ? args.metric : null;
        const current = tracker.find(({ content }) => content.metric === metric) ?? null;
        if (current !== null && args.state !== undefined) {
          const { state } = current.content;
          current.content.showState(restoreState(withChoice(state, args.state), Date.now() / 1000));
        }
        const widget =
          current ?? open(args.state === undefined ? lastState : withChoice(lastState, args.state), metric);
        shell.activateById(widget.id);
      }
    });
    themes?.themeChanged.connect(() => {
      tracker.forEach(({ content }) => {
        content.handleThemeChange();
      });
    });
    palette?.addItem({ command: CommandIds.dashboard, category: trans.__('GPU') });
    launcher?.add({ command: CommandIds.dashboard, category: labTrans.__('Other'), rank: RANK });
    panel.addAction(trans.__('Dashboard'), trans.__('Every metric of every GPU over time'), () => {
      void commands.execute(CommandIds.dashboard);
    });
    void restorer?.restore(tracker, {
      command: CommandIds.dashboard,
      args: ({ content: { state, metric } }) => ({ metric, state: { ...state, zoom: copyZoom(state) } }),
      name: ({ content: { metric } }) => metric ?? 'dashboard'
    });
  }
};

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
