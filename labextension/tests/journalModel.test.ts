import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import type { Execution } from '../src/model/kernel/kernelActivity';
import { FakeClock } from './fakes';
import { codeCell, FakeCells } from './fakes_cells';
import {
  cardOf,
  ENDED,
  FakeJournalNotebook,
  FakeJournalPage,
  FakeStorage,
  journalRun,
  NOON
} from './fakes_journal';

const RUNNING = journalRun({ state: 'running', status: null, started: NOON - 4000, seconds: 4000 });

/** Return a page whose notebook is running cell 7, which began before the page was opened. */
async function busyPage(): Promise<FakeJournalPage> {
  const page = new FakeJournalPage();
  page.notebook.activity = { phase: 'busy' };
  page.source.list = [RUNNING];
  await page.load(0);
  return page;
}

function execution(received: number): Execution {
  return { request: 'x', code: '', executionCount: 7, started: NOON, received };
}

test('a run that ended while the page was closed is offered and announced once', async () => {
  const page = new FakeJournalPage();
  page.source.list = [journalRun()];
  await page.load();
  assert.deepEqual([page.offered, page.announced], [['run-7'], ['run-7']]);
  await page.load();
  assert.deepEqual([page.offered, page.announced], [['run-7'], ['run-7']]);
  assert.equal(page.news[0]?.[0]?.name, 'train.ipynb');
});

test('another page of the same user does not announce it again, but offers it', async () => {
  const storage = new FakeStorage();
  const first = new FakeJournalPage(new FakeClock(), storage);
  first.source.list = [journalRun()];
  await first.load();
  const second = new FakeJournalPage(new FakeClock(), storage);
  second.source.list = [journalRun()];
  await second.load();
  assert.deepEqual([first.announced, second.announced, second.offered], [['run-7'], [], ['run-7']]);
});

test('a run whose card is in the outputs of any cell is neither offered nor announced', async () => {
  const page = new FakeJournalPage();
  page.notebook.cells = new FakeCells([codeCell('cell-7'), codeCell('copy', cardOf(journalRun()))]);
  page.source.list = [journalRun()];
  await page.load();
  assert.deepEqual([page.offered, page.announced], [[], []]);
});

test('once the card is in the outputs, the run is no longer offered', async () => {
  const page = new FakeJournalPage();
  page.source.list = [journalRun()];
  await page.load();
  page.notebook.cell7.outputs.add(cardOf(journalRun()));
  page.model.update();
  assert.deepEqual(page.offered, []);
});

test('a card that the user has removed is not offered again, in this page and after a reload', async () => {
  const page = new FakeJournalPage();
  page.notebook.cell7.outputs.add(cardOf(journalRun()));
  page.source.list = [journalRun()];
  await page.load();
  page.notebook.cell7.outputs.clear();
  await page.load();
  const reloaded = new FakeJournalPage(new FakeClock(), page.storage);
  reloaded.source.list = [journalRun()];
  await reloaded.load();
  assert.deepEqual([page.offered, reloaded.offered, reloaded.announced], [[], [], []]);
});

test('a card that was received but never saved is offered after a reload, without a notification', async () => {
  const page = new FakeJournalPage();
  page.notebook.cell7.outputs.add(cardOf(journalRun()));
  page.source.list = [journalRun()];
  await page.load();
  const reloaded = new FakeJournalPage(new FakeClock(), page.storage);
  reloaded.source.list = [journalRun()];
  await reloaded.load();
  assert.deepEqual([reloaded.offered, reloaded.announced], [['run-7'], []]);
});

test('a card that was saved is not offered again, even if its output is later removed elsewhere', async () => {
  for (const save of [
    (page: FakeJournalPage) => {
      page.model.onSaved(page.notebook);
    },
    (page: FakeJournalPage) => {
      page.notebook.isSaved = true;
      page.model.update();
    }
  ]) {
    const page = new FakeJournalPage();
    page.notebook.cell7.outputs.add(cardOf(journalRun()));
    page.source.list = [journalRun()];
    await page.load();
    save(page);
    const reloaded = new FakeJournalPage(new FakeClock(), page.storage);
    reloaded.source.list = [journalRun()];
    await reloaded.load();
    assert.deepEqual(reloaded.offered, []);
  }
});

test('a run that ends in a connected page is never announced, even if its card takes seconds to arrive', async () => {
  const page = new FakeJournalPage();
  page.change('busy');
  await page.clock.pass(60_000);
  page.source.list = [journalRun({ started: NOON, seconds: 60 })];
  page.change('idle');
  await page.clock.pass(4000);
  page.notebook.cell7.outputs.add(cardOf(journalRun({ started: NOON })));
  await page.clock.pass(20_000);
  assert.deepEqual([page.source.asked.length, page.offered, page.announced], [1, [], []]);
});

test('a card that the user removes at once is not announced', async () => {
  const page = new FakeJournalPage();
  page.change('busy');
  await page.clock.pass(60_000);
  const run = journalRun({ started: NOON, seconds: 60 });
  page.source.list = [run];
  page.notebook.cell7.outputs.add(cardOf(run));
  page.model.onActivity(page.notebook, { kind: 'ended', execution: execution(0), outcome: 'finished' });
  page.change('idle');
  page.notebook.cell7.outputs.clear();
  await page.clock.pass(20_000);
  assert.deepEqual([page.offered, page.announced], [[], []]);
});

test('the list requested in the seconds after the end of a run does not announce it early', async () => {
  const page = new FakeJournalPage();
  page.change('busy');
  await page.clock.pass(60_000);
  page.source.list = [journalRun({ started: NOON, seconds: 60 })];
  page.change('idle');
  page.model.refresh();
  await page.clock.pass(4900);
  assert.deepEqual([page.source.asked.length, page.offered], [1, []]);
  await page.clock.pass(200);
  assert.deepEqual(page.offered, ['run-7']);
});

test('a tab without the notebook does not announce a run whose card another tab has received', async () => {
  const storage = new FakeStorage();
  const clock = new FakeClock();
  const [own, other] = [new FakeJournalPage(clock, storage), new FakeJournalPage(clock, storage)];
  other.open.length = 0;
  other.active = null;
  await own.load(0);
  await other.load(0);
  const run = journalRun({ started: NOON, seconds: 60 });
  own.change('busy');
  await clock.pass(60_000);
  own.source.list = other.source.list = [run];
  other.model.refresh();
  own.notebook.cell7.outputs.add(cardOf(run));
  own.model.onActivity(own.notebook, { kind: 'ended', execution: execution(0), outcome: 'finished' });
  own.change('idle');
  await clock.pass(20_000);
  assert.deepEqual([own.announced, other.announced], [[], []]);
});

test('runs of closed notebooks are announced if they ended since any page of the user looked', async () => {
  const page = new FakeJournalPage();
  const closed = (id: string, count: number): ReturnType<typeof journalRun> =>
    journalRun({
      id,
      path: 'b.ipynb',
      name: 'b.ipynb',
      kernel: 'kernel-2',
      cell: id,
      execution_count: count
    });
  page.source.list = [closed('old', 1)];
  await page.load();
  assert.deepEqual(page.announced, []);
  const later = new FakeJournalPage(new FakeClock(), page.storage);
  later.source.list = [closed('new', 2), closed('old', 1)];
  await later.load();
  assert.deepEqual([later.announced, later.offered], [['new'], []]);
});

test('a run without a notebook is not announced, and neither is one of more than a week ago', async () => {
  const page = new FakeJournalPage();
  await page.load();
  page.source.list = [
    journalRun({ id: 'script', name: null, path: null, kernel: null, cell: null }),
    journalRun({ id: 'outside', cell: null, code: null }),
    journalRun({ id: 'old', started: NOON - 9 * 86_400 })
  ];
  await page.load();
  assert.deepEqual([page.offered, page.announced], [[], []]);
});

test('an earlier run of a cell that was run again is not offered, and neither is one whose cell is running', async () => {
  const page = new FakeJournalPage();
  const earlier = journalRun({ id: 'earlier', execution_count: 3, started: ENDED - 9000 });
  page.source.list = [journalRun(), earlier];
  await page.load();
  assert.deepEqual(page.offered, ['run-7']);
  page.source.list = [{ ...RUNNING, execution_count: 8 }, journalRun(), earlier];
  await page.load();
  assert.deepEqual(page.offered, []);
});

test('a run belongs to a notebook by its kernel or by its path', async () => {
  const page = new FakeJournalPage();
  for (const [changes, offered] of [
    [{ path: 'before the renaming.ipynb' }, ['run-7']],
    [{ kernel: 'an earlier kernel' }, ['run-7']],
    [{ path: 'x.ipynb', kernel: 'kernel-2' }, []],
    [{ path: null, kernel: null }, []]
  ] as const) {
    page.source.list = [journalRun(changes)];
    await page.load();
    assert.deepEqual(page.offered, offered, JSON.stringify(changes));
  }
});

test('a run whose kernel was not told the cell belongs to the only cell with its code', async () => {
  const same = { ...codeCell('copy'), sharedModel: codeCell('cell-7').sharedModel };
  for (const [changes, cells, offered] of [
    [{}, [codeCell('cell-7'), codeCell('cell-8')], ['cell-7']],
    [{}, [codeCell('cell-7'), same], []],
    [{}, [codeCell('cell-8')], []],
    [{ code: null }, [codeCell('cell-7')], []],
    [{ path: 'x.ipynb', kernel: 'kernel-2' }, [codeCell('cell-7')], []]
  ] as const) {
    const page = new FakeJournalPage();
    page.notebook.cells = new FakeCells([...cells]);
    page.source.list = [journalRun({ cell: null, ...changes })];
    await page.load();
    const found = (): readonly unknown[] => page.model.missing.map(({ run }) => run.cell);
    assert.deepEqual(found(), offered);
    // The result stays, although the cell is edited.
    cells[0].sharedModel.getSource = () => 'edited';
    await page.load();
    assert.deepEqual(found(), offered);
  }
});

test('a run whose cell was deleted is offered as such, unless it may be another notebook’s', async () => {
  const page = new FakeJournalPage();
  page.notebook.cells = new FakeCells([codeCell('cell-8')]);
  page.source.list = [journalRun()];
  await page.load();
  assert.deepEqual(
    page.model.missing.map(({ hasCell }) => hasCell),
    [false]
  );
  page.source.list = [journalRun({ path: 'other.ipynb' })];
  await page.load();
  assert.deepEqual(page.offered, []);
});

test('the notebook’s present name is announced after it was renamed', async () => {
  const page = new FakeJournalPage();
  page.notebook.path = page.notebook.name = 'final.ipynb';
  page.source.list = [journalRun()];
  await page.load();
  assert.equal(page.news[0]?.[0]?.name, 'final.ipynb');
});

test('nothing is announced before the notebook is loaded', async () => {
  const page = new FakeJournalPage();
  page.notebook.cells = null;
  page.source.list = [journalRun()];
  await page.load(20);
  assert.deepEqual([page.offered, page.announced], [[], []]);
  page.notebook.cells = new FakeCells([codeCell('cell-7', cardOf(journalRun()))]);
  page.model.update();
  await page.clock.pass(20_000);
  assert.deepEqual([page.offered, page.announced], [[], []]);
});

test('a dismissed run is offered in no page any more', async () => {
  const page = new FakeJournalPage();
  page.source.list = [journalRun()];
  await page.load();
  page.model.dismiss(page.model.missing[0]?.id ?? '');
  const reloaded = new FakeJournalPage(new FakeClock(), page.storage);
  reloaded.source.list = [journalRun()];
  await reloaded.load();
  assert.deepEqual([page.offered, reloaded.offered], [[], []]);
});

test('at most the 10 newest runs are offered', async () => {
  const page = new FakeJournalPage();
  const ids = Array.from({ length: 12 }, (_, index) => `cell-${String(index)}`);
  page.notebook.cells = new FakeCells(ids.map(id => codeCell(id)));
  page.source.list = ids.map((cell, index) => journalRun({ id: cell, cell, execution_count: index + 1 }));
  await page.load();
  assert.deepEqual(page.offered, ids.slice(0, 10));
});

test('a run that lasts is shown in a page that has not seen its start, until the kernel is idle', async () => {
  const page = await busyPage();
  assert.equal(page.model.running?.id, 'run-7');
  assert.deepEqual(page.model.notebookJournal, {
    running: {
      cellId: 'cell-7',
      execution: { executionCount: 7, started: NOON - 4000, received: -4_000_000 },
      label: null,
      gpus: []
    }
  });
  assert.equal(page.model.notebookJournal, page.model.notebookJournal);
  assert.equal(page.model.isRunning(page.notebook, 'cell-7'), true);
  page.change('idle');
  assert.deepEqual([page.model.running, page.model.notebookJournal], [null, null]);
  // The kernel is busy again with something else, before the list says so.
  page.change('busy');
  assert.equal(page.model.running, null);
});

test('a run that lasts is hidden once this page sees another cell start, or the process end', async () => {
  for (const change of [{ kind: 'started', execution: execution(0) }, { kind: 'process-ended' }] as const) {
    const page = await busyPage();
    page.model.onActivity(page.notebook, change);
    assert.equal(page.model.running, null);
  }
});

test('of runs inside one another, the outer one is shown', async () => {
  const page = await busyPage();
  page.source.list = [{ ...RUNNING, id: 'inner', started: RUNNING.started + 10 }, RUNNING];
  await page.load();
  assert.equal(page.model.running?.id, 'run-7');
});

test('a run of a deleted cell, or of a notebook that is not active, is not shown as running', async () => {
  const page = await busyPage();
  page.notebook.cells = new FakeCells([codeCell('cell-8')]);
  assert.equal(page.model.running, null);
  page.active = null;
  assert.deepEqual([page.model.running, page.model.missing], [null, []]);
});

test('the run that lasts is requested every 10 seconds, only while it is shown', async () => {
  const page = await busyPage();
  const visit = (shown: boolean): void => {
    page.model.visit(() => shown);
  };
  page.model.changed.connect(() => {
    visit(true);
  });
  visit(true);
  await page.clock.pass(25_000);
  assert.deepEqual([page.source.askedCards, page.source.asked], [['run-7', 'run-7', 'run-7'], [0]]);
  assert.deepEqual(page.model.notebookJournal?.running?.gpus, ['GPU-0']);
  assert.equal(page.model.card?.run.id, 'run-7');
});

test('the chart comes at once when the page learns that the kernel is busy', async () => {
  const page = new FakeJournalPage();
  page.source.list = [RUNNING];
  await page.load(0);
  page.model.visit(() => true);
  await page.clock.pass(3000);
  page.change('busy');
  page.model.visit(() => true);
  await page.clock.pass(0);
  assert.deepEqual([page.source.asked, page.source.askedCards], [[0], ['run-7']]);
});

test('a run that gets into the journal after the page was opened is found within 10 seconds', async () => {
  const page = new FakeJournalPage();
  page.change('busy');
  await page.load(0);
  const seen: unknown[] = [];
  for (let second = 0; second < 40; second++) {
    page.source.list = second < 25 ? [] : [RUNNING];
    page.model.visit(() => true);
    await page.clock.pass(1000);
    seen.push(page.model.running?.id ?? null);
  }
  assert.deepEqual(page.source.asked, [0, 10_000, 20_000, 30_000]);
  assert.deepEqual([seen.indexOf('run-7'), seen.lastIndexOf(null)], [29, 28]);
  page.notebook.runsOwnCell = true;
  page.source.list = [];
  await page.load();
  const { length } = page.source.asked;
  page.model.visit(() => true); // The page needs no journal to show a cell that it has started.
  await page.clock.pass(60_000);
  assert.equal(page.source.asked.length, length);
});

test('for a cell that the page has seen start, the list is requested once its run may be in the journal', async () => {
  const page = new FakeJournalPage();
  page.change('idle');
  await page.load(20);
  page.change('busy');
  page.model.changed.connect(() => {
    page.model.visit(() => true);
  });
  page.model.visit(() => true);
  page.source.failure = 'failed'; // A failed request is not the last one.
  await page.clock.pass(50_000);
  assert.deepEqual(page.source.asked, [0, 45_000, 55_000, 65_000]);
});

test('a hidden panel and a notebook without a run that lasts cause no requests', async () => {
  const page = await busyPage();
  page.model.visit(() => false);
  await page.clock.pass(60_000);
  assert.deepEqual([page.source.askedCards, page.source.asked], [[], [0]]);
  const idle = new FakeJournalPage();
  idle.source.list = [journalRun()];
  await idle.load();
  idle.model.visit(() => true);
  await idle.clock.pass(60_000);
  assert.deepEqual([idle.source.askedCards, idle.source.asked], [[], [0]]);
});

test('the timer of the next request ends with the cell, or with its view', async () => {
  const page = await busyPage();
  page.source.list = [];
  await page.load(2);
  page.model.visit(() => true);
  assert.equal(page.clock.running, 1);
  page.model.leave();
  assert.equal(page.clock.running, 0);
  page.model.visit(() => true);
  assert.equal(page.clock.running, 1);
  page.notebook.activity = { phase: 'idle' };
  page.model.visit(() => true);
  assert.equal(page.clock.running, 0);
});

test('when the run has ended, the list is requested and the run is offered', async () => {
  const page = await busyPage();
  page.source.list = [journalRun()];
  page.model.visit(() => true);
  await page.clock.pass(10_000);
  assert.deepEqual([page.source.askedCards, page.model.running, page.offered], [['run-7'], null, ['run-7']]);
});

test('while the server does not know yet that a run died, the list is requested every 10 seconds', async () => {
  const page = await busyPage();
  page.change('dead');
  await page.clock.pass(5000);
  page.model.visit(() => true);
  await page.clock.pass(0);
  page.source.list = [journalRun({ state: 'died', status: 'died' })];
  await page.clock.pass(4000);
  page.model.visit(() => true);
  await page.clock.pass(12_000);
  assert.deepEqual([page.source.askedCards, page.offered], [[], ['run-7']]);
});

test('the list is requested at most every 2 seconds, and again if something happened meanwhile', async () => {
  const page = new FakeJournalPage();
  for (let each = 0; each < 5; each++) {
    page.model.refresh();
    await page.clock.pass(500);
  }
  assert.deepEqual(page.source.asked, [0, 2000]);
  await page.clock.pass(60_000);
  assert.deepEqual(page.source.asked, [0, 2000, 4000]);
});

test('short cells cause no requests; long ones, and the end of a process, cause one each', async () => {
  const page = new FakeJournalPage();
  await page.load();
  for (const seconds of [1, 24]) {
    page.change('busy');
    await page.clock.pass(1000 * seconds);
    page.change('idle');
    await page.clock.pass(10_000);
  }
  assert.equal(page.source.asked.length, 1);
  page.change('busy');
  await page.clock.pass(26_000);
  page.change('idle');
  await page.clock.pass(10_000);
  assert.equal(page.source.asked.length, 2);
  page.model.onActivity(page.notebook, { kind: 'process-ended' });
  await page.clock.pass(10_000);
  assert.equal(page.source.asked.length, 3);
});

test('a kernel that may have been busy while the page was not connected counts as having run a long cell', async () => {
  for (const before of [['starting'], ['idle', 'unreachable']] as const) {
    const page = new FakeJournalPage();
    before.forEach(phase => {
      page.change(phase);
    });
    page.change('busy');
    await page.load(0);
    await page.clock.pass(3000);
    page.change('idle');
    await page.clock.pass(6000);
    assert.deepEqual(page.source.asked, [0, 8000]);
  }
});

test('when a run of the list is over, the list is requested, however short the run was', async () => {
  const page = new FakeJournalPage();
  page.change('idle');
  page.change('busy');
  page.source.list = [RUNNING];
  await page.load(3);
  page.model.onActivity(page.notebook, { kind: 'ended', execution: execution(0), outcome: 'finished' });
  page.change('idle');
  await page.clock.pass(6000);
  assert.deepEqual(page.source.asked, [0, 8000]);
});

test('a lost connection to the kernel is not the end of a run', async () => {
  const page = await busyPage();
  page.change('unreachable');
  assert.deepEqual([page.model.running, page.model.notebookJournal], [null, null]);
  page.change('busy');
  assert.equal(page.model.running?.id, 'run-7');
});

test('a run that ends while the list is requested is not shown as running', async () => {
  const page = await busyPage();
  const { source, model, notebook } = page;
  const answer = source.runs.bind(source);
  source.runs = () => {
    model.onActivity(notebook, { kind: 'ended', execution: execution(0), outcome: 'finished' });
    return answer();
  };
  assert.equal(model.running?.id, 'run-7');
  await page.load(3);
  assert.equal(model.running, null);
});

test('an older server shows nothing and is not asked again, until the connection was lost', async () => {
  const page = new FakeJournalPage();
  page.source.failure = 'absent';
  await page.load();
  await page.load();
  assert.deepEqual([page.source.asked, page.offered], [[0], []]);
  page.source.failure = null;
  page.source.list = [journalRun()];
  page.model.reconnect();
  await page.clock.pass(6000);
  assert.deepEqual(page.offered, ['run-7']);
});

test('while the server does not answer, what was known stays', async () => {
  const page = new FakeJournalPage();
  page.source.list = [journalRun()];
  page.source.problem = 'The journal’s folder can’t be read.';
  await page.load();
  for (const failure of ['unreachable', 'failed', 'refused', 'foreign'] as const) {
    page.source.failure = failure;
    await page.load();
    assert.deepEqual([page.offered, page.model.problem], [['run-7'], 'The journal’s folder can’t be read.']);
  }
});

test('two notebooks each have their own runs', async () => {
  const page = new FakeJournalPage();
  const second = Object.assign(new FakeJournalNotebook(), {
    path: 'b.ipynb',
    name: 'b.ipynb',
    kernel: 'kernel-2'
  });
  page.open.push(second);
  page.source.list = [journalRun(), journalRun({ id: 'b', path: 'b.ipynb', kernel: 'kernel-2' })];
  await page.load();
  assert.deepEqual([page.offered, page.announced], [['run-7'], ['run-7', 'b']]);
  page.active = second;
  page.model.update();
  assert.deepEqual(page.offered, ['b']);
});
