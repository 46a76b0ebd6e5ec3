import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { Past, type Curve } from '../src/stream/past';
import { GIB, history, reading, sample } from './fakes';

const TOTAL = 140 * GIB;

function curve(past: Past, since = 0, total: number | null = TOTAL, gap = 10): Curve {
  const into: Curve = [[], [], []];
  past.curve('GPU-0', since, total, gap, into);
  return into;
}

test('a chart begins with the past that the server held', () => {
  const past = new Past(10);
  past.restart(history([1, 2, 3], [10, null, 30]));
  assert.deepEqual(curve(past), [
    [1, 2, 3],
    [10, null, 30],
    [25, 25, 25]
  ]);
  assert.equal(past.newest, 3);
});

test('only the newest is kept where there is room for no more', () => {
  const past = new Past(3);
  past.restart(history([1, 2, 3, 4]));
  for (const time of [5, 6]) {
    past.add(sample(time, [reading(0, { utilization: time })]));
  }
  assert.deepEqual(curve(past).slice(0, 2), [
    [4, 5, 6],
    [4, 5, 6]
  ]);
});

test('a sample that the history holds already is not drawn twice', () => {
  const past = new Past(10);
  past.restart(history([1, 2]));
  past.add(sample(2));
  assert.deepEqual(curve(past)[0], [1, 2]);
});

test('where the clock was set back the curve begins anew', () => {
  const past = new Past(10);
  past.add(sample(5000));
  past.add(sample(1000));
  past.add(sample(1001));
  const curve: Curve = [[], [], []];
  past.curve('GPU-0', 0, null, 10, curve);
  assert.deepEqual([past.newest, curve[0]], [1001, [1000, 1001]]);
});

test('while nobody looked the curve is broken, not made up', () => {
  const past = new Past(10);
  past.restart(history([1, 2, 40]));
  assert.deepEqual(curve(past).slice(0, 2), [
    [1, 2, 21, 40],
    [1, 2, null, 40]
  ]);
});

test('a value that is not known is a gap', () => {
  const past = new Past(10);
  past.add(sample(1, [reading(0, { utilization: null, memory_used: null })]));
  assert.deepEqual(curve(past), [[1], [null], [null]]);
  past.add(sample(2));
  assert.deepEqual(curve(past, 2, null), [[2], [50], [null]]);
});

test('a GPU that was away has no values for that time', () => {
  const past = new Past(10);
  past.add(sample(1));
  past.add(sample(2, []));
  past.add(sample(3));
  assert.deepEqual(curve(past)[1], [50, null, 50]);
});

test('a GPU that nobody knows has an empty past', () => {
  const into: Curve = [[9], [9], [9]];
  new Past(4).curve('GPU-7', 0, TOTAL, 10, into);
  assert.deepEqual(into, [[], [], []]);
});
