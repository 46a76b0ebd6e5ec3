import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import {
  duration,
  figure,
  memory,
  memoryUnit,
  model,
  moment,
  padded,
  powerOf,
  whole,
  withUnit
} from '../src/ui/format';

const KIB = 1024;
const MIB = 1024 ** 2;
const GIB = 1024 ** 3;

test('memory is read in the unit that fits it', () => {
  const sizes = [0, 900, 512 * KIB, 3 * MIB, 64 * MIB, 1023.6 * MIB, 15.6 * GIB];
  assert.deepEqual(sizes.map(memory), [
    '0 MiB',
    '900 B',
    '512 KiB',
    '3.0 MiB',
    '64 MiB',
    '1.0 GiB',
    '15.6 GiB'
  ]);
});

test('what is not known is n/a and never 0', () => {
  assert.deepEqual(
    [memory(null), memory(NaN), figure(null, 'GiB'), whole(undefined), powerOf(null, 700)],
    ['n/a', 'n/a', 'n/a', 'n/a', 'n/a']
  );
});

test('figures that stand together have one unit, and a little is not nothing', () => {
  assert.equal(memoryUnit([null, 3 * MIB, 2 * GIB]), 'GiB');
  assert.equal(memoryUnit([null]), 'MiB');
  assert.deepEqual(
    [figure(0, 'GiB'), figure(3 * MIB, 'GiB'), figure(2.5 * GIB, 'GiB'), figure(682 * MIB, 'MiB')],
    ['0', '<0.1', '2.5', '682']
  );
});

test('a number that grows a digit begins where it did', () => {
  assert.deepEqual([padded('7', 3), padded('97', 3), padded('100', 3)], ['\u2007\u20077', '\u200797', '100']);
});

test('power names its limit where that is known', () => {
  assert.deepEqual([powerOf(611.4, 700), powerOf(611.4, null)], ['611 of 700 W', '611 W']);
});

test('what is not known has no unit', () => {
  assert.deepEqual([withUnit('51', '°C'), withUnit(padded('n/a', 4), 'MHz')], ['51 °C', '\u2007n/a']);
});

test('durations are those of the other views', () => {
  assert.deepEqual([0.4, 12, 185, 7440].map(duration), ['0 s', '12 s', '3 min 05 s', '2 h 04 min']);
});

test('a moment of another day has its date', () => {
  const noon = new Date(2026, 4, 3, 12, 0, 0).getTime() / 1000;
  assert.equal(moment(noon, noon + 60), '12:00:00');
  assert.equal(moment(noon, noon + 86400), '2026-05-03 12:00:00');
});

test("a model's name keeps what tells it apart", () => {
  assert.equal(model('NVIDIA GeForce RTX 4090 Laptop GPU'), 'GeForce RTX 4090 Laptop GPU');
});
