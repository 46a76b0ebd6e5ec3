import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { Signal } from '@lumino/signaling';

import {
  comparableKeys,
  CellRuns,
  runName,
  type NotebookJournal,
  type CellNotebook,
  type CellRunSources
} from '../src/model/cells/cellRuns';
import { parseReport } from '../src/model/cells/report';
import { ReportReader } from '../src/model/cells/reportReader';
import type { CellRun } from '../src/model/cells/runTable';
import type { KernelView } from '../src/model/kernel/kernels';
import { runningTitle } from '../src/views/panel/cellRow';
import type { KernelState, Sample } from '../src/wire/wire';
import { KernelActivity } from '../src/model/kernel/kernelActivity';
import { FakeClock, GIB, gpu, kernelGpu, kernelState, reading, sample, trans } from './fakes';
import { codeCell, FakeCells, FakeOutput, report, reportedGpu } from './fakes_cells';
import { CELL, FakeConnection, PAGE } from './fakes_notebook';

const NOW = Date.now() / 1000;

/** The part of `ActiveKernel` that is used here, with the state that a test sets. */
class FakeKernels {
  readonly changed = new Signal<never, void>(this as never);
  state: KernelState | null = null;
  view = { silentFor: null } as KernelView;

  say(state: KernelState | null, silentFor: number | null = null): void {
    this.state = state;
    this.view = { ...this.view, silentFor };
    this.changed.emit();
  }
}

function holding(...gib: (number | null)[]): KernelState {
  return kernelState({
    gpus: gib.map((held, index) =>
      kernelGpu(index, {
        process_memory: held === null ? null : held * GIB,
        torch_reserved: null,
        context: held !== 0
      })
    )
  });
}

/**
 * Return the state of a kernel in a container, where only torch reports memory. A GPU's memory is null before
 * CUDA is initialized, and if the GPU is not a torch device.
 */
function reserving(...gib: (number | null)[]): KernelState {
  return kernelState({
    cuda_initialized: gib.some(each => each !== null),
    gpus: gib.map((each, index) =>
      kernelGpu(index, {
        torch_device: index === 2 ? null : `cuda:${String(index)}`,
        process_memory: null,
        torch_reserved: each === null ? null : each * GIB
      })
    )
  });
}

function made(cells: FakeCells = new FakeCells([codeCell('a')])): {
  cells: CellRuns;
  kernels: FakeKernels;
  connection: FakeConnection;
  clock: FakeClock;
  notebook: CellNotebook;
  server: { sample: Sample | null };
  revealed: string[];
  ran: string[];
} {
  const clock = new FakeClock();
  const kernels = new FakeKernels();
  const connection = new FakeConnection();
  connection.publish('idle');
  const server = { sample: sample(NOW, [reading(0), reading(1)]) };
  const sources = { model: server, kernels } as unknown as CellRunSources;
  const found = new CellRuns(sources, new ReportReader(), clock);
  const revealed: string[] = [];
  const ran: string[] = [];
  const activity = new KernelActivity(connection.real, clock);
  const key = {};
  activity.changed.connect((_, { kind }) => {
    if (kind !== 'phase') {
      found.executed.emit({ notebook: key, activity });
    }
  });
  const notebook: CellNotebook = {
    key,
    activity,
    models: cells,
    cellOf: ({ request }) => (request === CELL.msg_id ? 'a' : null),
    reveal: (cellId: string) => {
      revealed.push(cellId);
    },
    run: (code: string) => {
      ran.push(code);
    }
  };
  found.setNotebook(notebook);
  found.setVisible(found, true);
  return { cells: found, kernels, connection, clock, notebook, server, revealed, ran };
}

function begin({ connection }: ReturnType<typeof made>, count = 4): void {
  connection.begin(CELL, count, NOW - 1);
}

function end({ connection }: ReturnType<typeof made>): void {
  connection.publish('idle', CELL);
}

/** Return the memory growth of the running cell, in total and per GPU. */
function growth({
  cells
}: ReturnType<typeof made>): [number | null | undefined, (number | null)[] | undefined] {
  return [cells.running?.delta, cells.running?.gpus.map(({ bytes }) => bytes)];
}

function skew({ cells }: ReturnType<typeof made>): number | null {
  const { seconds } = cells.clockSkew;
  return seconds === null ? null : Math.round(seconds);
}

test('the running cell’s time is updated every second while a view is visible', async () => {
  const all = made();
  let emitted = 0;
  begin(all);
  all.cells.changed.connect(() => emitted++);
  await all.clock.pass(3000);
  assert.deepEqual(
    [all.cells.running?.cellId, all.cells.running?.executionCount, all.cells.running?.seconds, emitted],
    ['a', 4, 3, 3]
  );
  all.cells.setVisible(all, true); // A second view, which is hidden first.
  all.cells.setVisible(all, false);
  await all.clock.pass(1000);
  assert.equal(emitted, 4);
  all.cells.setVisible(all.cells, false);
  await all.clock.pass(5000);
  assert.deepEqual([emitted, all.clock.running], [4, 0]);
});

test('a cell ends with its request, or with its kernel', () => {
  const all = made();
  begin(all);
  all.connection.publishUntracked('idle', { ...CELL, msg_id: 'another' });
  assert.ok(all.cells.running);
  end(all);
  assert.equal(all.cells.running, null);
  begin(all);
  all.connection.change('restarting');
  assert.equal(all.cells.running, null);
});

test('an idle kernel runs nothing, even if the end of a cell was lost', () => {
  const all = made();
  begin(all);
  all.connection.publish('idle', { msg_id: 'info', msg_type: 'kernel_info_request', session: PAGE });
  assert.equal(all.cells.running, null);
});

test('cells of other notebooks are not shown', () => {
  const all = made();
  all.connection.begin({ ...CELL, msg_id: 'of another notebook' });
  assert.equal(all.cells.running, null);
});

test('the running cell’s growth is the difference to the state before it', () => {
  const all = made();
  all.kernels.say(holding(2, 0));
  begin(all);
  assert.deepEqual(growth(all), [null, []]);
  all.kernels.say(holding(5, 1));
  assert.deepEqual(growth(all), [4 * GIB, [3 * GIB, GIB]]);
});

test('memory in a MIG slice, which its parent repeats, is one growth', () => {
  const all = made();
  const gpus = [gpu(0), gpu(1, { mig_index: 0, mig_parent: 'GPU-0' })];
  all.server.sample = { ...sample(NOW, [reading(0), reading(1)]), gpus };
  all.kernels.say(holding(2, 2));
  begin(all);
  all.kernels.say(holding(4, 4));
  assert.deepEqual(growth(all), [2 * GIB, [2 * GIB]]);
});

test('without the driver’s figures, the growth is what torch has reserved', () => {
  const all = made();
  all.kernels.say(reserving(null, null, null));
  begin(all);
  all.kernels.say(reserving(3, 0, null));
  assert.deepEqual(growth(all), [3 * GIB, [3 * GIB, 0, null]]);
  end(all);
  all.kernels.say(reserving(3, 1, null));
  begin(all, 5);
  all.kernels.say(reserving(5, 1, null));
  assert.equal(all.cells.running?.delta, 2 * GIB);
  const [title] = runningTitle(trans, all.cells.running).split('\n');
  assert.equal(title, 'Change of the memory reserved by PyTorch since the cell began: +2.0 GiB');
});

test('without a state before the cell the growth is unknown', () => {
  const all = made();
  all.kernels.say(holding(2));
  begin(all);
  all.kernels.say(holding(5));
  end(all);
  // The next cell begins immediately, so it is unknown what the kernel held between the two cells.
  begin(all, 5);
  all.kernels.say(holding(6));
  assert.equal(all.cells.running?.delta, null);
});

/** Return what the journal has of cell `a`, which began 100 seconds ago. */
function journal(changes: object = {}): NotebookJournal {
  const execution = { executionCount: 7, started: NOW - 100, received: -100_000 };
  return { running: { cellId: 'a', execution, label: null, gpus: ['GPU-1'], ...changes } };
}

test('a cell that began before the page was opened is shown as the journal has it, and its time counts on', async () => {
  const { cells, connection, clock, notebook } = made();
  connection.publish('busy', { msg_type: 'execute_request', msg_id: 'before' });
  cells.setJournal(notebook.key, journal());
  await clock.pass(5000);
  assert.deepEqual(cells.running, {
    cellId: 'a',
    executionCount: 7,
    code: '',
    seconds: 105,
    delta: null,
    gpus: []
  });
  assert.equal(clock.running, 1);
  cells.setJournal(notebook.key, journal({ label: 'train' }));
  assert.equal(cells.running.code, 'train');
  connection.publish('idle', { msg_type: 'execute_request', msg_id: 'before' });
  assert.equal(cells.running, null);
  await clock.pass(1000);
  assert.equal(clock.running, 0);
});

test('a cell that this page has started is shown rather than that of the journal', () => {
  const { cells, connection, notebook } = made();
  cells.setJournal(notebook.key, journal({ label: 'train' }));
  const running = (): unknown => cells.running && [cells.running.executionCount, cells.running.code];
  connection.begin({ ...CELL, msg_id: 'elsewhere' });
  assert.deepEqual(running(), [7, 'train']);
  connection.begin(CELL, 8);
  assert.deepEqual(running(), [8, '']);
});

test('if the journal also has a cell that this page has started, the next cell has its growth', () => {
  const all = made();
  all.connection.publish('idle', { ...CELL, msg_id: 'before' });
  begin(all);
  all.cells.setJournal(all.notebook.key, journal());
  end(all);
  all.cells.setJournal(all.notebook.key, null);
  all.kernels.say(holding(2));
  begin(all, 5);
  all.kernels.say(holding(5));
  assert.equal(all.cells.running?.delta, 3 * GIB);
});

test('the journal of another notebook is not shown, and that of the last one is forgotten', () => {
  const { cells, connection, notebook } = made();
  connection.publish('busy', { msg_type: 'execute_request', msg_id: 'before' });
  cells.setJournal({}, journal());
  assert.deepEqual([cells.running, cells.journal], [null, null]);
  cells.setJournal(notebook.key, journal());
  cells.setNotebook({ ...notebook, key: {} });
  assert.deepEqual([cells.running, cells.journal], [null, null]);
});

test('a journaled cell has a band on the GPUs of its run, or on those that a running cell has', () => {
  const { cells, connection, notebook } = made();
  connection.publish('busy', { msg_type: 'execute_request', msg_id: 'before' });
  cells.setJournal(notebook.key, journal());
  const band = { from: NOW - 100, until: null, label: '7', title: '[7]' };
  assert.deepEqual([cells.bands('GPU-0'), cells.bands('GPU-1')], [[], [band]]);
  cells.setJournal(notebook.key, journal({ gpus: [] }));
  assert.deepEqual([cells.bands('GPU-0'), cells.bands('GPU-1')], [[band], [band]]);
});

test('the growth is unknown if the kernel is silent, has no figures or is another process', () => {
  for (const [before, after, silentFor] of [
    [holding(2), holding(5), 4],
    [holding(2, null), holding(5, null), null],
    [holding(2), { ...holding(5), pid: 1 }, null]
  ] as const) {
    const all = made();
    all.kernels.say(before);
    begin(all);
    all.kernels.say(after, silentFor);
    assert.equal(all.cells.running?.delta, null);
  }
});

test('bands show when a trusted cell used a GPU, sorted by start', () => {
  const card = (count: number, started: number, ...gpus: number[]): FakeOutput =>
    FakeOutput.report(
      report(
        count,
        { gpus: gpus.map(gpu => reportedGpu(gpu)) },
        { started, duration_s: 2, label: count === 2 ? 'eval' : null }
      )
    );
  const { cells } = made(
    new FakeCells([
      codeCell('a', card(2, NOW - 10, 0)),
      codeCell('b', card(1, NOW - 20, 0, 1), card(3, NOW, 1)),
      { ...codeCell('c', card(4, NOW - 5, 0)), trusted: false }
    ])
  );
  assert.deepEqual(cells.bands('GPU-0'), [
    { from: NOW - 20, until: NOW - 18, label: '1', title: '[1] · 2.0 s' },
    { from: NOW - 10, until: NOW - 8, label: '2', title: '[2] eval · 2.0 s' }
  ]);
  assert.deepEqual(
    cells.bands('GPU-1').map(({ label }) => label),
    ['1', '3']
  );
  assert.deepEqual(cells.bands('GPU-9'), []);
});

test('the running cell has an open band on the notebook’s GPUs, or on all if none is known', () => {
  const all = made();
  begin(all);
  const open = { from: NOW - 1, until: null, label: '4', title: '[4]' };
  assert.deepEqual([all.cells.bands('GPU-0'), all.cells.bands('GPU-1')], [[open], [open]]);
  all.kernels.say(holding(0, 3));
  assert.deepEqual([all.cells.bands('GPU-0'), all.cells.bands('GPU-1')], [[], [open]]);
});

test('with different clocks of kernel and server there are no bands', t => {
  t.mock.timers.enable({ apis: ['Date'], now: 1000 * NOW });
  const all = made(new FakeCells([codeCell('a', FakeOutput.report(report(1)))]));
  const observe = (seconds: number): void => {
    all.notebook.activity?.clockOffset.observe(NOW + seconds, NOW);
  };
  observe(-30); // This message arrived late.
  assert.equal(all.cells.bands('GPU-0').length, 0);
  assert.equal(skew(all), -30);
  observe(0);
  assert.equal(skew(all), null);
  assert.equal(all.cells.bands('GPU-0').length, 1);
  observe(60);
  assert.equal(skew(all), 60);
  assert.deepEqual(all.cells.bands('GPU-0'), []);
  all.cells.setNotebook({ ...all.notebook, key: {}, activity: null });
  assert.equal(skew(all), null);
});

test('times of runs are converted to the server’s clock, also if there are no bands to draw', () => {
  const all = made();
  const minute = (seconds: number): number => Math.round((seconds - NOW) / 60);
  all.notebook.activity?.clockOffset.observe(NOW + 600, NOW);
  assert.equal(minute(all.cells.clockSkew.onServer(NOW + 1200)), 10);
  all.server.sample = sample(NOW + 1800);
  assert.equal(minute(all.cells.clockSkew.pageOnServer(NOW)), 30);
  assert.equal(minute(all.cells.clockSkew.onServer(NOW + 1200)), 40);
});

test('revealing goes to the cell of the active notebook', () => {
  const { cells, revealed } = made();
  cells.reveal('a');
  assert.deepEqual(revealed, ['a']);
  cells.setNotebook(null);
  cells.reveal('b');
  assert.deepEqual([revealed, cells.hasNotebook, cells.runs], [['a'], false, []]);
});

test('a run is named by its execution count, and by its label or its first line of code', () => {
  const name = (count: number | null, label: string | null, code: string): string => {
    const known = parseReport(report(count, {}, { label }));
    assert.ok(known);
    return runName({ report: known, code });
  };
  assert.deepEqual(
    [name(3, null, 'train()'), name(3, 'train', 'x = 1'), name(null, 'epoch 1', ''), name(3, null, '')],
    ['[3] train()', '[3] train', 'epoch 1', '[3]']
  );
});

const run = (count: number | null, started: number, label: string | null = null): CellRun => ({
  key: `${String(count)} ${String(started)}`,
  cellId: 'a',
  code: '',
  trusted: true,
  report: { executionCount: count, started, label } as CellRun['report']
});

test('two runs are compared in a new cell by their execution counts, the earlier one first', () => {
  const { cells, ran } = made();
  cells.compare(run(9, 20), run(5, 10));
  assert.deepEqual(ran, ['%gpu compare 5 9']);
  // A run without a count can't be compared, nor one whose count belongs to a later run.
  const untrusted = { ...run(7, 5), trusted: false };
  const keys = comparableKeys([run(5, 10), run(5, 30), run(null, 1), run(6, 5), untrusted]);
  assert.deepEqual([...keys], ['5 30', '6 5']);
});

test('the label of a report, which anyone may have written, never becomes code', () => {
  const { cells, ran } = made();
  const hostile = '{__import__("os").system("id")}';
  cells.compare(run(null, 1, hostile), run(7, 2, hostile));
  cells.compare(run(6, 1, hostile), run(7, 2, hostile));
  assert.deepEqual(ran, ['%gpu compare 6 7']);
});

test('only runs of the present process of the kernel can be compared', () => {
  const all = made();
  const { cells, kernels, connection, notebook } = all;
  kernels.say(holding(1));
  const started = NOW - 1;
  const comparable = (count: number, at = started): boolean => cells.comparable(run(count, at));
  assert.equal(comparable(4), false); // The report is from the file.
  begin(all);
  assert.deepEqual(
    [
      comparable(4),
      comparable(4, started - 60),
      comparable(3),
      cells.comparable({ ...run(4, started), trusted: false })
    ],
    [true, false, false, false]
  );
  begin(all, 9);
  const { report } = run(9, started);
  assert.deepEqual(
    [notebook.activity?.hasRun(report, [4, 9]), notebook.activity?.hasRun(report, [5, 9])],
    [true, false]
  );
  begin(all, 1); // The counts start again after a restart that this page did not see.
  assert.deepEqual([comparable(4), comparable(9), comparable(1)], [false, false, true]);
  let emitted = 0;
  cells.executed.connect(() => emitted++);
  end(all);
  connection.change('restarting');
  assert.deepEqual([comparable(1), emitted], [false, 2]);
});
