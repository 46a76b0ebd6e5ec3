import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import type { Kernel, KernelMessage } from '@jupyterlab/services';
import { Signal, type ISignal } from '@lumino/signaling';

import { ClockOffset, type Clock } from '../clock';
import { KERNEL_REQUEST, type MemoryOwnership } from '../../wire/wire';

/** What a kernel is doing. It is `unreachable` while the connection to it is lost. */
export type Phase = 'starting' | 'idle' | 'busy' | 'restarting' | 'dead' | 'unreachable';

/** The execution of a cell, no matter which client has requested it. */
export interface Execution {
  /** The id of the execute request. */
  readonly request: string;
  readonly code: string;
  readonly executionCount: number | null;
  /** Start in epoch seconds, by the clock of the kernel's machine. */
  readonly started: number;
  /** When this page received the message about the start, in milliseconds of this page's clock. */
  readonly received: number;
}

/** A change of what a kernel is doing. */
export type ActivityChange =
  | { readonly kind: 'phase' }
  | { readonly kind: 'started'; readonly execution: Execution }
  | {
      readonly kind: 'ended';
      readonly execution: Execution;
      /** `lost` if it is unknown when the execution ended, for example because the kernel was restarted. */
      readonly outcome: 'finished' | 'died' | 'lost';
    }
  /** The kernel's process has ended, or a new one has replaced it. */
  | { readonly kind: 'process-ended' };

/** A request that a shell of the kernel is running. Its execution is null if it is not that of a cell. */
interface RunningRequest {
  readonly request: string;
  readonly execution: Execution | null;
}

/** The request in whose context a kernel has sent a message. */
interface ParentHeader {
  readonly msg_id?: string;
  readonly msg_type?: string;
  readonly session?: string;
  readonly subshell_id?: string | null;
}

const PHASES: Readonly<Record<Kernel.Status, Phase>> = {
  unknown: 'starting',
  starting: 'starting',
  idle: 'idle',
  busy: 'busy',
  terminating: 'dead',
  restarting: 'restarting',
  autorestarting: 'restarting',
  dead: 'dead'
};

const MAIN_SHELL = '';

/**
 * What the kernel of one connection is doing, derived from the kernel's messages, from JupyterLab's status and
 * from what the server sends.
 *
 * A kernel publishes `busy` and `idle` for every message that it handles, including messages on its control
 * channel and in subshells. The `idle` of such a message does not mean that the running cell has ended.
 */
export class KernelActivity {
  /** The last known phase, in which lost connections and running cells are not considered. */
  private known: Phase;
  private lastPhase: Phase;
  /** The id that the kernel's process has as a sender of messages. */
  private session: string | undefined;
  /**
   * The running request in each subshell; null if no message has shown yet whether a request is running. A
   * subshell handles one request at a time, so the next request replaces the previous one even if the previous
   * one's `idle` was lost.
   */
  private running: Map<string, RunningRequest> | null = null;
  /** The executions that a restart has interrupted, until JupyterLab reports why the kernel was restarted. */
  private interrupted: readonly Execution[] = [];
  /** The starts of the executions in the present process, by execution count. */
  private readonly starts = new Map<number, number>();
  /** The execution count of the last start. */
  private lastCount = 0;
  private busyOnServer = false;
  private requestsShown = false;
  private readonly changes = new Signal<this, ActivityChange>(this);
  /** The clock of the kernel's machine, from which the times of runs are taken. */
  readonly clockOffset = new ClockOffset();

  constructor(
    private readonly connection: Kernel.IKernelConnection,
    private readonly clock: Clock
  ) {
    this.known = PHASES[connection.status];
    this.lastPhase = this.phase;
    connection.statusChanged.connect(this.onStatusChanged, this);
    connection.connectionStatusChanged.connect(this.notify, this);
    connection.iopubMessage.connect(this.onIopubMessage, this);
    connection.disposed.connect(this.onDisposed, this);
  }

  get changed(): ISignal<this, ActivityChange> {
    return this.changes;
  }

  /**
   * The kernel's phase. It is `unreachable` after a lost connection, but not before the first connection or
   * during a restart.
   */
  get phase(): Phase {
    const { status, connectionStatus } = this.connection;
    const doubtful = this.known === 'idle' || status === 'unknown';
    const phase = doubtful && this.isRunning ? 'busy' : this.known;
    const isLost =
      connectionStatus === 'disconnected' ||
      (connectionStatus !== 'connected' && (phase === 'idle' || phase === 'busy'));
    return isLost && phase !== 'dead' ? 'unreachable' : phase;
  }

  /** The executions of the running cells, as far as this page has received the messages about their starts. */
  get executions(): readonly Execution[] {
    const running = [...(this.running?.values() ?? [])];
    return running.flatMap(({ execution }) => (execution === null ? [] : [execution]));
  }

  /**
   * Whether this version of JupyterLab shows this extension's requests as activity of the kernel, as versions
   * before 4.5 do.
   */
  get showsRequests(): boolean {
    return this.requestsShown;
  }

  /**
   * Return whether this page has seen the kernel's present process run a cell with this execution count and
   * start, and cells with these counts.
   */
  hasRun(
    { executionCount, started }: { readonly executionCount: number | null; readonly started: number | null },
    counts: readonly number[] = []
  ): boolean {
    const start = executionCount === null ? undefined : this.starts.get(executionCount);
    return (
      start !== undefined &&
      started !== null &&
      started > start - 1 && // The two times are from two readings of the clock.
      counts.every(count => this.starts.has(count))
    );
  }

  /**
   * Set whether the server reports the kernel as busy. This shows that a cell is running that was started
   * before this page was loaded.
   */
  setBusyOnServer(busy: boolean): void {
    this.busyOnServer = busy;
    this.notify();
  }

  /** Whether a cell is running. Until the kernel's messages show that, use what the server has sent. */
  private get isRunning(): boolean {
    return this.running === null ? this.busyOnServer : this.running.size > 0;
  }

  /**
   * Process JupyterLab's status. Changes between idle and busy are taken from IOPub messages instead, because
   * those also contain the request that caused the change.
   */
  private onStatusChanged(_: unknown, status: Kernel.Status): void {
    const isRoutine = status === 'idle' || status === 'busy';
    if (!isRoutine || (this.known !== 'idle' && this.known !== 'busy')) {
      this.setKnown(status);
    }
    const hasDied = status === 'autorestarting' || status === 'dead';
    if (hasDied || status === 'restarting') {
      this.endProcess();
    }
    // JupyterLab reports 'restarting' in any case, and then 'autorestarting' if the process has died.
    if (status !== 'restarting') {
      this.endInterrupted(hasDied ? 'died' : 'lost');
    }
    this.notify();
  }

  private onDisposed(): void {
    this.known = 'dead';
    this.endProcess();
    this.endInterrupted('lost');
  }

  private onIopubMessage(_: unknown, { header, parent_header, content }: KernelMessage.IIOPubMessage): void {
    const parent: ParentHeader = parent_header;
    const type: string = header.msg_type;
    if (type === 'status') {
      this.clockOffset.observe(Date.parse(header.date) / 1000, Date.now() / 1000);
      this.onPublished(
        (content as { execution_state: Kernel.Status }).execution_state,
        header.session,
        parent
      );
    } else if (type === 'execute_input' && parent.msg_id !== undefined) {
      const { code, execution_count: executionCount } = content as {
        code: string;
        execution_count: number | null;
      };
      const started = Date.parse(header.date) / 1000;
      this.start(parent, {
        request: parent.msg_id,
        code,
        executionCount,
        started,
        received: this.clock.now()
      });
    }
  }

  /** Process a status that the kernel has published. */
  private onPublished(published: Kernel.Status, session: string, parent: ParentHeader): void {
    // A restarted kernel has a new session id. Some kernels (such as IRkernel) have no session id and send
    // the request's session id instead.
    if (session !== this.session && session !== parent.session) {
      if (this.session !== undefined) {
        this.endProcess(); // Another client has restarted the kernel.
        this.endInterrupted('lost');
      }
      this.session = session;
    }
    this.setRunning(published, parent);
    const { status } = this.connection;
    if (parent.msg_type !== KERNEL_REQUEST) {
      // After another client has restarted the kernel, JupyterLab keeps the status 'starting' until a cell
      // runs, so use the status that the kernel has published.
      this.setKnown(status === 'starting' ? published : status);
    } else if (published === status && PHASES[status] !== this.known) {
      this.requestsShown = true;
    }
    this.notify();
  }

  private setRunning(published: Kernel.Status, parent: ParentHeader): void {
    const shell = parent.subshell_id ?? MAIN_SHELL;
    if (parent.msg_type === 'execute_request' && parent.msg_id !== undefined) {
      const isRunning = this.running?.get(shell)?.request === parent.msg_id;
      if (published === 'busy' && !isRunning) {
        this.replace(shell, { request: parent.msg_id, execution: null }, 'lost');
      } else if (published === 'idle') {
        this.running ??= new Map();
        if (isRunning) {
          this.replace(shell, null, 'finished');
        }
      }
    } else if (
      parent.msg_type === 'kernel_info_request' &&
      parent.session === this.connection.clientId &&
      shell === MAIN_SHELL
    ) {
      // JupyterLab sends a kernel_info_request to the main shell when it connects. The shell handles the
      // request only when no cell is running, so any earlier cell has ended.
      this.replace(MAIN_SHELL, null, 'lost');
    }
  }

  private start(parent: ParentHeader, execution: Execution): void {
    this.replace(parent.subshell_id ?? MAIN_SHELL, { request: execution.request, execution }, 'lost');
    const { executionCount, started } = execution;
    if (executionCount !== null) {
      if (executionCount < this.lastCount) {
        this.starts.clear(); // A lower count is that of a new process.
      }
      this.starts.set(executionCount, started);
      this.lastCount = executionCount;
    }
    this.changes.emit({ kind: 'started', execution });
  }

  /** Set the running request of a subshell. `outcome` is that of the previous one. */
  private replace(shell: string, request: RunningRequest | null, outcome: 'finished' | 'lost'): void {
    const running = (this.running ??= new Map<string, RunningRequest>());
    const execution = running.get(shell)?.execution ?? null;
    if (request === null) {
      running.delete(shell);
    } else {
      running.set(shell, request);
    }
    if (execution !== null) {
      this.changes.emit({ kind: 'ended', execution, outcome });
    }
  }

  private endProcess(): void {
    this.interrupted = [...this.interrupted, ...this.executions];
    this.running = new Map();
    this.session = undefined;
    this.starts.clear();
    this.changes.emit({ kind: 'process-ended' });
  }

  private endInterrupted(outcome: 'died' | 'lost'): void {
    const { interrupted } = this;
    this.interrupted = [];
    for (const execution of interrupted) {
      this.changes.emit({ kind: 'ended', execution, outcome });
    }
  }

  private setKnown(status: Kernel.Status): void {
    // The status 'unknown', for example after a lost connection, does not replace a known phase.
    if (status !== 'unknown') {
      this.known = PHASES[status];
    }
  }

  private notify(): void {
    const { phase } = this;
    if (phase !== this.lastPhase) {
      this.lastPhase = phase;
      this.changes.emit({ kind: 'phase' });
    }
  }
}

/** The parts of `KernelActivities` that other plugins use. */
export type IKernelActivities = Pick<KernelActivities, 'of' | 'follow'>;

/** The activities of all kernel connections of the notebooks. */
export class KernelActivities {
  private readonly activities = new WeakMap<Kernel.IKernelConnection, KernelActivity>();
  private readonly open = new Set<Kernel.IKernelConnection>();
  /** Ids of the kernels that the server reports as busy. */
  private busyOnServer: ReadonlySet<string> = new Set();

  constructor(private readonly clock: Clock) {}

  /** Return the activity of a connection. It is tracked from the first call on. */
  of(connection: Kernel.IKernelConnection): KernelActivity {
    const known = this.activities.get(connection);
    if (known !== undefined) {
      return known;
    }
    const activity = new KernelActivity(connection, this.clock);
    activity.setBusyOnServer(this.busyOnServer.has(connection.id));
    this.activities.set(connection, activity);
    this.open.add(connection);
    connection.disposed.connect(() => this.open.delete(connection));
    return activity;
  }

  /**
   * Call `action` for each notebook with a kernel, now and whenever it has another kernel. This is not limited
   * to the active notebook, because a cell's start is published only once.
   */
  follow(
    notebooks: INotebookTracker,
    action: (activity: KernelActivity, notebook: NotebookPanel, connection: Kernel.IKernelConnection) => void
  ): void {
    const connect = (notebook: NotebookPanel): void => {
      let last: Kernel.IKernelConnection | null = null;
      const call = (): void => {
        const connection = notebook.sessionContext.session?.kernel ?? null;
        if (connection !== null && connection !== last) {
          action(this.of(connection), notebook, connection);
        }
        last = connection;
      };
      notebook.sessionContext.kernelChanged.connect(call);
      call();
    };
    notebooks.widgetAdded.connect((_, notebook) => {
      connect(notebook);
    });
    notebooks.forEach(connect);
  }

  /** Process the states of all kernels that the server has sent. */
  receive({ kernels }: MemoryOwnership): void {
    const busy = kernels.filter(({ state }) => state === 'busy');
    this.busyOnServer = new Set(busy.map(({ id }) => id));
    for (const connection of this.open) {
      this.of(connection).setBusyOnServer(this.busyOnServer.has(connection.id));
    }
  }
}
