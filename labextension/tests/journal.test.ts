import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import {
  cellById,
  crc32,
  deadChartIn,
  hasNewerReport,
  idOf,
  includesRun,
  isEdited,
  newestOfCells,
  reportedRuns
} from '../src/model/cells/journal';
import type { Output } from '../src/model/cells/reportReader';
import { KnownRuns } from '../src/model/cells/knownRuns';
import { codeCell, FakeCells, FakeOutput, report } from './fakes_cells';
import { cardOf, FakeStorage, journalRun } from './fakes_journal';

test('the checksum of code is the one of Python, whatever the characters', () => {
  // zlib.crc32(text.encode())
  assert.deepEqual(['', 'abc', 'x = "é"\n', '学习 🙂'].map(crc32), [
    '00000000',
    '352441c2',
    'd42b22cc',
    '4f4be139'
  ]);
});

test('a card takes the place of the live chart that its run has left, and of nothing else', () => {
  const widget = { 'application/vnd.jupyter.widget-view+json': { model_id: 'a' } };
  const output = (data: object, metadata: object): Output => ({
    type: 'display_data',
    toJSON: () => ({ data, metadata })
  });
  const own = { gpuwidget: true };
  const outputs = (...items: Output[]): { length: number; get: (index: number) => Output } => ({
    length: items.length,
    get: index => items[index] ?? output({}, {})
  });
  const [chart, other, card] = [output(widget, own), output(widget, {}), output({ 'text/html': '' }, own)];
  assert.deepEqual([outputs(other, card, chart), outputs(other, card), outputs()].map(deadChartIn), [
    2,
    null,
    null
  ]);
});

test('a cell counts as edited only if its code differs from that of the run', () => {
  const cell = codeCell('cell-7');
  const edited = { ...cell, sharedModel: { getSource: () => '# cell-7 ' } };
  const upper = journalRun();
  assert.equal(isEdited(journalRun(), cell), false);
  assert.equal(isEdited(journalRun({ code: (upper.code ?? '').toUpperCase() }), cell), false);
  assert.equal(isEdited(journalRun(), edited), true);
  assert.equal(isEdited(journalRun({ code: null }), edited), false);
});

test('a report is that of a run if start and count agree, to the millisecond that the report has', () => {
  const run = journalRun({ started: 1796024320.7193456 });
  const ids = (started: unknown, count: unknown = 7): ReadonlySet<string> => {
    const value = report(7, {}, { started, execution_count: count });
    return new Set(reportedRuns([codeCell('a', FakeOutput.report(value))]).map(({ id }) => id));
  };
  assert.deepEqual(
    [ids(1796024320.719), ids(1796024320.72), ids(1796024320.725), ids(1796024320.719, 8), ids('soon')].map(
      each => includesRun(each, run)
    ),
    [true, true, false, false, false]
  );
});

test('outputs that anyone may have written are no reports, and do no harm', () => {
  const odd = [null, 7, 'x', [], {}, { cell: null }, { cell: [] }, { cell: { started: null } }];
  const cell = codeCell('a', new FakeOutput('stream'), ...odd.map(each => FakeOutput.report(each)));
  assert.deepEqual(reportedRuns([cell, {}]), []);
});

test('only the last execution of a cell counts, with all runs of that execution', () => {
  const run = journalRun();
  const inner = journalRun({ id: 'inner', label: 'epoch', started: run.started + 100 });
  const earlier = journalRun({ id: 'earlier', execution_count: 3, started: run.started - 9000 });
  const other = journalRun({ id: 'other', cell: 'cell-8', execution_count: 2, started: 0 });
  const elsewhere = journalRun({ id: 'elsewhere', path: 'x.ipynb', execution_count: 2, started: 0 });
  assert.deepEqual(
    newestOfCells([inner, run, earlier, other, elsewhere]).map(({ id }) => id),
    ['inner', 'run-7', 'other', 'elsewhere']
  );
});

test('a newer report is that of a later execution, not that of a run inside the same one', () => {
  const run = journalRun();
  const later = cardOf(journalRun({ started: run.started + 7200, execution_count: 8 }));
  const inside = cardOf(journalRun({ started: run.started + 60 }));
  assert.equal(hasNewerReport(run, codeCell('a', later)), true);
  assert.equal(hasNewerReport(run, codeCell('a', inside, cardOf(run))), false);
});

test('a cell is found by its id, and no other one is taken for it', () => {
  const cells = new FakeCells([codeCell('a'), codeCell('b')]);
  assert.equal(cellById(cells, 'b')?.id, 'b');
  assert.deepEqual(
    [cellById(cells, null), cellById(cells, 'c'), cellById(null, 'a')],
    [undefined, undefined, undefined]
  );
});

test('what one tab knows of runs, the other tabs know', () => {
  const storage = new FakeStorage();
  const [one, other] = [0, 1].map(() => new KnownRuns(storage, 'runs', () => 1000));
  assert.deepEqual([one?.read().isFirst, other?.read().isFirst], [true, true]);
  one?.add(['a'], ['b']);
  const { isFirst, known, done } = other?.read() ?? {};
  assert.deepEqual([isFirst, [...(known ?? [])], [...(done ?? [])]], [false, ['a'], ['b']]);
});

test('the storage holds the last 500 runs, and nothing is written twice', () => {
  const storage = new FakeStorage();
  const known = new KnownRuns(storage, 'runs', () => 1000);
  const ids = Array.from({ length: 600 }, (_, index) => String(index));
  known.add(ids);
  const stored = storage.getItem('runs');
  storage.items.set('runs', `${stored ?? ''} `);
  known.add(['599']);
  assert.equal(storage.getItem('runs'), `${stored ?? ''} `);
  assert.deepEqual([...known.read().known], ids.slice(100));
});

test('a browser that stores nothing, or something else, forgets with the page', () => {
  const blocked = {
    getItem: () => {
      throw new Error('blocked');
    },
    setItem: () => {
      throw new Error('blocked');
    }
  };
  for (const storage of [null, blocked, { getItem: () => '{"since": "x"}', setItem: () => undefined }]) {
    const known = new KnownRuns(storage, 'runs', () => 1000);
    assert.equal(known.read().isFirst, true);
    known.add(['a']);
    assert.deepEqual([known.read().isFirst, [...known.read().known]], [false, ['a']]);
  }
});

test('runs that ended more than a week before the browser looked for the first time are no news', () => {
  const storage = new FakeStorage();
  let now = 1_000_000;
  const known = new KnownRuns(storage, 'runs', () => now);
  known.add([]);
  now += 500;
  assert.equal(known.read().newsSince, 1_000_000 - 7 * 86_400);
  assert.equal(idOf(journalRun({ started: 12.3456, execution_count: null })), '[12346,null]');
});
