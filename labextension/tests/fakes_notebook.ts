import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import type { Kernel } from '@jupyterlab/services';
import { Signal } from '@lumino/signaling';

import { ok, settled } from './fakes';

/** The id of the session that this page uses for its requests. */
export const PAGE = 'this page';
/** The header of the request that runs a cell. */
export const CELL = { msg_id: 'cell', msg_type: 'execute_request', session: PAGE };

/** JupyterLab's connection to a kernel, which has gpuwidget. */
export class FakeConnection {
  readonly clientId = PAGE;
  readonly spec = Promise.resolve({ language: 'python' });
  readonly info: Promise<unknown> = Promise.resolve();
  readonly username = 'ada';
  status = 'unknown';
  connectionStatus = 'connected';
  readonly statusChanged = new Signal<this, string>(this);
  readonly connectionStatusChanged = new Signal<this, string>(this);
  readonly iopubMessage = new Signal<this, unknown>(this);
  readonly disposed = new Signal<this, void>(this);
  answers = true;

  constructor(readonly id = 'kernel-1') {}

  get real(): Kernel.IKernelConnection {
    return this as unknown as Kernel.IKernelConnection;
  }

  /** Publish a status, as the kernel's process `session` does. JupyterLab handles the status first. */
  publish(status: string, parent: object = {}, session = 'process 1'): void {
    this.change(status);
    this.publishUntracked(status, parent, session);
  }

  /** Publish a status about a request that does not change JupyterLab's status of the kernel. */
  publishUntracked(status: string, parent: object, session = 'process 1', date?: number): void {
    this.send('status', parent, { execution_state: status }, session, date);
  }

  /** Start a cell with this code, whose execution count is `count`. */
  begin(parent: object = CELL, count = 1, date = 0, code = ''): void {
    this.publish('busy', parent);
    this.send('execute_input', parent, { code, execution_count: count }, 'process 1', date);
  }

  /** Change the status, as JupyterLab does by itself. */
  change(status: string): void {
    if (status !== this.status) {
      this.status = status;
      this.statusChanged.emit(status);
    }
  }

  /** Change the status of the connection, as if the server were not reachable or reachable again. */
  connect(status: string): void {
    this.connectionStatus = status;
    if (this.status !== 'dead' && status !== 'connected') {
      this.change('unknown');
    }
    this.connectionStatusChanged.emit(status);
  }

  /** Close the connection, as JupyterLab does if it has another kernel or if the kernel is dead. */
  dispose(): void {
    this.disposed.emit();
    this.connect('disconnected');
    Signal.clearData(this);
  }

  sendControlMessage(): object {
    const future = {
      onReply: doNothing as (reply: unknown) => void,
      done: this.answers ? new Promise(() => undefined) : Promise.reject(new Error('Canceled')),
      dispose: doNothing
    };
    void settled().then(() => {
      if (this.answers) {
        future.onReply({ header: { msg_type: 'gpuwidget_reply' }, content: ok({ watching: true }) });
      }
    });
    return future;
  }

  private send(
    type: string,
    parent: object,
    content: object,
    session: string,
    date = Date.now() / 1000
  ): void {
    this.iopubMessage.emit({
      header: { msg_type: type, session, date: new Date(date * 1000).toISOString() },
      parent_header: parent,
      content
    });
  }
}

/** A notebook of JupyterLab with its connection to a kernel. */
export class FakeNotebook {
  readonly statusChanged = new Signal<this, string>(this);
  readonly connectionStatusChanged = new Signal<this, string>(this);
  readonly iopubMessage = new Signal<this, unknown>(this);
  readonly kernelChanged = new Signal<this, void>(this);
  readonly panel: NotebookPanel;
  private readonly session: { kernel: FakeConnection | null } = { kernel: null };
  private display = '';

  constructor(name: string, widgets: readonly object[] = []) {
    const { session, statusChanged, connectionStatusChanged, iopubMessage, kernelChanged } = this;
    const context = { localPath: `${name}.ipynb`, pathChanged: new Signal(this) };
    const content = { widgets, modelChanged: new Signal(this) };
    const sessionContext = {
      session,
      isReady: true,
      hasNoKernel: false,
      statusChanged,
      connectionStatusChanged,
      iopubMessage,
      kernelChanged
    };
    Object.defineProperty(sessionContext, 'kernelDisplayStatus', { get: () => this.displayStatus });
    this.panel = { context, content, sessionContext } as unknown as NotebookPanel;
    this.setKernel(new FakeConnection(name));
  }

  get connection(): FakeConnection {
    if (this.session.kernel === null) {
      throw new Error('The notebook has no kernel.');
    }
    return this.session.kernel;
  }

  /** Connect the notebook to another kernel, or to none. */
  setKernel(kernel: FakeConnection | null): void {
    this.session.kernel?.dispose();
    this.session.kernel = kernel;
    kernel?.statusChanged.connect((_, status) => {
      this.statusChanged.emit(status);
    });
    kernel?.connectionStatusChanged.connect((_, status) => {
      this.connectionStatusChanged.emit(status);
    });
    kernel?.iopubMessage.connect((_, message) => {
      this.iopubMessage.emit(message);
    });
    this.kernelChanged.emit();
  }

  /** Show that JupyterLab is shutting the kernel down or replacing it; an empty text if it no longer is. */
  replace(status: 'terminating' | 'starting' | ''): void {
    this.display = status;
    this.statusChanged.emit(status === '' ? this.connection.status : status);
  }

  private get displayStatus(): string {
    const { kernel } = this.session;
    return this.display !== '' ? this.display : (kernel?.status ?? 'unknown');
  }
}

/** The notebooks of a page, the first of which is active. */
export class FakeNotebooks {
  readonly currentChanged = new Signal<this, void>(this);
  readonly widgetAdded = new Signal<this, NotebookPanel>(this);
  currentWidget: NotebookPanel | null;

  constructor(private readonly notebooks: readonly FakeNotebook[]) {
    this.currentWidget = notebooks[0]?.panel ?? null;
  }

  get real(): INotebookTracker {
    return this as unknown as INotebookTracker;
  }

  show(notebook: FakeNotebook | null): void {
    this.currentWidget = notebook?.panel ?? null;
    this.currentChanged.emit();
  }

  forEach(call: (panel: NotebookPanel) => void): void {
    this.notebooks.forEach(({ panel }) => {
      call(panel);
    });
  }
}

function doNothing(): void {
  // Nothing is to be done.
}
