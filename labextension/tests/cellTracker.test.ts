import { FakeCodeCell, mount, newCells } from './fakes_dom';

import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import type { Notebook } from '@jupyterlab/notebook';
import { Signal } from '@lumino/signaling';

import { CellRuns, RunningCells, type CellRunSources, type FinishedCell } from '../src/model/cells/cellRuns';
import { CellTracker, insertBelow } from '../src/model/cells/cellTracker';
import { ReportReader } from '../src/model/cells/reportReader';
import type { KernelView } from '../src/model/kernel/activeKernel';
import { FakeClock, sample, settled } from './fakes';
import { FakeCells } from './fakes_cells';

/** A notebook of JupyterLab with code cells, whose kernel's messages a test sends. */
class FakePanel {
  readonly id: string;
  isDisposed = false;
  readonly node = document.createElement('div');
  readonly sessionContext = {
    session: null,
    iopubMessage: new Signal<object, unknown>({}),
    kernelChanged: new Signal<object, unknown>({}),
    statusChanged: new Signal<object, string>({})
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

  send(type: string, request: string, content: object, date = new Date().toISOString()): void {
    this.sessionContext.iopubMessage.emit({
      header: { msg_type: type, date },
      parent_header: { msg_id: request },
      content
    });
  }

  start(request: string, count: number): void {
    this.send('execute_input', request, { execution_count: count });
  }

  end(request: string): void {
    this.send('status', request, { execution_state: 'idle' });
  }
}

interface SetUp {
  readonly clock: FakeClock;
  readonly runs: CellRuns;
  readonly running: RunningCells;
  readonly finished: FinishedCell[];
  readonly activated: string[];
  show(panel: FakePanel | null): void;
}

function setUp(...panels: FakePanel[]): SetUp {
  const clock = new FakeClock();
  const running = new RunningCells();
  const kernels = {
    changed: new Signal<object, void>({}),
    state: null,
    view: { busy: true, silentFor: null } as KernelView
  };
  const sources = { model: { sample: sample(1000) }, kernels } as unknown as CellRunSources;
  const runs = new CellRuns(sources, new ReportReader(), running, clock);
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
  new CellTracker(tracker as never, shell as never, runs, running, clock);
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
  const { clock, running, finished } = setUp(panel);
  const runningCell = (): unknown[] => {
    const cell = running.get(panel);
    return [cell?.cellId, cell?.executionCount];
  };
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
  assert.equal(running.get(panel), null);
});

test('a cell that starts and ends while another notebook is active is known', () => {
  const [train, other] = [new FakePanel('train'), new FakePanel('other')];
  const { running, show, runs } = setUp(train, other);
  show(other);
  train.request(0, 'first');
  train.start('first', 3);
  const shown = [runs.running?.cellId];
  show(train);
  shown.push(runs.running?.cellId);
  show(other);
  train.end('first');
  show(train);
  shown.push(runs.running?.cellId);
  assert.deepEqual([shown, running.get(train)], [[undefined, 'a', undefined], null]);
});

test('a kernel that dies ends its cell, which is reported; a restart by the user ends it silently', () => {
  const panel = new FakePanel('train');
  const { running, finished } = setUp(panel);
  for (const status of ['dead', 'autorestarting', 'restarting']) {
    panel.request(0, status);
    panel.start(status, 3);
    panel.sessionContext.statusChanged.emit(status);
    assert.equal(running.get(panel), null);
  }
  assert.deepEqual(
    finished.map(({ died }) => died),
    [true, true]
  );
});

test('another kernel of the notebook has no running cell and an unknown clock', () => {
  const panel = new FakePanel('train');
  const { running, runs } = setUp(panel);
  const ahead = new Date(Date.now() + 600_000).toISOString();
  panel.request(0, 'first');
  panel.start('first', 3);
  panel.send('status', 'first', { execution_state: 'busy' }, ahead);
  assert.ok(runs.clockSkew.seconds !== null);
  panel.sessionContext.kernelChanged.emit(null);
  assert.deepEqual([running.get(panel), runs.clockSkew.seconds], [null, null]);
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
