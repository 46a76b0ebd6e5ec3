import { NotebookActions, type INotebookTracker, type NotebookPanel } from '@jupyterlab/notebook';
import type { Kernel as JupyterKernel, KernelMessage } from '@jupyterlab/services';
import { Signal } from '@lumino/signaling';

import { Executions, type StatusMessage } from './executions';
import type { Front, Phase } from './kernel';
import { ConnectedKernel } from './jupyterKernel';
import type { Kernels } from './kernels';
import { KERNEL_REQUEST, type ReceivedMessage } from '../wire';

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

/** No cell runs after one of these. */
const ENDS: ReadonlySet<JupyterKernel.Status> = new Set([
  'terminating',
  'restarting',
  'autorestarting',
  'dead'
]);

/** Tells `kernels` which notebook is in front and what its kernel does. */
export class Notebooks {
  private panel: NotebookPanel | null = null;
  private readonly connected = new WeakMap<JupyterKernel.IKernelConnection, ConnectedKernel>();
  private readonly phases = new WeakMap<JupyterKernel.IKernelConnection, Phase>();
  private readonly executions = new WeakMap<JupyterKernel.IKernelConnection, Executions>();
  /** Ids of the kernels that are busy according to the server. */
  private busyOnServer: ReadonlySet<string> = new Set();

  constructor(
    private readonly tracker: INotebookTracker,
    private readonly kernels: Kernels
  ) {
    tracker.currentChanged.connect(this.follow, this);
    // All of them: a cell may begin or end while another notebook is in front.
    tracker.widgetAdded.connect((_, panel) => {
      this.listen(panel);
    });
    tracker.forEach(panel => {
      this.listen(panel);
    });
    NotebookActions.executed.connect(this.executed, this);
    this.follow();
  }

  /** Take a message of the server's stream: its states cover cells that began before this page was loaded. */
  take(message: ReceivedMessage): void {
    if (message.type !== 'sample') {
      const kernels = message.type === 'usage' ? message.kernels : [];
      this.busyOnServer = new Set(kernels.filter(({ state }) => state === 'busy').map(({ id }) => id));
      const connection = this.panel?.sessionContext.session?.kernel;
      if (connection && this.executionsOf(connection).running === null) {
        this.tell();
      }
    }
  }

  private listen(panel: NotebookPanel): void {
    const connection = panel.sessionContext.session?.kernel;
    if (connection) {
      this.note(connection, connection.status);
    }
    panel.sessionContext.statusChanged.connect((_, status) => {
      this.statusChanged(panel, status);
    });
    panel.sessionContext.iopubMessage.connect((_, message) => {
      this.heard(panel, message);
    });
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
      panel.sessionContext.connectionStatusChanged.connect(this.tell, this);
      panel.context.pathChanged.connect(this.tell, this);
    }
    this.tell();
  }

  /** Idle and busy are taken from the message that says so, which tells whose doing it is. */
  private statusChanged(panel: NotebookPanel, status: JupyterKernel.Status): void {
    const connection = panel.sessionContext.session?.kernel;
    if (connection && ((status !== 'idle' && status !== 'busy') || !this.works(connection))) {
      this.note(connection, status);
    }
    if (connection && ENDS.has(status)) {
      this.executionsOf(connection).reset();
    }
    this.changed(panel);
  }

  /**
   * JupyterLab before 4.5 takes our questions for work of the kernel, and shows them so: they tell nothing of what it
   * does, and are to be few.
   */
  private heard(panel: NotebookPanel, message: KernelMessage.IMessage): void {
    const connection = panel.sessionContext.session?.kernel;
    if (!connection || message.header.msg_type !== 'status') {
      return;
    }
    this.executionsOf(connection).receive(message as StatusMessage, connection.clientId);
    const { execution_state: said } = message.content as { execution_state?: JupyterKernel.Status };
    const ours =
      'msg_type' in message.parent_header && (message.parent_header.msg_type as string) === KERNEL_REQUEST;
    const { status } = connection;
    if (!ours) {
      // Of a process that somebody else has started anew, JupyterLab itself says 'starting' until a cell runs.
      this.note(connection, status === 'starting' ? (said ?? status) : status);
      this.changed(panel);
    } else if (said === status && PHASES[status] !== this.phases.get(connection)) {
      this.kernels.spare();
    }
  }

  private note(connection: JupyterKernel.IKernelConnection, status: JupyterKernel.Status): void {
    const before = this.phases.get(connection);
    // Not known for a moment, as after its connection was lost, it is what it was.
    if (status !== 'unknown' || before === undefined) {
      this.phases.set(connection, PHASES[status]);
    }
  }

  private works(connection: JupyterKernel.IKernelConnection): boolean {
    const phase = this.phases.get(connection);
    return phase === 'idle' || phase === 'busy';
  }

  /** A cell that names gpuwidget may have loaded it where it was not. */
  private executed(_: unknown, { notebook, cell }: { notebook: unknown; cell: { model: Mentioning } }): void {
    if (this.panel?.content === notebook && mentions(cell.model)) {
      const { kernel } = this.front();
      if (kernel !== null) {
        this.kernels.mentioned(kernel);
      }
      this.kernels.again();
    }
  }

  private changed(panel: NotebookPanel): void {
    if (panel === this.panel) {
      this.tell();
    }
  }

  private tell(): void {
    this.kernels.show(this.front());
  }

  private executionsOf(connection: JupyterKernel.IKernelConnection): Executions {
    let executions = this.executions.get(connection);
    if (executions === undefined) {
      executions = new Executions();
      this.executions.set(connection, executions);
    }
    return executions;
  }

  /** Whether a cell runs; the server's state counts until this page has received a message that shows it. */
  private runs(connection: JupyterKernel.IKernelConnection): boolean {
    return this.executionsOf(connection).running ?? this.busyOnServer.has(connection.id);
  }

  /** What it does; where its connection broke off, `unreachable`, but not before the first one nor in a restart. */
  private phase(connection: JupyterKernel.IKernelConnection): Phase {
    const shown = this.phases.get(connection) ?? PHASES[connection.status];
    const doubtful = shown === 'idle' || connection.status === 'unknown';
    const phase = doubtful && this.runs(connection) ? 'busy' : shown;
    const expected = phase === 'starting' || phase === 'restarting' || phase === 'dead';
    const away = connection.connectionStatus !== 'connected';
    return away && (!expected || connection.connectionStatus === 'disconnected') ? 'unreachable' : phase;
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
      // Once for each kernel: a notebook may have thousands of cells.
      if ([...(panel.content.model?.cells ?? [])].some(mentions)) {
        this.kernels.mentioned(kernel);
      }
    }
    return { notebook, kernel, phase: this.phase(connection) };
  }
}

interface Mentioning {
  readonly sharedModel: { getSource(): string };
}

/** Whether gpuwidget is spoken of, and so may be loaded. */
function mentions(cell: Mentioning): boolean {
  return /gpuwidget|%gpu/.test(cell.sharedModel.getSource());
}
