import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { Reader } from '../src/cells/reader';
import { FakeClock } from './fakes';
import { codeCell, FakeCells, FakeOutput, report } from './fakes_cells';

function made(cells: FakeCells): { reader: Reader; timers: FakeClock; told: () => number } {
  const timers = new FakeClock();
  const reader = new Reader(timers);
  let told = 0;
  reader.look(true);
  reader.read(cells);
  reader.changed.connect(() => told++);
  return { reader, timers, told: () => told };
}

function listed(reader: Reader): [string, number | null][] {
  return reader.rows.map(row => [row.cellId, row.report.executionCount]);
}

test('the reports of a saved notebook are listed in its order', () => {
  const cells = new FakeCells([
    codeCell('a', new FakeOutput('stream'), FakeOutput.report(report(3))),
    { id: 'markdown' },
    codeCell('b', FakeOutput.report(report(1)), FakeOutput.report(report(2)))
  ]);
  const { reader } = made(cells);
  assert.deepEqual(listed(reader), [
    ['a', 3],
    ['b', 1],
    ['b', 2]
  ]);
});

test('a report that comes is listed, and gone when its output is cleared', async () => {
  const cell = codeCell('a');
  const { reader, timers } = made(new FakeCells([cell]));
  cell.outputs.add(FakeOutput.report(report(1)));
  await timers.pass(200);
  assert.deepEqual(listed(reader), [['a', 1]]);
  cell.outputs.clear();
  await timers.pass(200);
  assert.deepEqual(listed(reader), []);
});

test('a live view whose place a report takes later is listed then', async () => {
  const live = new FakeOutput('display_data', { 'application/vnd.jupyter.widget-view+json': {} });
  const cell = codeCell('a', live);
  const { reader, timers } = made(new FakeCells([cell]));
  const done = FakeOutput.report(report(1));
  cell.outputs.get = () => done;
  cell.outputs.changed.emit({ oldValues: [done], newValues: [done] });
  await timers.pass(200);
  assert.deepEqual(listed(reader), [['a', 1]]);
});

test('a cell that prints has nothing read anew, nor anybody told', async () => {
  const card = FakeOutput.report(report(1));
  const cell = codeCell('a');
  const { timers, told } = made(new FakeCells([codeCell('b', card), cell]));
  const looks = card.looked;
  for (let line = 0; line < 1000; line++) {
    cell.outputs.add(new FakeOutput('stream'));
    cell.outputs.add(new FakeOutput('display_data', { 'image/png': 'x' }));
  }
  await timers.pass(1000);
  assert.deepEqual([card.looked, told(), timers.running], [looks, 0, 0]);
});

test('many reports at once are read together', async () => {
  const cells = Array.from({ length: 100 }, (_, place) => codeCell(String(place)));
  const { reader, timers, told } = made(new FakeCells(cells));
  cells.forEach((cell, place) => {
    cell.outputs.add(FakeOutput.report(report(place)));
  });
  await timers.pass(200);
  assert.deepEqual([reader.rows.length, told()], [100, 1]);
});

test('cells that are moved, deleted and made anew', async () => {
  const [a, b] = [codeCell('a', FakeOutput.report(report(1))), codeCell('b', FakeOutput.report(report(2)))];
  const cells = new FakeCells([a, b]);
  const { reader, timers } = made(cells);
  cells.become(b, a);
  await timers.pass(200);
  assert.deepEqual(listed(reader), [
    ['b', 2],
    ['a', 1]
  ]);
  const c = codeCell('c');
  cells.become(c, b);
  c.outputs.add(FakeOutput.report(report(3)));
  a.outputs.add(FakeOutput.report(report(4)));
  await timers.pass(200);
  assert.deepEqual(listed(reader), [
    ['c', 3],
    ['b', 2]
  ]);
});

test('a report that is shown in several cells is one run', () => {
  const cells = new FakeCells([
    codeCell('a', FakeOutput.report(report(1))),
    codeCell('copy', FakeOutput.report(report(1)))
  ]);
  assert.deepEqual(listed(made(cells).reader), [['a', 1]]);
});

test('reports of another version are left out and counted', async () => {
  const cell = codeCell('a', FakeOutput.report(report(1, { schema: 2 })), FakeOutput.report(report(2)));
  const { reader, timers } = made(new FakeCells([cell, codeCell('b', FakeOutput.report('broken'))]));
  assert.deepEqual([listed(reader), reader.foreign], [[['a', 2]], 2]);
  cell.outputs.clear();
  await timers.pass(200);
  assert.deepEqual([listed(reader), reader.foreign], [[], 1]);
});

test('while nobody looks nothing is read or heard, and then all of it is there', async () => {
  const cell = codeCell('a');
  const { reader, timers, told } = made(new FakeCells([cell]));
  cell.outputs.add(FakeOutput.report(report(1)));
  reader.look(false);
  const before = told();
  const card = FakeOutput.report(report(2));
  cell.outputs.add(card);
  await timers.pass(1000);
  assert.deepEqual([card.looked, told(), timers.running], [0, before, 0]);
  reader.look(true);
  assert.deepEqual(listed(reader), [
    ['a', 1],
    ['a', 2]
  ]);
});

test('another notebook in front has its own list, and the one before is heard no more', async () => {
  const cell = codeCell('a', FakeOutput.report(report(1)));
  const { reader, timers } = made(new FakeCells([cell]));
  reader.read(new FakeCells([codeCell('z', FakeOutput.report(report(9)))]));
  cell.outputs.add(FakeOutput.report(report(2)));
  await timers.pass(1000);
  assert.deepEqual(listed(reader), [['z', 9]]);
  reader.read(null);
  assert.deepEqual(listed(reader), []);
});
