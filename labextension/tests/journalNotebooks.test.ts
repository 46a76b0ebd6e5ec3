import { FakeCodeCell, mount } from './fakes_dom';

import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { Signal } from '@lumino/signaling';

import { OpenNotebooks } from '../src/model/cells/journalNotebooks';
import type { JournalNotebook } from '../src/model/cells/journalModel';
import { KernelActivities } from '../src/model/kernel/kernelActivity';
import { FakeClock, settled } from './fakes';
import { journalRun, NOON } from './fakes_journal';
import { CELL, FakeConnection } from './fakes_notebook';

/** A code cell as in a notebook's model. */
class ModelCell {
  readonly added: unknown[] = [];
  readonly outputs = { length: 0, add: (output: unknown) => this.added.push(output) };

  constructor(
    readonly id: string,
    readonly type = 'code'
  ) {}
}

/** A notebook of JupyterLab. */
class FakePanel {
  isDisposed = false;
  readonly connection = new FakeConnection('kernel-1');
  readonly revealed = Promise.resolve();
  readonly sessionContext = {
    session: { kernel: this.connection as FakeConnection | null },
    kernelChanged: new Signal<object, unknown>({}),
    connectionStatusChanged: new Signal<object, string>({})
  };
  readonly context: Record<string, unknown> & { saveState: Signal<object, string> };
  readonly cells: ModelCell[];
  readonly widgets: (FakeCodeCell & { model: { executionState?: string; executionCount?: number | null } })[];
  readonly content: {
    widgets: unknown;
    model: { cells: ModelCell[]; dirty: boolean };
    modelChanged: unknown;
  };

  constructor(path: string, ...ids: string[]) {
    this.cells = [...ids.map(id => new ModelCell(id)), new ModelCell('text', 'markdown')];
    this.widgets = ids.map(id => new FakeCodeCell(id));
    this.content = {
      widgets: this.widgets,
      model: { cells: this.cells, dirty: true },
      modelChanged: new Signal({})
    };
    this.context = {
      localPath: path,
      isReady: true,
      ready: Promise.resolve(),
      pathChanged: new Signal({}),
      saveState: new Signal<object, string>({})
    };
  }
}

/** A page with notebooks, the first of which is active. */
class FakePage {
  readonly events: string[] = [];
  readonly commands: unknown[] = [];
  readonly revealed: unknown[] = [];
  readonly tracker;
  readonly open: OpenNotebooks;

  constructor(readonly panels: FakePanel[]) {
    this.tracker = {
      currentWidget: panels[0] ?? null,
      currentChanged: new Signal<object, unknown>({}),
      widgetAdded: new Signal<object, FakePanel>({}),
      forEach: (action: (panel: FakePanel) => void) => {
        panels.forEach(action);
      },
      find: (accept: (panel: FakePanel) => boolean) => panels.find(accept)
    };
    const app = {
      shell: {},
      commands: {
        execute: (...call: unknown[]) => {
          this.commands.push(call);
          return Promise.resolve();
        }
      }
    };
    this.open = new OpenNotebooks(
      this.tracker as never,
      app as never,
      new KernelActivities(new FakeClock()),
      (_, __, cellId) => Promise.resolve(void this.revealed.push(cellId))
    );
    const model = {
      update: () => this.events.push('update'),
      refresh: () => this.events.push('refresh'),
      reconnect: () => this.events.push('reconnect'),
      onSaved: ({ name }: JournalNotebook) => this.events.push(`saved ${name}`),
      onActivity: (_: JournalNotebook, { kind }: { kind: string }) => this.events.push(kind)
    };
    this.open.connect(model as never);
    this.events.length = 0;
    mount(document.createElement('div'));
  }
}

test('an open notebook has its path, its kernel and its cells', () => {
  const page = new FakePage([new FakePanel('work/train.ipynb', 'cell-7')]);
  const { active } = page.open;
  assert.deepEqual(
    [
      active?.path,
      active?.name,
      active?.kernel,
      active?.isSaved,
      [...(active?.cells ?? [])].map(({ id }) => id)
    ],
    ['work/train.ipynb', 'train.ipynb', 'kernel-1', false, ['cell-7', 'text']]
  );
  assert.equal(page.open.all.length, 1);
});

test('a notebook without a kernel, that is not loaded, or that is closed, does no harm', () => {
  const panel = new FakePanel('a.ipynb');
  const page = new FakePage([panel]);
  panel.sessionContext.session.kernel = null;
  panel.context.isReady = false;
  const { active } = page.open;
  assert.deepEqual([active?.kernel, active?.activity, active?.cells], [null, null, null]);
  panel.isDisposed = true;
  assert.deepEqual([page.open.active, page.open.all], [null, []]);
  const none = new OpenNotebooks(null, {} as never, new KernelActivities(new FakeClock()), () =>
    Promise.resolve()
  );
  none.connect({} as never);
  assert.deepEqual([none.active, none.all], [null, []]);
});

test('the card becomes an output that is marked as one of gpuwidget, only in its code cell', () => {
  const panel = new FakePanel('a.ipynb', 'cell-7', 'cell-8');
  const page = new FakePage([panel]);
  page.open.active?.addCard('cell-7', { 'text/plain': 'card' });
  page.open.active?.addCard('text', { 'text/plain': 'card' });
  assert.deepEqual(
    panel.cells.map(({ added }) => added),
    [[{ output_type: 'display_data', data: { 'text/plain': 'card' }, metadata: { gpuwidget: true } }], [], []]
  );
  page.open.active?.reveal('cell-7');
  assert.deepEqual(page.revealed, ['cell-7']);
});

test('a cell is running while the kernel executes it, or while it is queued', () => {
  const panel = new FakePanel('a.ipynb', 'cell-7', 'cell-8');
  const page = new FakePage([panel]);
  const running = (): unknown[] =>
    panel.widgets.map(({ model: { id } }) => page.open.active?.cellState(id).isRunning);
  const [first, second] = panel.widgets;
  assert.ok(first && second);
  first.outputArea = { future: { msg: { header: { msg_id: 'first' } } } };
  panel.connection.change('idle');
  assert.deepEqual(running(), [false, false]);
  panel.connection.begin({ ...CELL, msg_id: 'of another page' });
  assert.equal(page.open.active?.runsOwnCell, false);
  panel.connection.begin({ ...CELL, msg_id: 'first' }, 7, NOON);
  assert.equal(page.open.active.runsOwnCell, true);
  second.model.executionState = 'running';
  assert.deepEqual(running(), [true, true]);
  assert.equal(page.open.active.cellState('cell-7').started, NOON);
  // The message about the end of the queued cell is lost, but the kernel is idle.
  panel.connection.publish('idle', { ...CELL, msg_id: 'first' });
  assert.deepEqual(running(), [false, false]);
  assert.deepEqual(page.open.active.cellState('text'), {
    isRunning: false,
    executionCount: null,
    started: null
  });
});

test('a run’s notebook is the one that has its cell', () => {
  const copy = new FakePanel('work/train.ipynb');
  const own = new FakePanel('renamed.ipynb', 'cell-7');
  const page = new FakePage([copy, own]);
  assert.equal(page.open.find(journalRun())?.path, 'renamed.ipynb');
  own.cells.length = 0;
  assert.equal(page.open.find(journalRun())?.path, 'work/train.ipynb');
  assert.equal(page.open.find(journalRun({ path: 'x.ipynb', kernel: 'x' })), undefined);
});

test('a closed notebook is opened by JupyterLab, or in another page by Notebook 7', async () => {
  const panel = new FakePanel('b.ipynb');
  const page = new FakePage([panel]);
  assert.equal((await page.open.open(journalRun({ path: 'b.ipynb' })))?.path, 'b.ipynb');
  assert.equal(await page.open.open(journalRun({ path: 'c.ipynb' })), undefined);
  assert.deepEqual(page.commands, [
    ['docmanager:open', { path: 'b.ipynb', factory: 'Notebook' }],
    ['docmanager:open', { path: 'c.ipynb', factory: 'Notebook' }]
  ]);
});

test('the list is requested when a notebook is opened, activated, renamed, or gets another kernel', async () => {
  const page = new FakePage([new FakePanel('a.ipynb')]);
  const [panel] = page.panels;
  await settled();
  assert.deepEqual(page.events.splice(0), ['update', 'refresh']);
  for (const signal of [
    page.tracker.currentChanged,
    panel?.sessionContext.kernelChanged,
    panel?.context.pathChanged
  ]) {
    (signal as Signal<object, unknown>).emit(undefined);
    assert.deepEqual(page.events.splice(0), ['update', 'refresh']);
  }
  page.tracker.widgetAdded.emit(new FakePanel('b.ipynb'));
  await settled();
  assert.deepEqual(page.events.splice(0), ['update', 'refresh']);
});

test('the model learns of saved files, returning connections and of what kernels do', () => {
  const panel = new FakePanel('a.ipynb', 'cell-7');
  const page = new FakePage([panel]);
  for (const state of ['started', 'failed', 'completed', 'completed manually']) {
    panel.context.saveState.emit(state);
  }
  // The first connection is not one that returns.
  for (const status of ['connecting', 'connected', 'connecting', 'connected']) {
    panel.sessionContext.connectionStatusChanged.emit(status);
  }
  assert.deepEqual(page.events.splice(0), ['saved a.ipynb', 'saved a.ipynb', 'reconnect']);
  panel.connection.begin();
  assert.deepEqual(page.events.splice(0), ['phase', 'started']);
  panel.isDisposed = true; // The document and the kernel may still be open in another view.
  panel.context.saveState.emit('completed');
  panel.connection.begin({ ...CELL, msg_id: 'next' });
  assert.deepEqual(page.events, []);
});
