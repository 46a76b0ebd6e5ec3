import {
  ILabShell,
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette, IThemeManager, MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { SplitPanel, type Widget } from '@lumino/widgets';

import { BROWSER_CLOCK } from '../clock';
import { restoreState, type DashboardState } from '../dashboard/dashboardState';
import { GpuDashboard } from '../dashboard/gpuDashboard';
import { ServerApi } from '../stream/serverApi';
import { CommandIds, DOMAIN, IGpuPanel, IMonitor } from '../tokens';
import { gpuIcon } from '../ui/icon';

const RANK = 9;
/**
 * If the dashboard in Notebook 7 has less than this fraction of the height, it is enlarged to `DOWN_SHARE`.
 */
const MIN_DOWN_SHARE = 0.3;
const DOWN_SHARE = 0.5;

/** The dashboard in the main area. */
export const dashboard: JupyterFrontEndPlugin<void> = {
  id: 'jupyterlab-gpuwidget:dashboard',
  description: 'Every metric of every GPU over time, in the main area.',
  autoStart: true,
  requires: [IMonitor, IGpuPanel],
  optional: [ICommandPalette, ILabShell, ILauncher, ILayoutRestorer, IThemeManager, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    monitor: IMonitor,
    panel: IGpuPanel,
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
    const open = (state: unknown): MainAreaWidget<GpuDashboard> => {
      const content = new GpuDashboard(
        { trans, monitor, server, clock: BROWSER_CLOCK },
        restoreState(state, Date.now() / 1000)
      );
      const widget = new MainAreaWidget({ content });
      widget.id = 'gpuwidget-dashboard';
      // Hide JupyterLab's toolbar. The dashboard has a separate toolbar, whose dropdown must be inside the
      // content.
      widget.toolbar.hide();
      lastState = content.state;
      content.stateChanged.connect(() => {
        lastState = { ...content.state, zoom: null };
        void tracker.save(widget);
      });
      if (labShell === null) {
        // Notebook 7 allows only the notebook in its main area, so the dashboard is added below it.
        shell.add(widget, 'down', { type: 'GPUs' });
        enlarge(widget);
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
          properties: { state: { type: 'object', description: trans.__('What it shows') } }
        }
      },
      execute: args => {
        const widget = tracker.currentWidget ?? open(args.state ?? lastState);
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
      args: ({ content: { state } }) => ({ state: { ...state, zoom: state.zoom && { ...state.zoom } } }),
      name: () => 'dashboard'
    });
  }
};

/**
 * Enlarge a widget in the area below the notebook. Notebook 7 does not give a new widget enough height there.
 */
function enlarge(widget: Widget): void {
  for (let child = widget; child.parent !== null; child = child.parent) {
    const panel = child.parent;
    if (!(panel instanceof SplitPanel) || panel.orientation !== 'vertical') {
      continue;
    }
    const index = panel.widgets.indexOf(child);
    const sizes = panel.relativeSizes();
    const share = sizes[index] ?? 0;
    if (share < MIN_DOWN_SHARE) {
      const scale = (1 - DOWN_SHARE) / (1 - share);
      panel.setRelativeSizes(sizes.map((size, at) => (at === index ? DOWN_SHARE : size * scale)));
    }
    return;
  }
}
