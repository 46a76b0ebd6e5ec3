import { ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, IThemeManager, WidgetTracker } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { GpuDashboard } from '../dashboard/dashboard';
import { giveRoom } from '../dashboard/room';
import { restored, type DashboardState } from '../dashboard/state';
import type { Monitor } from '../stream/monitor';
import { JupyterServer } from '../stream/server';
import { BROWSER } from '../timers';
import { CommandIds, DOMAIN, IGpuPanel, IMonitor } from '../tokens';
import { gpuIcon } from '../ui/icon';

const RANK = 9;

/** The dashboard of the main area. */
export const dashboard: JupyterFrontEndPlugin<void> = {
  id: 'jupyterlab-gpuwidget:dashboard',
  description: 'Every metric of every GPU over time, in the main area.',
  autoStart: true,
  requires: [IMonitor, IGpuPanel],
  optional: [ICommandPalette, ILauncher, ILayoutRestorer, IThemeManager, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    monitor: Monitor,
    panel: IGpuPanel,
    palette: ICommandPalette | null,
    launcher: ILauncher | null,
    restorer: ILayoutRestorer | null,
    themes: IThemeManager | null,
    translator: ITranslator | null
  ) => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    // The launcher's groups have JupyterLab's own names.
    const lab = (translator ?? nullTranslator).load('jupyterlab');
    const { commands, shell } = app;
    const tracker = new WidgetTracker<GpuDashboard>({ namespace: 'gpuwidget-dashboard' });
    // It tells the server's past only while it is looked at, and asks for no more than the routes of the stream.
    const server = new JupyterServer(() => 0);
    let last: DashboardState | undefined;
    const add = (kept: unknown): GpuDashboard => {
      const widget = new GpuDashboard({ trans, monitor, server, timers: BROWSER }, restored(kept));
      last = widget.state; // For when it is closed and opened again.
      widget.stateChanged.connect(() => {
        last = widget.state;
        void tracker.save(widget);
      });
      shell.add(widget, 'main', { type: 'GPUs' });
      if (!widget.isAttached) {
        // Notebook 7 has its notebook alone in the main area; below it there is room.
        shell.add(widget, 'down', { type: 'GPUs' });
        giveRoom(widget);
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
        const widget = tracker.currentWidget ?? add(args.state ?? last);
        shell.activateById(widget.id);
      }
    });
    themes?.themeChanged.connect(() => {
      tracker.forEach(widget => {
        widget.recolour();
      });
    });
    palette?.addItem({ command: CommandIds.dashboard, category: trans.__('GPU') });
    launcher?.add({ command: CommandIds.dashboard, category: lab.__('Other'), rank: RANK });
    panel.addAction(trans.__('Dashboard'), trans.__('Every metric of every GPU over time'), () => {
      void commands.execute(CommandIds.dashboard);
    });
    void restorer?.restore(tracker, {
      command: CommandIds.dashboard,
      args: widget => ({ state: { ...widget.state } }),
      name: () => 'dashboard'
    });
  }
};
