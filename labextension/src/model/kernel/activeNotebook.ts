import { PathExt } from '@jupyterlab/coreutils';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import type { Kernel as JupyterKernel, KernelMessage } from '@jupyterlab/services';
import { Signal, type ISignal } from '@lumino/signaling';

import type { ActiveKernel } from './activeKernel';
import { Executions, type StatusMessage } from './executions';
import { ConnectedKernel, type ActiveNotebook, type Phase } from './kernel';
import { KERNEL_REQUEST, type ReceivedMessage } from '../../wire/wire';

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

/** The kernel statuses that mean that no cell is running any more. */
const ENDS: ReadonlySet<JupyterKernel.Status> = new Set([
  'terminating',
  'restarting',
  'autorestarting',
  'dead'
]);

/** Tracks the active notebook and its kernel's phase, and passes both to an `ActiveKernel`. */
export class ActiveNotebookTracker {
  private panel: NotebookPanel | null = null;
  private readonly kernels = new WeakMap<JupyterKernel.IKernelConnection, ConnectedKernel>();
  private readonly phases = new WeakMap<JupyterKernel.IKernelConnection, Phase>();
  private readonly executions = new WeakMap<JupyterKernel.IKernelConnection, Executions>();
  /** Ids of the kernels that the server reports as busy. */
  private busyOnServer: ReadonlySet<string> = new Set();

  /** `executed` is emitted after a cell has run. */
  constructor(
    private readonly tracker: INotebookTracker,
    private readonly activeKernel: ActiveKernel,
    private readonly locale: string,
    executed: ISignal<unknown, ExecutedCell>
  ) {
    tracker.currentChanged.connect(this.onCurrentChanged, this);
    // Connect to all notebooks: a cell may start or end while another notebook is active.
    tracker.widgetAdded.connect((_, panel) => {
      this.connect(panel);
    });
    tracker.forEach(panel => {
      this.connect(panel);
    });
    executed.connect(this.onExecuted, this);
    this.onCurrentChanged();
  }

  /**
   * Process a message from the server's stream. A `usage` message lists the states of all kernels. They
   * show whether a kernel is still running a cell that was started before this page was loaded.
   */
  receive(message: ReceivedMessage): void {
    if (message.type === 'usage') {
      const busy = message.kernels.filter(({ state }) => state === 'busy');
      this.busyOnServer = new Set(busy.map(({ id }) => id));
      const connection = this.panel?.sessionContext.session?.kernel;
      if (connection && this.executionsOf(connection).running === null) {
        this.update();
      }
    }
  }

  private connect(panel: NotebookPanel): void {
    const { sessionContext } = panel;
    const connection = sessionContext.session?.kernel;
    if (connection) {
      this.setPhase(connection, connection.status);
    }
    sessionContext.statusChanged.connect((_, status) => {
      this.onStatusChanged(panel, status);
    });
    sessionContext.iopubMessage.connect((_, message) => {
      this.onIopubMessage(panel, message);
    });
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
      panel.sessionContext.connectionStatusChanged.connect(this.update, this);
      panel.context.pathChanged.connect(this.update, this);
    }
    this.update();
  }

  /**
   * Process a status change. Changes between idle and busy are taken from IOPub messages instead, because
   * those also contain the request that caused the change.
   */
  private onStatusChanged(panel: NotebookPanel, status: JupyterKernel.Status): void {
    const connection = panel.sessionContext.session?.kernel;
    if (connection && ((status !== 'idle' && status !== 'busy') || !this.isResponsive(connection))) {
      this.setPhase(connection, status);
    }
    if (connection && ENDS.has(status)) {
      this.executionsOf(connection).reset();
      this.onEnded(connection);
    }
    this.updateIfActive(panel);
  }

  /**
   * Process an IOPub message. JupyterLab before 4.5 shows the requests of this extension as kernel activity.
   * Such activity does not change the kernel's phase here, and polling is disabled in those versions.
   */
  private onIopubMessage(panel: NotebookPanel, message: KernelMessage.IMessage): void {
    const connection = panel.sessionContext.session?.kernel;
    if (!connection || message.header.msg_type !== 'status') {
      return;
    }
    if (this.executionsOf(connection).receive(message as StatusMessage, connection.clientId)) {
      this.onEnded(connection); // Another client has restarted the kernel.
    }
    const { execution_state: published } = message.content as { execution_state?: JupyterKernel.Status };
    const ours =
      'msg_type' in message.parent_header && (message.parent_header.msg_type as string) === KERNEL_REQUEST;
    const { status } = connection;
    if (!ours) {
      // After another client has restarted the kernel, JupyterLab keeps the status 'starting' until a cell
      // runs, so use the status that the kernel has published.
      this.setPhase(connection, status === 'starting' ? (published ?? status) : status);
      this.updateIfActive(panel);
    } else if (published === status && PHASES[status] !== this.phases.get(connection)) {
      this.activeKernel.disablePolling();
    }
  }

  private setPhase(connection: JupyterKernel.IKernelConnection, status: JupyterKernel.Status): void {
    // The status 'unknown', for example after a lost connection, does not replace a known phase.
    if (status !== 'unknown' || !this.phases.has(connection)) {
      this.phases.set(connection, PHASES[status]);
    }
  }

  /** Forget the state of a process that has ended, also if another notebook is active. */
  private onEnded(connection: JupyterKernel.IKernelConnection): void {
    const kernel = this.kernels.get(connection);
    if (kernel !== undefined) {
      this.activeKernel.setEnded(kernel);
    }
  }

  private isResponsive(connection: JupyterKernel.IKernelConnection): boolean {
    const phase = this.phases.get(connection);
    return phase === 'idle' || phase === 'busy';
  }

  /**
   * Query the kernel after a cell has run, if the cell's source contains gpuwidget's name or magic: the
   * cell may have loaded gpuwidget.
   */
  private onExecuted(_: unknown, { notebook, cell }: ExecutedCell): void {
    if (this.panel?.content === notebook && mentionsGpuwidget(cell.model)) {
      const { kernel } = this.activeNotebook();
      if (kernel !== null) {
        this.activeKernel.setMentionsGpuwidget(kernel);
      }
      this.activeKernel.refresh();
    }
  }

  private updateIfActive(panel: NotebookPanel): void {
    if (panel === this.panel) {
      this.update();
    }
  }

  private update(): void {
    this.activeKernel.setActive(this.activeNotebook());
  }

  private executionsOf(connection: JupyterKernel.IKernelConnection): Executions {
    let executions = this.executions.get(connection);
    if (executions === undefined) {
      executions = new Executions();
      this.executions.set(connection, executions);
    }
    return executions;
  }

  /**
   * Return whether a cell is running. The kernel's messages to this page show that. Before the first such
   * message, use the state that the server has sent.
   */
  private isRunning(connection: JupyterKernel.IKernelConnection): boolean {
    return this.executionsOf(connection).running ?? this.busyOnServer.has(connection.id);
  }

  /**
   * Return the kernel's phase. It is `unreachable` after a lost connection, but not before the first
   * connection or during a restart.
   */
  private phase(connection: JupyterKernel.IKernelConnection): Phase {
    const known = this.phases.get(connection) ?? PHASES[connection.status];
    const doubtful = known === 'idle' || connection.status === 'unknown';
    const phase = doubtful && this.isRunning(connection) ? 'busy' : known;
    const expected = phase === 'starting' || phase === 'restarting' || phase === 'dead';
    const isDisconnected = connection.connectionStatus !== 'connected';
    return isDisconnected && (!expected || connection.connectionStatus === 'disconnected')
      ? 'unreachable'
      : phase;
  }

  private activeNotebook(): ActiveNotebook {
    const { panel } = this;
    if (panel === null || panel.isDisposed) {
      return { name: null, kernel: null, phase: null };
    }
    const name = PathExt.basename(panel.context.localPath);
    const connection = panel.sessionContext.session?.kernel ?? null;
    if (connection === null) {
      const starting = !panel.sessionContext.isReady && !panel.sessionContext.hasNoKernel;
      return { name, kernel: null, phase: starting ? 'starting' : null };
    }
    let kernel = this.kernels.get(connection);
    if (kernel === undefined) {
      kernel = new ConnectedKernel(connection, this.locale);
      this.kernels.set(connection, kernel);
      // Search the cells only once per kernel, since a notebook may have thousands of cells.
      if ([...(panel.content.model?.cells ?? [])].some(mentionsGpuwidget)) {
        this.activeKernel.setMentionsGpuwidget(kernel);
      }
    }
    return { name, kernel, phase: this.phase(connection) };
  }
}

/** A cell that has run, and its notebook. */
export interface ExecutedCell {
  readonly notebook: unknown;
  readonly cell: { readonly model: Source };
}

interface Source {
  readonly sharedModel: { getSource(): string };
}

/**
 * Return whether a cell's source contains gpuwidget's name or magic. If so, running the cell may load
 * gpuwidget.
 */
function mentionsGpuwidget(cell: Source): boolean {
  return /gpuwidget|%gpu/.test(cell.sharedModel.getSource());
}
