import { NotebookActions, type INotebookTracker, type NotebookPanel } from '@jupyterlab/notebook';
import type { Kernel as JupyterKernel } from '@jupyterlab/services';
import { Signal } from '@lumino/signaling';

import type { Front, Phase } from './kernel';
import { ConnectedKernel } from './jupyterKernel';
import type { Kernels } from './kernels';

const PHASES: Readonly<Record<JupyterKernel.Status, Phase>> = {
  unknown: 'starting',
  starting: 'starting',
  idle: 'idle',
  busy: 'busy',
  terminating: 'dead',
  restarting: 'restarting',
  autorestarting: 'restarting',
  dead: 'dead'
};

/** Tells `kernels` which notebook is in front and what its kernel does. */
export class Notebooks {
  private panel: NotebookPanel | null = null;
  private readonly connected = new WeakMap<JupyterKernel.IKernelConnection, ConnectedKernel>();
  private readonly reached = new WeakSet<JupyterKernel.IKernelConnection>();

  constructor(
    private readonly tracker: INotebookTracker,
    private readonly kernels: Kernels
  ) {
    tracker.currentChanged.connect(this.follow, this);
    NotebookActions.executed.connect(this.executed, this);
    this.follow();
  }

  private follow(): void {
    const panel = this.tracker.currentWidget;
    if (this.panel !== null) {
      Signal.disconnectBetween(this.panel.sessionContext, this);
      Signal.disconnectBetween(this.panel.context, this);
    }
    this.panel = panel;
    if (panel !== null) {
      panel.sessionContext.kernelChanged.connect(this.tell, this);
      panel.sessionContext.statusChanged.connect(this.tell, this);
      panel.sessionContext.connectionStatusChanged.connect(this.tell, this);
      panel.context.pathChanged.connect(this.tell, this);
    }
    this.tell();
  }

  /** A cell that names gpuwidget may have loaded it where it was not. */
  private executed(
    _: unknown,
    { notebook, cell }: { notebook: unknown; cell: { model: { sharedModel: { getSource(): string } } } }
  ): void {
    if (this.panel?.content === notebook && /gpuwidget|%gpu/.test(cell.model.sharedModel.getSource())) {
      this.kernels.again();
    }
  }

  private tell(): void {
    this.kernels.show(this.front());
  }

  /** What it does; where its connection broke off, `unreachable` and not, as before the first one, `starting`. */
  private phase(connection: JupyterKernel.IKernelConnection): Phase {
    if (connection.connectionStatus === 'connected') {
      this.reached.add(connection);
      return PHASES[connection.status];
    }
    return this.reached.has(connection) || connection.connectionStatus === 'disconnected'
      ? 'unreachable'
      : PHASES[connection.status];
  }

  private front(): Front {
    const panel = this.panel;
    if (panel === null || panel.isDisposed) {
      return { notebook: null, kernel: null, phase: null };
    }
    const notebook = panel.context.localPath.split('/').pop() ?? panel.context.localPath;
    const connection = panel.sessionContext.session?.kernel ?? null;
    if (connection === null) {
      const starting = !panel.sessionContext.isReady && !panel.sessionContext.hasNoKernel;
      return { notebook, kernel: null, phase: starting ? 'starting' : null };
    }
    let kernel = this.connected.get(connection);
    if (kernel === undefined) {
      kernel = new ConnectedKernel(connection);
      this.connected.set(connection, kernel);
    }
    return { notebook, kernel, phase: this.phase(connection) };
  }
}
