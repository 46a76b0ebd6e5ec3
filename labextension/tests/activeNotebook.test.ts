import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import type { INotebookTracker } from '@jupyterlab/notebook';
import { Signal } from '@lumino/signaling';

import { ActiveKernel, type KernelView } from '../src/model/kernel/activeKernel';
import { ActiveNotebookTracker, type ExecutedCell } from '../src/model/kernel/activeNotebook';
import type { ReceivedMessage } from '../src/wire/wire';
import { FakeClock, hello, ok, serverKernel, settled, usage } from './fakes';

const PAGE = 'this page';
const CELL = { msg_id: 'cell', msg_type: 'execute_request', session: PAGE };

/** A notebook of JupyterLab with its connection to a kernel, which has gpuwidget. */
class FakeNotebook {
  status = 'unknown';
  readonly connection: Record<string, unknown>;
  readonly statusChanged = new Signal<this, string>(this);
  readonly iopubMessage = new Signal<this, unknown>(this);
  readonly panel: unknown;
  answers = true;

  constructor(name: string) {
    this.connection = {
      id: name,
      clientId: PAGE,
      connectionStatus: 'connected',
      spec: Promise.resolve({ language: 'python' }),
      sendControlMessage: () => this.request()
    };
    Object.defineProperty(this.connection, 'status', { get: () => this.status });
    const { statusChanged, iopubMessage } = this;
    this.panel = {
      context: { localPath: `${name}.ipynb`, pathChanged: new Signal(this) },
      content: {},
      sessionContext: {
        session: { kernel: this.connection },
        statusChanged,
        iopubMessage,
        kernelChanged: new Signal(this),
        connectionStatusChanged: new Signal(this)
      }
    };
  }

  /** Publish a status, as the kernel's process `session` does. JupyterLab handles the status first. */
  publish(status: string, parent: object = {}, session = 'process 1'): void {
    this.change(status);
    this.iopubMessage.emit({
      header: { msg_type: 'status', session },
      parent_header: parent,
      content: { execution_state: status }
    });
  }

  /** Change the status, as JupyterLab does by itself. */
  change(status: string): void {
    this.status = status;
    this.statusChanged.emit(status);
  }

  private request(): object {
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
}

/** A page that shows the first of two notebooks. */
class Page {
  readonly notebooks = [new FakeNotebook('one'), new FakeNotebook('two')] as const;
  private readonly kernels = new ActiveKernel(new FakeClock());
  private readonly currentChanged = new Signal<this, void>(this);
  private readonly tracker: ActiveNotebookTracker;
  currentWidget = this.notebooks[0].panel;

  constructor() {
    globalThis.window = globalThis as unknown as typeof window;
    this.kernels.setPanelVisible(true);
    const { currentChanged, notebooks } = this;
    const tracker = {
      currentChanged,
      widgetAdded: new Signal(this),
      forEach: (call: (panel: unknown) => void) => {
        notebooks.forEach(({ panel }) => {
          call(panel);
        });
      }
    };
    Object.defineProperty(tracker, 'currentWidget', { get: () => this.currentWidget });
    const executed = new Signal<unknown, ExecutedCell>(this);
    this.tracker = new ActiveNotebookTracker(
      tracker as unknown as INotebookTracker,
      this.kernels,
      'en',
      executed
    );
  }

  async show(index: 0 | 1): Promise<void> {
    this.currentWidget = this.notebooks[index].panel;
    this.currentChanged.emit();
    await this.settle();
  }

  receive(message: ReceivedMessage): void {
    this.tracker.receive(message);
  }

  async settle(): Promise<void> {
    await settled();
    await settled();
  }

  get view(): KernelView {
    return this.kernels.view;
  }
}

const BUSY = usage([serverKernel('one', { state: 'busy' })], []);

test('after a reload during a running cell, a tab switch does not make the kernel look restarted', async () => {
  const page = new Page();
  page.receive(hello());
  page.receive(BUSY);
  await page.settle();
  assert.deepEqual([page.view.condition.kind, page.view.busy, page.view.restarted], ['ready', true, false]);
  await page.show(1);
  page.receive(hello()); // The panel was hidden meanwhile, so the stream is a new one.
  await page.show(0);
  assert.deepEqual([page.view.condition.kind, page.view.busy, page.view.restarted], ['ready', true, false]);
  page.receive(usage([serverKernel('one', { state: 'idle' })], []));
  page.receive(BUSY);
  await page.settle();
  assert.deepEqual([page.view.condition.kind, page.view.restarted], ['ready', false]);
});

for (const another of [false, true]) {
  const where = another ? ' while another notebook is active' : '';
  test(`a kernel whose process another client has replaced${where} is reported as restarted`, async () => {
    const page = new Page();
    const [notebook] = page.notebooks;
    notebook.publish('busy', CELL);
    notebook.publish('idle', CELL);
    await page.settle();
    assert.deepEqual([page.view.condition.kind, page.view.restarted], ['ready', false]);
    if (another) {
      await page.show(1);
    }
    notebook.answers = false;
    notebook.publish('starting', {}, 'process 2');
    notebook.publish('idle', CELL, 'process 2');
    await page.show(0);
    assert.deepEqual([page.view.condition.kind, page.view.restarted], ['not-loaded', true]);
  });

  test(`a kernel that JupyterLab restarts${where} is reported as restarted`, async () => {
    const page = new Page();
    const [notebook] = page.notebooks;
    notebook.publish('busy', CELL);
    notebook.publish('idle', CELL);
    await page.settle();
    if (another) {
      await page.show(1);
    }
    notebook.answers = false;
    notebook.change('restarting');
    notebook.change('idle');
    notebook.publish('idle', {}, 'process 2');
    await page.show(0);
    assert.deepEqual([page.view.condition.kind, page.view.restarted], ['not-loaded', true]);
  });
}

function doNothing(): void {
  // Nothing is to be done.
}
