import { PathExt } from '@jupyterlab/coreutils';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import type { Kernel as JupyterKernel } from '@jupyterlab/services';
import { Signal } from '@lumino/signaling';

import { mentionsGpuwidget, type ActiveKernel, type ActiveNotebook } from './activeKernel';
import { releaseClosedComms } from './closedComms';
import { ConnectedKernel, type Kernel } from './kernel';
import type { IKernelActivities } from './kernelActivity';

/** Passes the active notebook and its kernel to an `ActiveKernel`. */
export class ActiveNotebookTracker {
  private panel: NotebookPanel | null = null;
  private readonly kernels = new WeakMap<JupyterKernel.IKernelConnection, Kernel>();

  constructor(
    private readonly tracker: INotebookTracker,
    private readonly activeKernel: ActiveKernel,
    private readonly activities: IKernelActivities,
    private readonly locale: string
  ) {
    activities.follow(tracker, (activity, _, connection) => {
      releaseClosedComms(connection, activity);
    });
    tracker.currentChanged.connect(this.onCurrentChanged, this);
    this.onCurrentChanged();
  }

  private onCurrentChanged(): void {
    const panel = this.tracker.currentWidget;
    if (this.panel !== null) {
      Signal.disconnectBetween(this.panel.sessionContext, this);
      Signal.disconnectBetween(this.panel.context, this);
    }
    this.panel = panel;
    if (panel !== null) {
      panel.sessionContext.kernelChanged.connect(this.update, this);
      panel.sessionContext.statusChanged.connect(this.update, this);
      panel.context.pathChanged.connect(this.update, this);
    }
    this.update();
  }

  private update(): void {
    this.activeKernel.setActive(this.activeNotebook());
  }

  private activeNotebook(): ActiveNotebook {
    const { panel } = this;
    if (panel === null || panel.isDisposed) {
      return null;
    }
    const name = PathExt.basename(panel.context.localPath);
    const { session, isReady, hasNoKernel, kernelDisplayStatus } = panel.sessionContext;
    const connection = session?.kernel ?? null;
    if (connection === null) {
      return { name, kernel: null, phase: isReady || hasNoKernel ? null : 'starting' };
    }
    if (kernelDisplayStatus === 'terminating') {
      return { name, kernel: null, phase: 'dead' };
    }
    if (kernelDisplayStatus === 'starting' && connection.status !== 'starting') {
      return { name, kernel: null, phase: 'starting' }; // Another kernel is about to replace this one.
    }
    let kernel = this.kernels.get(connection);
    if (kernel === undefined) {
      const activity = this.activities.of(connection);
      kernel = Object.assign(new ConnectedKernel(connection, this.locale), { activity });
      this.kernels.set(connection, kernel);
      // Search the cells only once per kernel, since a notebook may have thousands of cells.
      const cells = [...(panel.content.model?.cells ?? [])];
      if (cells.some(({ sharedModel }) => mentionsGpuwidget(sharedModel.getSource()))) {
        this.activeKernel.setMentionsGpuwidget(kernel);
      }
    }
    return { name, kernel };
  }
}
