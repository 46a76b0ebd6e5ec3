import {
  ILabShell,
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette, IThemeManager } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { BROWSER_CLOCK } from '../model/clock';
import type { GpuDashboard } from '../views/dashboard/gpuDashboard';
import { ServerClient } from '../model/server/serverClient';
import { isMetric } from '../model/metrics';
import { metricTexts, type MetricName } from '../wire/metricTable';
import { CommandIds, DOMAIN, ICellRuns, IClusterModel, IGpuSettings, IMonitor } from '../tokens';
import { dashboardIcon, gpuIcon } from '../ui/icon';
import { Tabs } from '../ui/mainArea';

const RANK = 9;
/** The name of the tab with all metrics. The other tabs are named after their metric. */
const MAIN = 'dashboard';

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
    const tabs = new Tabs<GpuDashboard>(MAIN, { shell, labShell, trans });
    const server = new ServerClient(serviceManager.serverSettings, trans);
    const openTab = (metric: MetricName, state: object): void => {
      void commands.execute(CommandIds.dashboard, { metric, state: { ...state } });
    };
    /** Load the dashboard of all metrics, or the chart of one `metric`. */
    const load = async (metric: MetricName | null): Promise<(state: unknown) => GpuDashboard> => {
      const { GpuDashboard } = await import(/* webpackChunkName: "dashboard" */ '../views/dashboard/chunk');
      const options = {
        trans,
        monitor,
        server,
        cluster,
        cells,
        settings,
        clock: BROWSER_CLOCK,
        metric,
        openTab
      };
      return state => new GpuDashboard(options, state);
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
        const name = metric ?? MAIN;
        const content = tabs.find(name);
        const state = withChoice(content?.state ?? tabs.lastState, args.state);
        if (content === undefined) {
          const title = metric === null ? trans.__('GPU Dashboard') : metricTexts(trans, metric)[0];
          tabs.open(name, title, state, () => load(metric));
        } else if (args.state !== undefined) {
          content.showState(state);
        }
        tabs.activate(name);
      }
    });
    themes?.themeChanged.connect(() => {
      tabs.tracker.forEach(({ content: { view } }) => view?.handleThemeChange());
    });
    palette?.addItem({ command: CommandIds.dashboard, category: trans.__('GPU') });
    launcher?.add({
      command: CommandIds.dashboard,
      args: { isLauncher: true },
      category: labTrans.__('Other'),
      rank: RANK
    });
    void restorer?.restore(tabs.tracker, {
      command: CommandIds.dashboard,
      args: ({ content: { name, state } }) => ({ metric: name, state }),
      name: ({ content: { name } }) => name
    });
  }
};

/**
 * Return a dashboard's state with some fields replaced by those of `choice`. Without a zoom
 * in `choice`, the dashboard is live; without a node, it shows the server's machine.
 */
function withChoice(state: object, choice: unknown): object {
  return choice === undefined
    ? { ...state, zoom: null }
    : { ...state, zoom: null, node: null, ...(choice as object) };
}
