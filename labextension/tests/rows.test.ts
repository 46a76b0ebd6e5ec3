import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { readReport } from '../src/cells/report';
import { keyOf, NOTEBOOK_ORDER, pressed, sorted, totals, type Row, type Sort } from '../src/cells/rows';
import { GIB } from './fakes';
import { report, reportedGpu, span } from './fakes_cells';

function row(count: number, delta: number | null, cell: Record<string, unknown> = {}): Row {
  const allocated = span(0, delta, 8 * GIB);
  const torch = { allocated, reserved: span(0, GIB, 8 * GIB), ooms: 0 };
  const found = readReport(report(count, { gpus: [reportedGpu(0, { torch, energy_j: delta })] }, cell));
  assert.ok(found);
  return { key: keyOf(found), cellId: `cell-${String(count)}`, report: found };
}

function order(rows: readonly Row[], sort: Sort): (number | null)[] {
  return sorted(rows, sort).map(({ report: { executionCount } }) => executionCount);
}

test('the list stands as the notebook does, and the other way round when its head is pressed', () => {
  const rows = [row(7, 1), row(2, 3), row(5, 2)];
  assert.deepEqual(order(rows, NOTEBOOK_ORDER), [7, 2, 5]);
  assert.deepEqual(order(rows, pressed(NOTEBOOK_ORDER, 'cell')), [5, 2, 7]);
});

test('a figure’s head puts the largest first, pressed again the smallest', () => {
  const rows = [row(1, -4), row(2, 9), row(3, 0)];
  const once = pressed(NOTEBOOK_ORDER, 'delta');
  assert.deepEqual(order(rows, once), [2, 3, 1]);
  assert.deepEqual(order(rows, pressed(once, 'delta')), [1, 3, 2]);
  assert.deepEqual(pressed(once, 'time'), { column: 'time', descending: true });
});

test('what is not known comes last, whichever way it is sorted', () => {
  const rows = [row(1, null), row(2, 5), row(3, -5)];
  assert.deepEqual(order(rows, { column: 'delta', descending: true }), [2, 3, 1]);
  assert.deepEqual(order(rows, { column: 'delta', descending: false }), [3, 2, 1]);
});

test('equal ones keep the order of the notebook', () => {
  const rows = [row(4, 1), row(2, 1), row(9, 1)];
  assert.deepEqual(order(rows, { column: 'peak', descending: true }), [4, 2, 9]);
});

test('time and energy of all runs', () => {
  const rows = [row(1, 10, { started: 0, duration_s: 2 }), row(2, 30, { started: 5, duration_s: 3 })];
  assert.deepEqual(totals(rows), { seconds: 5, joules: 40, atLeast: false });
});

test('a run within another run counts once', () => {
  const rows = [
    row(2, 5, { started: 1, duration_s: 2 }),
    row(1, 10, { started: 0, duration_s: 10 }),
    row(3, 7, { started: 10, duration_s: 1 })
  ];
  assert.deepEqual(totals(rows), { seconds: 11, joules: 17, atLeast: false });
});

test('where some energy is not known, the sum is said to be at least that', () => {
  const unknown = row(2, null, { started: 50, duration_s: null });
  assert.deepEqual(totals([row(1, 10), unknown]), { seconds: 0.5, joules: 10, atLeast: true });
  assert.deepEqual(totals([unknown]), { seconds: null, joules: null, atLeast: true });
  assert.deepEqual(totals([]), { seconds: null, joules: null, atLeast: false });
});
