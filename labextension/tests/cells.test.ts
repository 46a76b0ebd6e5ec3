import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { Signal } from '@lumino/signaling';

import { Cells, nameOf, type NotebookInFront, type Surroundings } from '../src/cells/cells';
import { Preferences, type Wishes } from '../src/cells/preferences';
import { Reader } from '../src/cells/reader';
import { Runs } from '../src/cells/runs';
import type { KernelView } from '../src/kernel/kernels';
import { runningTitle } from '../src/panel/cellWords';
import type { KernelState, Sample } from '../src/wire';
import { FakeClock, GIB, kernelGpu, kernelState, reading, sample, settled, trans } from './fakes';
import { codeCell, FakeCells, FakeOutput, report, reportedGpu } from './fakes_cells';

const NOW = Date.now() / 1000;

/** What the kernel says is the test's. */
class FakeKernels {
  readonly changed = new Signal<never, void>(this as never);
  state: KernelState | null = null;
  view = { busy: false, silentFor: null } as KernelView;

  say(state: KernelState | null, silentFor: number | null = null): void {
    this.state = state;
    this.view = { ...this.view, silentFor };
    this.changed.emit();
  }

  work(busy: boolean): void {
    this.view = { ...this.view, busy };
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

/** In a container: torch alone says what it has; null before CUDA is up, and of a GPU that is none of torch's. */
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
  cells: Cells;
  kernels: FakeKernels;
  runs: Runs;
  timers: FakeClock;
  notebook: NotebookInFront;
  server: { sample: Sample | null };
  revealed: string[];
} {
  const timers = new FakeClock();
  const kernels = new FakeKernels();
  const runs = new Runs();
  const server = { sample: sample(NOW, [reading(0), reading(1)]) };
  const around = { model: server, kernels } as unknown as Surroundings;
  const found = new Cells(around, new Reader(timers), runs, new Preferences(null), timers);
  const revealed: string[] = [];
  const notebook = {
    key: {},
    models: cells,
    reveal: (cellId: string) => {
      revealed.push(cellId);
    }
  };
  found.show(notebook);
  found.look(true);
  return { cells: found, kernels, runs, timers, notebook, server, revealed };
}

function begin({ runs, notebook, kernels, timers }: ReturnType<typeof made>, count = 4): void {
  runs.began(notebook.key, 'message', {
    cellId: 'a',
    executionCount: count,
    started: NOW - 1,
    heard: timers.now()
  });
  kernels.work(true);
}

/** What the running cell took in all, and of each GPU. */
function took({
  cells
}: ReturnType<typeof made>): [number | null | undefined, (number | null)[] | undefined] {
  return [cells.running?.delta, cells.running?.gpus.map(({ bytes }) => bytes)];
}

function apart({ cells }: ReturnType<typeof made>): number | null {
  const { disagreement } = cells.clocks;
  return disagreement === null ? null : Math.round(disagreement);
}

test('the running cell’s time counts, and is told once a second while somebody looks', async () => {
  const all = made();
  let told = 0;
  begin(all);
  all.cells.changed.connect(() => told++);
  await all.timers.pass(3000);
  assert.deepEqual(
    [all.cells.running?.cellId, all.cells.running?.executionCount, all.cells.running?.seconds, told],
    ['a', 4, 3, 3]
  );
  all.cells.look(false);
  await all.timers.pass(5000);
  assert.deepEqual([told, all.timers.running], [3, 0]);
});

test('a cell runs no more when the kernel is done with it, or with everything', () => {
  const all = made();
  begin(all);
  all.runs.ended(all.notebook.key, 'another message');
  assert.ok(all.cells.running);
  all.runs.ended(all.notebook.key, 'message');
  assert.equal(all.cells.running, null);
  begin(all);
  all.runs.ended(all.notebook.key, null);
  assert.equal(all.cells.running, null);
});

test('where a cell’s end was not heard of, an idle kernel runs nothing', () => {
  const all = made();
  begin(all);
  all.kernels.work(false);
  assert.equal(all.cells.running, null);
});

test('another notebook’s cells are not this one’s', () => {
  const all = made();
  all.runs.began({}, 'message', { cellId: 'z', executionCount: 1, started: NOW, heard: 0 });
  all.kernels.work(true);
  assert.equal(all.cells.running, null);
});

test('what the running cell took is told from what the kernel held before it', () => {
  const all = made();
  all.kernels.say(holding(2, 0));
  begin(all);
  assert.deepEqual(took(all), [null, []]);
  all.kernels.say(holding(5, 1));
  assert.deepEqual(took(all), [4 * GIB, [3 * GIB, GIB]]);
});

test('where only torch can say what the running cell took, it is told as torch’s own number', () => {
  const all = made();
  all.kernels.say(reserving(null, null, null));
  begin(all);
  all.kernels.say(reserving(3, 0, null));
  assert.deepEqual(took(all), [3 * GIB, [3 * GIB, 0, null]]);
  all.runs.ended(all.notebook.key, 'message');
  all.kernels.say(reserving(3, 1, null));
  begin(all, 5);
  all.kernels.say(reserving(5, 1, null));
  assert.equal(all.cells.running?.delta, 2 * GIB);
  const [title] = runningTitle(trans, all.cells.running).split('\n');
  assert.equal(title, 'Reserved by torch since the cell began: +2.0 GiB');
});

test('where nobody asked before the cell began, what it took is not known', () => {
  const all = made();
  all.kernels.say(holding(2));
  begin(all);
  all.kernels.say(holding(5));
  all.runs.ended(all.notebook.key, 'message');
  begin(all, 5); // At once: what the kernel held in between, nobody knows.
  all.kernels.say(holding(6));
  assert.equal(all.cells.running?.delta, null);
});

test('a kernel that does not answer, or cannot say, or is another one, tells no change', () => {
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

test('bands tell when a cell used a GPU, sorted by their start', () => {
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
      codeCell('b', card(1, NOW - 20, 0, 1), card(3, NOW, 1))
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

test('the running cell has an open band on the GPUs of the notebook, on all where none is known', () => {
  const all = made();
  begin(all);
  const open = { from: NOW - 1, until: null, label: '4', title: '[4]' };
  assert.deepEqual([all.cells.bands('GPU-0'), all.cells.bands('GPU-1')], [[open], [open]]);
  all.kernels.say(holding(0, 3));
  assert.deepEqual([all.cells.bands('GPU-0'), all.cells.bands('GPU-1')], [[], [open]]);
});

test('where the clocks of kernel and server disagree there are no bands', () => {
  const all = made(new FakeCells([codeCell('a', FakeOutput.report(report(1)))]));
  const at = (seconds: number): string => new Date(1000 * (NOW + seconds)).toISOString();
  all.cells.clocks.heardKernel(at(-30), NOW); // It came late.
  assert.equal(all.cells.bands('GPU-0').length, 0);
  assert.equal(apart(all), -30);
  all.cells.clocks.heardKernel(at(0), NOW);
  assert.equal(apart(all), null);
  assert.equal(all.cells.bands('GPU-0').length, 1);
  all.cells.clocks.heardKernel(at(60), NOW);
  assert.equal(apart(all), 60);
  assert.deepEqual(all.cells.bands('GPU-0'), []);
  all.cells.show({ ...all.notebook, key: {} });
  assert.equal(apart(all), null);
});

test('a click goes to the cell of the notebook in front', () => {
  const { cells, revealed } = made();
  cells.reveal('a');
  assert.deepEqual(revealed, ['a']);
  cells.show(null);
  cells.reveal('b');
  assert.deepEqual([revealed, cells.present, cells.rows], [['a'], false, []]);
});

test('a run is called by its number and its label', () => {
  assert.deepEqual(
    [
      nameOf({ executionCount: 3, label: null }),
      nameOf({ executionCount: 3, label: 'train' }),
      nameOf({ executionCount: null, label: 'epoch 1' })
    ],
    ['[3]', '[3] train', 'epoch 1']
  );
});

test('how the list is set up is kept, and a broken store changes nothing', async () => {
  const saved: Wishes[] = [];
  const keeping = (fetched: Promise<unknown>): Preferences =>
    new Preferences({
      fetch: () => fetched,
      save: wishes => {
        saved.push(wishes);
        return Promise.reject(new Error('read-only'));
      }
    });
  const restored = keeping(Promise.resolve({ sort: { column: 'energy', descending: true } }));
  await settled();
  assert.deepEqual(restored.now, { sort: { column: 'energy', descending: true } });
  restored.set({ sort: { column: 'time', descending: false } });
  await settled();
  assert.deepEqual(saved, [{ sort: { column: 'time', descending: false } }]);
  for (const fetched of [undefined, null, 'x', { sort: { column: 'size' } }, { sort: null }]) {
    const preferences = keeping(Promise.resolve(fetched));
    await settled();
    assert.deepEqual(preferences.now, { sort: { column: 'cell', descending: false } });
  }
  assert.equal(keeping(Promise.reject(new Error('gone'))).now.sort.column, 'cell');
});
