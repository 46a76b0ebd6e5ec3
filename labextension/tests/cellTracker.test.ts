import { FakeCodeCell, mount, newCells } from './fakes_dom';

import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import type { Notebook } from '@jupyterlab/notebook';
import { Signal } from '@lumino/signaling';

import { CellRuns, type CellRunSources, type FinishedCell } from '../src/model/cells/cellRuns';
import { CellTracker, insertBelow } from '../src/model/cells/cellTracker';
import { ReportReader } from '../src/model/cells/reportReader';
import { KernelActivities } from '../src/model/kernel/kernelActivity';
import { FakeClock, sample, settled } from './fakes';
import { FakeCells } from './fakes_cells';
import { CELL, FakeConnection } from './fakes_notebook';

/** A notebook of JupyterLab with code cells, whose kernel's messages a test sends. */
class FakePanel {
  readonly id: string;
  isDisposed = false;
  readonly node = document.createElement('div');
  readonly sessionContext = {
    session: { kernel: new FakeConnection() },
    kernelChanged: new Signal<object, unknown>({})
  };
  readonly context: { localPath: string };
  /** The indexes of the cells to which the notebook has scrolled. */
  readonly scrolled: number[] = [];
  readonly content = {
    node: document.createElement('div'),
    widgets: [new FakeCodeCell('a'), new FakeCodeCell('b')],
    activeCell: null as FakeCodeCell | null,
    isAttached: true,
    mode: 'edit',
    model: { cells: new FakeCells([]) },
    modelChanged: new Signal<object, unknown>({}),
    deselectAll: () => undefined,
    activate: () => {
      this.content.node.focus();
    },
    scrollToItem: (index: number) => {
      this.scrolled.push(index);
      return this.scroll();
    }
  };
  /** What happens while the notebook scrolls. */
  scroll = (): Promise<void> => Promise.resolve();

  constructor(name: string) {
    this.id = name;
    this.context = { localPath: `folder/${name}.ipynb` };
    this.content.node.tabIndex = 0;
    const { content } = this;
    Object.defineProperty(content, 'activeCellIndex', {
      set: (index: number) => {
        content.activeCell = content.widgets[index] ?? null;
      }
    });
    content.node.append(...content.widgets.map(({ node }) => node));
    this.node.append(content.node);
  }

  /** Request the execution of a cell; it is queued until the kernel starts it. */
  request(index: number, id: string): void {
    const cell = this.content.widgets[index];
    assert.ok(cell);
    cell.outputArea = { future: { msg: { header: { msg_id: id } } } };
  }

  get connection(): FakeConnection {
    return this.sessionContext.session.kernel;
  }

  start(request: string, count: number): void {
    this.connection.begin({ ...CELL, msg_id: request }, count);
  }

  end(request: string): void {
    this.connection.publishUntracked('idle', { ...CELL, msg_id: request });
  }
}

interface SetUp {
  readonly clock: FakeClock;
  readonly runs: CellRuns;
  readonly running: () => string | null;
  readonly finished: FinishedCell[];
  readonly activated: string[];
  show(panel: FakePanel | null): void;
}

function setUp(...panels: FakePanel[]): SetUp {
  const clock = new FakeClock();
  const kernels = {
    changed: new Signal<object, void>({}),
    state: null,
    view: { silentFor: null }
  };
  const sources = { model: { sample: sample(1000) }, kernels } as unknown as CellRunSources;
  const runs = new CellRuns(sources, new ReportReader(), clock);
  const running = (): string | null => runs.running?.cellId ?? null;
  const finished: FinishedCell[] = [];
  runs.finished.connect((_, cell) => finished.push(cell));
  const tracker = {
    currentWidget: panels[0] ?? null,
    currentChanged: new Signal<object, void>({}),
    widgetAdded: new Signal<object, FakePanel>({}),
    forEach: (action: (panel: FakePanel) => void) => {
      panels.forEach(action);
    }
  };
  const activated: string[] = [];
  const shell = { activateById: (id: string) => activated.push(id) };
  new CellTracker(tracker as never, shell as never, runs, new KernelActivities(clock), clock);
  mount(document.createElement('div'));
  document.body.append(...panels.map(({ node }) => node));
  return {
    ...{ clock, runs, running, finished, activated },
    show: panel => {
      tracker.currentWidget = panel;
      tracker.currentChanged.emit();
    }
  };
}

test('a queued cell runs once the kernel has started it, until the kernel is idle again for it', async () => {
  const panel = new FakePanel('train');
  const { clock, runs, finished } = setUp(panel);
  const runningCell = (): unknown[] => [runs.running?.cellId, runs.running?.executionCount];
  panel.request(0, 'first');
  panel.request(1, 'second');
  assert.deepEqual(runningCell(), [undefined, undefined]);
  panel.start('first', 3);
  assert.deepEqual(runningCell(), ['a', 3]);
  await clock.pass(4000);
  panel.end('another request');
  assert.deepEqual(runningCell(), ['a', 3]);
  panel.end('first');
  panel.start('second', 4);
  assert.deepEqual(runningCell(), ['b', 4]);
  const [cell] = finished;
  assert.ok(cell);
  assert.deepEqual(
    [finished.length, cell.notebook, cell.executionCount, cell.seconds, cell.died],
    [1, 'train.ipynb', 3, 4, false]
  );
});

test('code that another client runs is no cell of this notebook', () => {
  const panel = new FakePanel('train');
  const { running } = setUp(panel);
  panel.request(0, 'first');
  panel.start('of another page', 3);
  assert.equal(running(), null);
});

test('a cell that starts and ends while another notebook is active is known', () => {
  const [train, other] = [new FakePanel('train'), new FakePanel('other')];
  const { running, show } = setUp(train, other);
  show(other);
  train.request(0, 'first');
  train.start('first', 3);
  const shown = [running()];
  show(train);
  shown.push(running());
  show(other);
  train.end('first');
  show(train);
  shown.push(running());
  assert.deepEqual(shown, [null, 'a', null]);
});

test('a kernel that dies ends its cell, which is reported; a restart by the user ends it silently', () => {
  // JupyterLab reports 'restarting' in any case, and then 'autorestarting' if the process has died.
  for (const [died, ...statuses] of [
    [true, 'dead'],
    [true, 'restarting', 'autorestarting'],
    [false, 'restarting', 'unknown', 'idle']
  ] as const) {
    const panel = new FakePanel('train');
    const { running, finished } = setUp(panel);
    panel.request(0, 'first');
    panel.start('first', 3);
    for (const status of statuses) {
      panel.connection.change(status);
      assert.equal(running(), null);
    }
    assert.deepEqual(
      finished.map(cell => cell.died),
      died ? [true] : []
    );
  }
});

test('a cell is not shown as running while the connection to its kernel is lost', () => {
  const panel = new FakePanel('train');
  const { running } = setUp(panel);
  panel.request(0, 'first');
  panel.start('first', 3);
  panel.connection.connect('connecting');
  assert.equal(running(), null);
  panel.connection.connect('connected');
  assert.equal(running(), 'a');
});

test('another kernel of the notebook has no running cell and an unknown clock', () => {
  const panel = new FakePanel('train');
  const { running, runs, finished } = setUp(panel);
  panel.request(0, 'first');
  panel.start('first', 3);
  panel.connection.publishUntracked('busy', {}, 'process 1', Date.now() / 1000 + 600);
  assert.ok(runs.clockSkew.seconds !== null);
  panel.connection.dispose();
  panel.sessionContext.session.kernel = new FakeConnection();
  panel.sessionContext.kernelChanged.emit(null);
  assert.deepEqual([running(), runs.clockSkew.seconds, finished], [null, null, []]);
});

/** Return a panel whose second cell is in the document only after the notebook has scrolled twice. */
function windowed(): FakePanel {
  const panel = new FakePanel('train');
  const [first, second] = panel.content.widgets;
  const rectangle = { top: 0, bottom: 10, height: 10 } as DOMRect;
  for (const cell of [first, second]) {
    assert.ok(cell);
    cell.node.scrollIntoView = () => undefined;
    cell.node.getBoundingClientRect = () => rectangle;
    cell.node.getClientRects = () =>
      (panel.scrolled.length >= 2 ? [rectangle] : []) as unknown as DOMRectList;
  }
  return panel;
}

test('a click in the list goes to a cell that is not displayed yet, and focuses the notebook', async () => {
  const panel = windowed();
  const { runs, activated } = setUp(panel);
  runs.reveal('b');
  await settled();
  assert.deepEqual([panel.scrolled, activated, panel.content.mode], [[1, 1], ['train'], 'command']);
  assert.equal(panel.content.activeCell, panel.content.widgets[1]);
  assert.equal(document.activeElement, panel.content.node);
});

test('a late scroll does not take the focus from where the user has gone meanwhile', async () => {
  const panel = windowed();
  const { runs } = setUp(panel);
  const input = document.createElement('input');
  document.body.append(input);
  panel.scroll = () => {
    input.focus();
    return Promise.resolve();
  };
  runs.reveal('b');
  await settled();
  assert.equal(document.activeElement, input);
});

test('scrolling ends if the user has gone to another cell', async () => {
  const panel = windowed();
  const { runs } = setUp(panel);
  panel.scroll = () => {
    panel.content.activeCell = panel.content.widgets[0] ?? null;
    return Promise.resolve();
  };
  runs.reveal('b');
  await settled();
  assert.deepEqual(panel.scrolled, [1]);
});

test('a cell that was deleted a moment ago is not shown, and nothing fails', async () => {
  const panel = windowed();
  const { runs, activated } = setUp(panel);
  runs.reveal('deleted');
  await settled();
  assert.deepEqual([panel.scrolled, activated], [[], []]);
});

test('inserted code is in a code cell, also if the user’s default is another type', () => {
  const panel = new FakePanel('train');
  for (const type of ['code', 'markdown']) {
    newCells.type = type;
    insertBelow(panel.content as unknown as Notebook, '%gpu memory');
    const { activeCell } = panel.content;
    assert.deepEqual([activeCell?.model.type, activeCell?.model.sharedModel.source], ['code', '%gpu memory']);
  }
});
