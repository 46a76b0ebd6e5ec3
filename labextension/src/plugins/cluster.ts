import {
  ILabShell,
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { ClusterSection } from '../views/cluster/clusterSection';
import type * as chunk from '../views/cluster/chunk';
import type { ClusterWall } from '../views/cluster/clusterWall';
import { CommandIds, DOMAIN, IClusterModel, IGpuPanel } from '../tokens';
import { gpuIcon } from '../ui/icon';
import { Tabs } from '../ui/mainArea';

const RANK = 10;
const SECTION_RANK = 1100;
const NAME = 'cluster';

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
    const tabs = new Tabs<ClusterWall>(NAME, { shell, labShell, trans });
    const openNode = (node: string): void => {
      void commands.execute(CommandIds.dashboard, { state: { node } });
    };
    const loadChunk = (): Promise<typeof chunk> =>
      import(/* webpackChunkName: "cluster" */ '../views/cluster/chunk');
    const load = async (): Promise<(state: unknown) => ClusterWall> => {
      const { ClusterWall } = await loadChunk();
      return state => new ClusterWall({ trans, model, openNode }, state);
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
        const content = tabs.find(NAME);
        if (content === undefined) {
          tabs.open(NAME, trans.__('GPU Cluster'), args.state ?? tabs.lastState, load);
        } else if (args.state !== undefined) {
          content.showState(args.state);
        }
        tabs.activate(NAME);
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
        load: async () => (await loadChunk()).ClusterOverview,
        openWall: () => {
          void commands.execute(CommandIds.cluster);
        },
        openNode
      }),
      { rank: SECTION_RANK }
    );
    void restorer?.restore(tabs.tracker, {
      command: CommandIds.cluster,
      args: ({ content: { state } }) => ({ state }),
      name: () => NAME
    });
  }
};
