import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { HistoryBuffer, type Curve } from '../src/model/stream/historyBuffer';
import { GIB, history, reading, sample } from './fakes';

const TOTAL = 140 * GIB;

function curve(buffer: HistoryBuffer, since = 0, total: number | null = TOTAL, gap = 10): Curve {
  const into: Curve = [[], [], []];
  buffer.curve('GPU-0', since, total, gap, into);
  return into;
}

test('the buffer starts with the server’s history', () => {
  const buffer = new HistoryBuffer(10);
  buffer.restart(history([1, 2, 3], [10, null, 30]));
  assert.deepEqual(curve(buffer), [
    [1, 2, 3],
    [10, null, 30],
    [25, 25, 25]
  ]);
  assert.equal(buffer.newest, 3);
});

test('a full buffer keeps the newest samples', () => {
  const buffer = new HistoryBuffer(3);
  buffer.restart(history([1, 2, 3, 4]));
  for (const time of [5, 6]) {
    buffer.add(sample(time, [reading(0, { utilization: time })]));
  }
  assert.deepEqual(curve(buffer).slice(0, 2), [
    [4, 5, 6],
    [4, 5, 6]
  ]);
});

test('a sample that is already in the history is not added again', () => {
  const buffer = new HistoryBuffer(10);
  buffer.restart(history([1, 2]));
  buffer.add(sample(2));
  assert.deepEqual(curve(buffer)[0], [1, 2]);
});

test('the buffer starts over when the clock was set back', () => {
  const buffer = new HistoryBuffer(10);
  buffer.add(sample(5000));
  buffer.add(sample(1000));
  buffer.add(sample(1001));
  const curve: Curve = [[], [], []];
  buffer.curve('GPU-0', 0, null, 10, curve);
  assert.deepEqual([buffer.newest, curve[0]], [1001, [1000, 1001]]);
});

test('a pause without samples is a gap in the curve', () => {
  const buffer = new HistoryBuffer(10);
  buffer.restart(history([1, 2, 40]));
  assert.deepEqual(curve(buffer).slice(0, 2), [
    [1, 2, 21, 40],
    [1, 2, null, 40]
  ]);
});

test('an unknown value is a gap', () => {
  const buffer = new HistoryBuffer(10);
  buffer.add(sample(1, [reading(0, { utilization: null, memory_used: null })]));
  assert.deepEqual(curve(buffer), [[1], [null], [null]]);
  buffer.add(sample(2));
  assert.deepEqual(curve(buffer, 2, null), [[2], [50], [null]]);
});

test('a GPU that was missing from a sample has a gap there', () => {
  const buffer = new HistoryBuffer(10);
  buffer.add(sample(1));
  buffer.add(sample(2, []));
  buffer.add(sample(3));
  assert.deepEqual(curve(buffer)[1], [50, null, 50]);
});

test('an unknown GPU has an empty curve', () => {
  const into: Curve = [[9], [9], [9]];
  new HistoryBuffer(4).curve('GPU-7', 0, TOTAL, 10, into);
  assert.deepEqual(into, [[], [], []]);
});

test('each GPU has its own curve of the same samples, also after the next sample', () => {
  const buffer = new HistoryBuffer(10);
  const [first, second]: [Curve, Curve] = [
    [[], [], []],
    [[], [], []]
  ];
  for (const time of [1, 2]) {
    buffer.add(sample(time, [reading(0, { utilization: time }), reading(1, { utilization: 10 * time })]));
    buffer.curve('GPU-0', 0, TOTAL, 10, first);
    buffer.curve('GPU-1', 0, 2 * TOTAL, 10, second);
  }
  assert.deepEqual(first, [
    [1, 2],
    [1, 2],
    [25, 25]
  ]);
  assert.deepEqual(second, [
    [1, 2],
    [10, 20],
    [12.5, 12.5]
  ]);
});

test('a buffer that became full drops only its oldest samples, however often it wraps around', () => {
  const buffer = new HistoryBuffer(4);
  for (let time = 1; time <= 11; time++) {
    buffer.add(sample(time, [reading(0, { utilization: time })]));
  }
  assert.deepEqual(curve(buffer, 9).slice(0, 2), [
    [9, 10, 11],
    [9, 10, 11]
  ]);
  assert.deepEqual(curve(buffer)[0], [8, 9, 10, 11]);
});
