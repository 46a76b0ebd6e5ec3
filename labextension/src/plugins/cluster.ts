import {
  ILabShell,
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette, type MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { ClusterSection } from '../views/cluster/clusterSection';
import { ClusterWall } from '../views/cluster/clusterWall';
import { restoreWall, type WallState } from '../views/cluster/wallState';
import { CommandIds, DOMAIN, IClusterModel, IGpuPanel } from '../tokens';
import { gpuIcon } from '../ui/icon';
import { activateInMainArea, openInMainArea } from '../ui/mainArea';

const RANK = 10;
const WIDGET_ID = 'gpuwidget-cluster';

/** The wall in the main area, and the cluster's section in the panel. */
export const cluster: JupyterFrontEndPlugin<void> = {
  id: 'jupyterlab-gpuwidget:cluster',
  description: 'All GPUs of the cluster, which Prometheus monitors.',
  autoStart: true,
  requires: [IGpuPanel, IClusterModel],
  optional: [ICommandPalette, ILabShell, ILauncher, ILayoutRestorer, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    panel: IGpuPanel,
    model: IClusterModel,
    palette: ICommandPalette | null,
    labShell: ILabShell | null,
    launcher: ILauncher | null,
    restorer: ILayoutRestorer | null,
    translator: ITranslator | null
  ) => {
    if (model === null) {
      return; // No Prometheus is configured.
    }
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    // The names of the launcher's categories are translated by JupyterLab's catalog.
    const labTrans = (translator ?? nullTranslator).load('jupyterlab');
    const { commands, shell } = app;
    const tracker = new WidgetTracker<MainAreaWidget<ClusterWall>>({ namespace: 'gpuwidget-cluster' });
    const openNode = (node: string): void => {
      void commands.execute(CommandIds.dashboard, { state: { node } });
    };
    /** The state of the wall that was opened last, with which a new one starts. */
    let lastState: WallState | undefined;
    const open = (state: unknown): void => {
      const content = new ClusterWall({ trans, model, openNode }, restoreWall(state));
      lastState = content.state;
      content.stateChanged.connect(() => {
        lastState = content.state;
      });
      openInMainArea({ shell, labShell, tracker }, WIDGET_ID, content);
    };
    commands.addCommand(CommandIds.cluster, {
      label: trans.__('GPU Cluster'),
      caption: trans.__('All GPUs of the cluster: which are free, at work, held or broken'),
      icon: args => (args.isLauncher === true ? gpuIcon : undefined),
      describedBy: {
        args: {
          type: 'object',
          properties: { state: { type: 'object', description: trans.__('State of the view') } }
        }
      },
      execute: args => {
        if (tracker.currentWidget === null) {
          open(args.state ?? lastState);
        }
        activateInMainArea({ shell, labShell, tracker }, WIDGET_ID);
      }
    });
    palette?.addItem({ command: CommandIds.cluster, category: trans.__('GPU') });
    launcher?.add({
      command: CommandIds.cluster,
      args: { isLauncher: true },
      category: labTrans.__('Other'),
      rank: RANK
    });
    panel.addSection(
      new ClusterSection({
        trans,
        model,
        panelState: panel.panelState,
        isPanelVisible: () => panel.isVisible,
        openWall: () => {
          void commands.execute(CommandIds.cluster);
        },
        openNode
      })
    );
    void restorer?.restore(tracker, {
      command: CommandIds.cluster,
      args: ({ content: { state } }) => ({
        state: { ...state, search: state.search && { ...state.search } }
      }),
      name: () => 'cluster'
    });
  }
};
