import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { trans } from './fakes';
import {
  change,
  duration,
  energy,
  figure,
  memory,
  memoryChange,
  memoryOf,
  memoryUnit,
  model,
  moment,
  otherDay,
  padded,
  powerOf,
  sentence,
  elapsedTime,
  whole,
  withUnit
} from '../src/model/format';

const KIB = 1024;
const MIB = 1024 ** 2;
const GIB = 1024 ** 3;
const IN_GIB = { name: 'GiB', size: GIB };
const IN_MIB = { name: 'MiB', size: MIB };

test('memory is written in a suitable unit', () => {
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

test('a figure halfway between two is rounded as in the Python package', () => {
  assert.deepEqual(
    [12.25, 12.75, 12.35].map(size => memory(size * GIB)),
    ['12.2 GiB', '12.8 GiB', '12.3 GiB']
  );
  assert.deepEqual(
    [memory(10.5 * MIB), memory(11.5 * MIB), figure(2.25 * MIB, IN_MIB)],
    ['10 MiB', '12 MiB', '2.2']
  );
  assert.deepEqual([850.5, 2250, 2350, 1_125_000].map(energy), ['850 J', '2.2 kJ', '2.4 kJ', '1.12 MJ']);
  assert.deepEqual([2.25, 62.5, 3629.6, 3630].map(elapsedTime), [
    '2.2 s',
    '1 min 02 s',
    '1 h 00 min',
    '1 h 00 min'
  ]);
});

test('an unknown value is n/a and never 0', () => {
  assert.deepEqual(
    [memory(null), memory(NaN), figure(null, IN_GIB), whole(undefined), powerOf(trans, null, 700)],
    ['n/a', 'n/a', 'n/a', 'n/a', 'n/a']
  );
});

test('a common unit is that of the largest value, and small values are not 0', () => {
  assert.equal(memoryUnit([null, 3 * MIB, 2 * GIB]).name, 'GiB');
  assert.equal(memoryUnit([null]).name, 'MiB');
  assert.deepEqual(
    [figure(0, IN_GIB), figure(3 * MIB, IN_GIB), figure(2.5 * GIB, IN_GIB), figure(682 * MIB, IN_MIB)],
    ['0', '<0.1', '2.5', '682']
  );
});

test('figures of the list of cells have no decimals from 100 on', () => {
  assert.deepEqual(
    [99.9, 99.96, 137.4].map(size => figure(size * GIB, IN_GIB)),
    ['99.9', '100', '137']
  );
  assert.deepEqual([99_900, 99_960, 137_400].map(energy), ['99.9 kJ', '100 kJ', '137 kJ']);
});

test('numbers are padded to a fixed width', () => {
  assert.deepEqual([padded('7', 3), padded('97', 3), padded('100', 3)], ['\u2007\u20077', '\u200797', '100']);
  assert.equal(padded('9.5', 3), '\u20089.5');
  assert.equal(padded('未知', 6), '\u2007\u2007未知');
});

test('power is written with its limit if that is known', () => {
  assert.deepEqual([powerOf(trans, 611.4, 700), powerOf(trans, 611.4, null)], ['611 of 700 W', '611 W']);
});

test('an unknown value has no unit', () => {
  assert.deepEqual([withUnit('51', '°C'), withUnit(padded('n/a', 4), 'MHz')], ['51 °C', '\u2007n/a']);
});

test('durations are written as in the Python package', () => {
  assert.deepEqual([0.4, 12, 185, 7440].map(duration), ['0 s', '12 s', '3 min 05 s', '2 h 04 min']);
});

test('a time on another day has a date', () => {
  const noon = new Date(2026, 4, 3, 12, 0, 0).getTime() / 1000;
  assert.equal(moment(noon, noon + 60), '12:00:00');
  assert.equal(moment(noon, noon + 86400), '2026-05-03 12:00:00');
});

test('the day of a time is written in the language of the page, unless it is today', () => {
  const then = new Date(2026, 10, 25, 16, 5, 0).getTime() / 1000;
  const days = (now: Date): string[] =>
    ['en', 'zh-CN', 'de'].map(locale => otherDay(then, now.getTime() / 1000, locale));
  assert.deepEqual(days(new Date(2026, 10, 25, 23, 59)), ['', '', '']);
  assert.deepEqual(days(new Date(2026, 10, 26, 0, 1)), [
    'Nov 25, 16:05',
    '11月25日 16:05',
    '25. Nov., 16:05'
  ]);
  assert.deepEqual(days(new Date(2027, 0, 1)), ['Nov 25, 2026', '2026年11月25日', '25. Nov. 2026']);
  const midnight = new Date(2026, 10, 25).getTime() / 1000;
  assert.equal(otherDay(midnight, midnight + 86400, 'en'), 'Nov 25, 00:00');
});

test('a language that is no language tag does not prevent a day from being written', () => {
  assert.match(otherDay(1e9, 2e9, 'no language'), /2001/);
});

test('the name of a model lacks the vendor', () => {
  assert.equal(model('NVIDIA GeForce RTX 4090 Laptop GPU'), 'GeForce RTX 4090 Laptop GPU');
});

test('a change has a sign', () => {
  assert.deepEqual(
    [3.2 * GIB, -3.2 * GIB, 0, 3 * MIB, -3 * MIB, null].map(size => change(size, IN_GIB)),
    ['+3.2', '−3.2', '±0', '+<0.1', '−<0.1', 'n/a']
  );
  assert.deepEqual([64 * MIB, -3.2 * GIB, 0, null].map(memoryChange), ['+64 MiB', '−3.2 GiB', '±0', 'n/a']);
});

test('energy and times are written as in the cards', () => {
  assert.deepEqual([0.44, 850, 2300, 1.25e6, 999.6, 999.6e3, null, NaN].map(energy), [
    '0.4 J',
    '850 J',
    '2.3 kJ',
    '1.25 MJ',
    '1.0 kJ',
    '1.00 MJ',
    'n/a',
    'n/a'
  ]);
  assert.deepEqual([380e-6, 2.1e-3, 0.05, 0.9996, 14, 59.96, 185, 7440, null].map(elapsedTime), [
    '380 µs',
    '2.1 ms',
    '50 ms',
    '1.0 s',
    '14.0 s',
    '1 min 00 s',
    '3 min 05 s',
    '2 h 04 min',
    'n/a'
  ]);
});

test('memory in use is written with the total, in one unit and as wide as the total', () => {
  const total = 140.4 * GIB;
  const texts = [0, 0.01 * GIB, 9.8 * GIB, 57 * GIB, 117.2 * GIB].map(used => memoryOf(trans, used, total));
  assert.deepEqual(texts, [
    '\u2007\u20070 of 140 GiB',
    '<0.1 of 140 GiB',
    '\u20089.8 of 140 GiB',
    '\u200757 of 140 GiB',
    '117 of 140 GiB'
  ]);
  assert.equal(memoryOf(trans, 512 * MIB, 8 * GIB), '0.5 of 8.0 GiB');
  assert.deepEqual([memoryOf(trans, null, total), memoryOf(trans, GIB, null)], ['n/a', '1.0 GiB']);
});

test('an error becomes a sentence with one period', () => {
  assert.deepEqual(['Failed to fetch', 'The server does not answer.', '服务器没有响应。'].map(sentence), [
    'Failed to fetch.',
    'The server does not answer.',
    '服务器没有响应。'
  ]);
});
