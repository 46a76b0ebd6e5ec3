import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { firstCodeLine, ReportReader } from '../src/model/cells/reportReader';
import { FakeClock } from './fakes';
import { codeCell, FakeCells, FakeOutput, report } from './fakes_cells';

function made(cells: FakeCells): { reader: ReportReader; clock: FakeClock; emitted: () => number } {
  const clock = new FakeClock();
  const reader = new ReportReader();
  let count = 0;
  reader.setVisible(true);
  reader.setCells(cells);
  reader.changed.connect(() => count++);
  return { reader, clock, emitted: () => count };
}

function listed(reader: ReportReader): [string, number | null][] {
  return reader.runs.map(run => [run.cellId, run.report.executionCount]);
}

test('the reports of a saved notebook are listed in its order', () => {
  const cells = new FakeCells([
    codeCell('a', new FakeOutput('stream'), FakeOutput.report(report(3))),
    { id: 'markdown', trusted: false, sharedModel: { getSource: () => '' } },
    codeCell('b', FakeOutput.report(report(1)), FakeOutput.report(report(2)))
  ]);
  const { reader } = made(cells);
  assert.deepEqual(listed(reader), [
    ['a', 3],
    ['b', 1],
    ['b', 2]
  ]);
});

test('a new report is listed, and removed when its output is cleared', async () => {
  const cell = codeCell('a');
  const { reader, clock } = made(new FakeCells([cell]));
  cell.outputs.add(FakeOutput.report(report(1)));
  await clock.pass(200);
  assert.deepEqual(listed(reader), [['a', 1]]);
  cell.outputs.clear();
  await clock.pass(200);
  assert.deepEqual(listed(reader), []);
});

test('a report that replaces a live view is listed', async () => {
  const live = new FakeOutput('display_data', { 'application/vnd.jupyter.widget-view+json': {} });
  const cell = codeCell('a', live);
  const { reader, clock } = made(new FakeCells([cell]));
  const done = FakeOutput.report(report(1));
  cell.outputs.get = () => done;
  cell.outputs.changed.emit({ oldValues: [done], newValues: [done] });
  await clock.pass(200);
  assert.deepEqual(listed(reader), [['a', 1]]);
});

test('printing reads no report again and emits nothing', async () => {
  const card = FakeOutput.report(report(1));
  const cell = codeCell('a');
  const { clock, emitted } = made(new FakeCells([codeCell('b', card), cell]));
  const reads = card.reads;
  for (let line = 0; line < 1000; line++) {
    cell.outputs.add(new FakeOutput('stream'));
    cell.outputs.add(new FakeOutput('display_data', { 'image/png': 'x' }));
  }
  await clock.pass(1000);
  assert.deepEqual([card.reads, emitted(), clock.running], [reads, 0, 0]);
});

test('many reports at once are read together', async () => {
  const cells = Array.from({ length: 100 }, (_, place) => codeCell(String(place)));
  const { reader, clock, emitted } = made(new FakeCells(cells));
  cells.forEach((cell, place) => {
    cell.outputs.add(FakeOutput.report(report(place)));
  });
  await clock.pass(200);
  assert.deepEqual([reader.runs.length, emitted()], [100, 1]);
});

test('moved, deleted and new cells change the list', async () => {
  const [a, b] = [codeCell('a', FakeOutput.report(report(1))), codeCell('b', FakeOutput.report(report(2)))];
  const cells = new FakeCells([a, b]);
  const { reader, clock } = made(cells);
  cells.replace(b, a);
  await clock.pass(200);
  assert.deepEqual(listed(reader), [
    ['b', 2],
    ['a', 1]
  ]);
  const c = codeCell('c');
  cells.replace(c, b);
  c.outputs.add(FakeOutput.report(report(3)));
  a.outputs.add(FakeOutput.report(report(4)));
  await clock.pass(200);
  assert.deepEqual(listed(reader), [
    ['c', 3],
    ['b', 2]
  ]);
});

test('a report that several cells show is one run', () => {
  const cells = new FakeCells([
    codeCell('a', FakeOutput.report(report(1))),
    codeCell('copy', FakeOutput.report(report(1)))
  ]);
  assert.deepEqual(listed(made(cells).reader), [['a', 1]]);
});

test('reports of another version are counted, not listed', async () => {
  const cell = codeCell('a', FakeOutput.report(report(1, { schema: 2 })), FakeOutput.report(report(2)));
  const { reader, clock } = made(new FakeCells([cell, codeCell('b', FakeOutput.report('broken'))]));
  assert.deepEqual([listed(reader), reader.incompatible], [[['a', 2]], 2]);
  cell.outputs.clear();
  await clock.pass(200);
  assert.deepEqual([listed(reader), reader.incompatible], [[], 1]);
});

test('nothing is read while hidden, and everything once visible', async () => {
  const cell = codeCell('a');
  const { reader, clock, emitted } = made(new FakeCells([cell]));
  cell.outputs.add(FakeOutput.report(report(1)));
  reader.setVisible(false);
  const before = emitted();
  const card = FakeOutput.report(report(2));
  cell.outputs.add(card);
  await clock.pass(1000);
  assert.deepEqual([card.reads, emitted(), clock.running], [0, before, 0]);
  reader.setVisible(true);
  assert.deepEqual(listed(reader), [
    ['a', 1],
    ['a', 2]
  ]);
});

test('another notebook has its own list, and the previous one is disconnected', async () => {
  const cell = codeCell('a', FakeOutput.report(report(1)));
  const { reader, clock } = made(new FakeCells([cell]));
  reader.setCells(new FakeCells([codeCell('z', FakeOutput.report(report(9)))]));
  cell.outputs.add(FakeOutput.report(report(2)));
  await clock.pass(1000);
  assert.deepEqual(listed(reader), [['z', 9]]);
  reader.setCells(null);
  assert.deepEqual(listed(reader), []);
});

test('the list is empty while a large notebook is read after another one', async () => {
  const { reader, clock, emitted } = made(
    new FakeCells([codeCell('a', FakeOutput.report(report(1)), FakeOutput.report('broken'))])
  );
  assert.deepEqual([listed(reader), reader.reports, reader.incompatible], [[['a', 1]], 2, 1]);
  const outputs = Array.from({ length: 25_000 }, () => new FakeOutput('stream'));
  reader.setCells(new FakeCells([codeCell('z', ...outputs, FakeOutput.report(report(9)))]));
  assert.deepEqual([listed(reader), reader.reports, reader.incompatible, emitted()], [[], 0, 0, 1]);
  await clock.pass(1000);
  assert.deepEqual([listed(reader), reader.reports, emitted()], [[['z', 9]], 1, 2]);
});

test('the first line of code is neither blank nor a comment nor a cell magic', () => {
  const first = (source: string): string => firstCodeLine({ sharedModel: { getSource: () => source } });
  assert.equal(
    first('%%gpuwatch --device cuda:1\n\n# training\n  loss = step(model)\nprint(loss)'),
    'loss = step(model)'
  );
  assert.equal(first('%gpu device cuda:1'), '%gpu device cuda:1');
  assert.equal(first('# only a comment'), '');
});

test('code of any length is searched only at its beginning, and no invisible character is shown', () => {
  const first = (source: string): string => firstCodeLine({ sharedModel: { getSource: () => source } });
  assert.equal(first(`${'\n'.repeat(20_000)}late`), '');
  assert.equal(first('x'.repeat(1e6)).length, 200);
  assert.equal(first('a\u202eb\u0007c'), 'a b c');
});

test('a notebook with 100,000 outputs is read in parts, with pauses', async () => {
  const outputs = Array.from({ length: 100_000 }, (_, place) =>
    place % 1000 === 7
      ? FakeOutput.report(report(place))
      : new FakeOutput('display_data', { 'image/png': '' })
  );
  const { reader, clock, emitted } = made(new FakeCells([codeCell('a', ...outputs)]));
  const reads = (): number => outputs.reduce((sum, output) => sum + output.reads, 0);
  assert.deepEqual([reads(), reader.runs.length, emitted()], [10_000, 0, 0]);
  await clock.pass(15);
  assert.equal(reads(), 20_000);
  await clock.pass(1000);
  assert.deepEqual([reads(), reader.runs.length, emitted(), clock.running], [100_000, 100, 1, 0]);
});

test('a cell that changes while its outputs are read is read again', async () => {
  const outputs = Array.from({ length: 25_000 }, () => FakeOutput.report(report(1)));
  const cell = codeCell('a', ...outputs);
  const { reader, clock } = made(new FakeCells([cell]));
  await clock.pass(15);
  cell.outputs.clear();
  cell.outputs.add(FakeOutput.report(report(2)));
  await clock.pass(1000);
  assert.deepEqual([listed(reader), reader.reports], [[['a', 2]], 1]);
  cell.outputs.clear();
  reader.setCells(null);
  await clock.pass(1000);
  assert.deepEqual([listed(reader), clock.running], [[], 0]);
});

test('of very many reports, only the last 500 are listed, and all are counted', async () => {
  const cells = Array.from({ length: 300 }, (_, place) =>
    codeCell(String(place), ...[0, 1, 2].map(each => FakeOutput.report(report(3 * place + each))))
  );
  const first = FakeOutput.report(
    new Proxy(report(0), {
      get: () => {
        throw new Error('A report that is not listed was parsed.');
      }
    })
  );
  const { reader, clock } = made(new FakeCells([codeCell('first', first), ...cells]));
  await clock.pass(1000);
  assert.deepEqual([reader.runs.length, reader.reports, clock.running], [500, 901, 0]);
  assert.deepEqual(
    [reader.runs.at(0)?.report.executionCount, reader.runs.at(-1)?.report.executionCount],
    [400, 899]
  );
});

test('a report in an untrusted cell is marked until the user trusts the cell', async () => {
  const output = FakeOutput.report(report(1));
  const cell = codeCell('a', output);
  cell.trusted = false;
  const { reader, clock } = made(new FakeCells([cell, codeCell('b', FakeOutput.report(report(2)))]));
  const trusted = (): boolean[] => reader.runs.map(run => run.trusted);
  assert.deepEqual(trusted(), [false, true]);
  cell.trusted = true;
  // JupyterLab creates the models of the outputs again.
  cell.outputs.changed.emit({ oldValues: [output], newValues: [output] });
  await clock.pass(200);
  assert.deepEqual(trusted(), [true, true]);
});
