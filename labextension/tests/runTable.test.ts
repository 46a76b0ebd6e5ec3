import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { parseReport } from '../src/model/cells/report';
import {
  NOTEBOOK_ORDER,
  runKey,
  sortedRuns,
  toggledSort,
  totals,
  type CellRun,
  type Sort
} from '../src/model/cells/runTable';
import { GIB } from './fakes';
import { report, reportedGpu, span } from './fakes_cells';

function run(count: number, delta: number | null, cell: Record<string, unknown> = {}): CellRun {
  const allocated = span(10, delta === null ? null : 10 + delta, 8 * GIB);
  const torch = { allocated, reserved: span(0, GIB, 8 * GIB), ooms: 0 };
  const found = parseReport(report(count, { gpus: [reportedGpu(0, { torch, energy_j: delta })] }, cell));
  assert.ok(found);
  return { key: runKey(found), cellId: `cell-${String(count)}`, code: '', trusted: true, report: found };
}

function order(runs: readonly CellRun[], sort: Sort): (number | null)[] {
  return sortedRuns(runs, sort).map(({ report: { executionCount } }) => executionCount);
}

test('the list is in the notebook’s order, reversed by a click on its header', () => {
  const runs = [run(7, 1), run(2, 3), run(5, 2)];
  assert.deepEqual(order(runs, NOTEBOOK_ORDER), [7, 2, 5]);
  assert.deepEqual(order(runs, toggledSort(NOTEBOOK_ORDER, 'cell')), [5, 2, 7]);
});

test('numbers are sorted with the largest first, after a second click with the smallest', () => {
  const runs = [run(1, -4), run(2, 9), run(3, 0)];
  const once = toggledSort(NOTEBOOK_ORDER, 'delta');
  assert.deepEqual(order(runs, once), [2, 3, 1]);
  assert.deepEqual(order(runs, toggledSort(once, 'delta')), [1, 3, 2]);
  assert.deepEqual(toggledSort(once, 'time'), { column: 'time', descending: true });
});

test('unknown values come last in both directions', () => {
  const runs = [run(1, null), run(2, 5), run(3, -5)];
  assert.deepEqual(order(runs, { column: 'delta', descending: true }), [2, 3, 1]);
  assert.deepEqual(order(runs, { column: 'delta', descending: false }), [3, 2, 1]);
});

test('equal values keep the notebook’s order', () => {
  const runs = [run(4, 1), run(2, 1), run(9, 1)];
  assert.deepEqual(order(runs, { column: 'peak', descending: true }), [4, 2, 9]);
});

test('the time and the energy of all runs are added', () => {
  const runs = [run(1, 10, { started: 0, duration_s: 2 }), run(2, 30, { started: 5, duration_s: 3 })];
  assert.deepEqual(totals(runs), { seconds: 5, joules: 40, atLeast: false });
});

test('a run within another run counts once', () => {
  const runs = [
    run(2, 5, { started: 1, duration_s: 2 }),
    run(1, 10, { started: 0, duration_s: 10 }),
    run(3, 7, { started: 10, duration_s: 1 })
  ];
  assert.deepEqual(totals(runs), { seconds: 11, joules: 17, atLeast: false });
});

test('with an unknown energy the sum is a lower bound', () => {
  const unknown = run(2, null, { started: 50, duration_s: null });
  assert.deepEqual(totals([run(1, 10), unknown]), { seconds: 0.5, joules: 10, atLeast: true });
  assert.deepEqual(totals([unknown]), { seconds: null, joules: null, atLeast: true });
  assert.deepEqual(totals([]), { seconds: null, joules: null, atLeast: false });
});
