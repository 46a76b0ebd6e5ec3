import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { keyAction } from '../src/dashboard/keys';
import { place, shortened } from '../src/dashboard/labels';
import { figureIn, isMetric, METRICS, reasonOf, topOf, unitOf, valueOf } from '../src/dashboard/metrics';
import { after } from '../src/dashboard/navigation';
import { Pace } from '../src/dashboard/pace';
import { Passing } from '../src/dashboard/passing';
import { runs } from '../src/dashboard/runs';
import { restored, USUAL, withGpu, withMetric, withOnly } from '../src/dashboard/state';
import { FakeTimers, GIB, gpu, reading } from './fakes';

const ACTIVITY = {
  since: 0,
  until: 1,
  graphics: 1,
  sm: 2,
  sm_occupancy: 3,
  tensor: 4,
  dram: 5,
  fp64: 6,
  fp32: 7,
  fp16: null,
  pcie_tx: 9,
  pcie_rx: 10,
  nvlink_tx: 11,
  nvlink_rx: 12
};

test('what a workspace kept is shown again', () => {
  const state = { range: 900, metrics: ['utilization', 'tensor'] as const, hidden: ['GPU-1'] };
  assert.deepEqual(restored(JSON.parse(JSON.stringify(state))), state);
});

test('whatever a workspace kept, a dashboard opens', () => {
  for (const kept of [undefined, null, 7, 'x', [], { range: '5', metrics: 'all', hidden: 3 }]) {
    assert.deepEqual(restored(kept), USUAL);
  }
  const old = { range: 7, metrics: ['gone', 'sm'], hidden: [1, 'GPU-0'] };
  assert.deepEqual(restored(old), { range: 300, metrics: ['sm'], hidden: ['GPU-0'] });
  assert.deepEqual(restored({ metrics: [] }).metrics, []);
});

test('metrics keep their order whichever is chosen first', () => {
  const none = { ...USUAL, metrics: [] };
  const two = withMetric(withMetric(none, 'tensor', true), 'utilization', true);
  assert.deepEqual(two.metrics, ['utilization', 'tensor']);
  assert.deepEqual(withMetric(two, 'utilization', false).metrics, ['tensor']);
  assert.deepEqual(withMetric(two, 'no metric', true), two);
});

test('a GPU is hidden and shown, or shown alone and then with all', () => {
  const without = withGpu(USUAL, 'b', false);
  assert.deepEqual(without.hidden, ['b']);
  assert.deepEqual(withGpu(without, 'b', true).hidden, []);
  const alone = withOnly(without, 'b', ['a', 'b', 'c']);
  assert.deepEqual(alone.hidden, ['a', 'c']);
  assert.deepEqual(withOnly(alone, 'b', ['a', 'b', 'c']).hidden, []);
});

test('every metric has its value, from the reading or the hardware counters, and a reason where it has none', () => {
  const here = reading(0, {
    activity: ACTIVITY,
    memory_temperature_c: null,
    missing: { memory_temperature_c: 'no sensor' }
  });
  assert.deepEqual(
    METRICS.map(name => valueOf(here, name)),
    [50, 10, 35 * GIB, 300, 40, null, 1980, 1, 2, 3, 4, 5, 6, 7, null, 9, 10, 11, 12]
  );
  assert.equal(reasonOf(here, 'memory_temperature_c'), 'no sensor');
  const without = reading(0, { missing: { activity: 'Hopper and later' } });
  assert.deepEqual([valueOf(without, 'sm'), reasonOf(without, 'sm')], [null, 'Hopper and later']);
  assert.equal(reasonOf(without, 'utilization'), '');
  assert.deepEqual([isMetric('sm'), isMetric('uuid'), isMetric(3)], [true, false, false]);
});

test('an axis is as high as all there is, or a round number above what was seen', () => {
  assert.equal(topOf('utilization', 3, [], []), 100);
  assert.equal(topOf('memory_used', 5, [gpu(0), gpu(1, { memory_total: 80 * GIB })], []), 140 * GIB);
  assert.equal(topOf('power_w', 90, [], [700]), 800);
  assert.equal(topOf('power_w', 1017, [], [700]), 1500);
  assert.equal(topOf('temperature_c', 104, [], []), 150);
  assert.equal(topOf('sm_clock_mhz', 1980, [], []), 2000);
  assert.equal(topOf('pcie_tx', 0, [], []), 1e6);
  assert.equal(topOf('nvlink_rx', 3.2e10, [], []), 4e10);
});

test('figures are told in the unit of their axis, and a little is not nothing', () => {
  const told = (name: Parameters<typeof unitOf>[0], top: number, value: number | null): string =>
    `${figureIn(value, unitOf(name, top))} ${unitOf(name, top).name}`;
  assert.equal(told('memory_used', 140 * GIB, 14.2 * GIB), '14.2 GiB');
  assert.equal(told('memory_used', 140 * GIB, 1024 ** 2), '<0.1 GiB');
  assert.equal(told('pcie_tx', 1e6, 5e5), '0.5 MB/s');
  assert.equal(told('nvlink_rx', 4e10, 3.2e10), '32 GB/s');
  assert.equal(told('power_w', 800, 612.4), '612 W');
  assert.equal(told('sm_clock_mhz', 2000, 1980), '1980 MHz');
  assert.equal(told('utilization', 100, 0), '0 %');
  assert.equal(told('utilization', 100, null), 'n/a %');
});

test('labels that would cover each other stand together', () => {
  assert.deepEqual(place([50, 10, 53, 100], 11, 5, 95), [
    { y: 10, members: [1] },
    { y: 50, members: [0, 2] },
    { y: 95, members: [3] }
  ]);
  assert.deepEqual(place([], 11, 0, 9), []);
  assert.equal(shortened(['10', '2', '0'], 3), '0 2 10');
  assert.equal(shortened(['3', '2', '1', '0', '10'], 3), '0 1 +3');
});

test('what is known is drawn between the gaps', () => {
  assert.deepEqual(runs([null, 1, 2, null, 3]), [
    [1, 3],
    [4, 5]
  ]);
  assert.deepEqual(runs([null]), []);
  assert.deepEqual(runs([0]), [[0, 1]]);
});

test('keys move, zoom, read off and go back', () => {
  const key = (name: string, held: Partial<KeyboardEvent> = {}): unknown =>
    keyAction({ key: name, shiftKey: false, ctrlKey: false, altKey: false, metaKey: false, ...held });
  assert.deepEqual(key('ArrowLeft'), { kind: 'move', share: -0.2 });
  assert.deepEqual(key('ArrowRight', { shiftKey: true }), { kind: 'point', share: 0.01 });
  assert.deepEqual(
    [key('+'), key('-')],
    [
      { kind: 'zoom', factor: 0.5 },
      { kind: 'zoom', factor: 2 }
    ]
  );
  assert.deepEqual([key('Escape'), key('0')], [{ kind: 'reset' }, { kind: 'reset' }]);
  assert.deepEqual([key('a'), key('+', { ctrlKey: true }), key('ArrowUp')], [null, null, null]);
});

test('a part moves and grows within the hour that is held', () => {
  const part = { from: 9700, to: 10_000 };
  const move = (share: number): unknown => after({ kind: 'move', share }, part, 10_000, null);
  assert.deepEqual(move(-0.2), { from: 9640, to: 9940 });
  assert.deepEqual(move(0.2), part);
  assert.deepEqual(after({ kind: 'move', share: -1 }, { from: 6500, to: 6800 }, 10_000, null), {
    from: 6400,
    to: 6700
  });
  assert.deepEqual(after({ kind: 'zoom', factor: 0.5 }, part, 10_000, null), { from: 9775, to: 9925 });
  assert.deepEqual(after({ kind: 'zoom', factor: 0.5 }, part, 10_000, 10_000), { from: 9850, to: 10_000 });
  assert.deepEqual(after({ kind: 'zoom', factor: 100 }, part, 10_000, null), { from: 6400, to: 10_000 });
  assert.deepEqual(after({ kind: 'zoom', factor: 0.001 }, part, 10_000, 9850), { from: 9849, to: 9851 });
});

test('nothing is drawn more often than it can be read, and no news is lost', async () => {
  const timers = new FakeTimers();
  let drawn = 0;
  const pace = new Pace(timers, () => drawn++);
  pace.seconds = 60;
  for (let tick = 0; tick < 50; tick++) {
    pace.ask();
    await timers.pass(200);
  }
  assert.ok(drawn >= 18 && drawn <= 23, String(drawn));
  await timers.pass(1000);
  const before = drawn;
  await timers.pass(10_000);
  assert.equal(drawn, before);
  pace.ask();
  assert.equal(drawn, before + 1);
  pace.ask();
  pace.stop();
  await timers.pass(10_000);
  assert.deepEqual([drawn, timers.running], [before + 1, 0]);
});

test('what came of a click is said for ten seconds, or until the next one', async () => {
  const timers = new FakeTimers();
  const shown: (string | null)[] = [];
  const passing: Passing = new Passing(timers, 10_000, () => shown.push(passing.text));
  passing.say('no table');
  await timers.pass(9_000);
  passing.say('no table again');
  await timers.pass(9_999);
  assert.equal(passing.text, 'no table again');
  await timers.pass(1);
  assert.deepEqual(shown, ['no table', 'no table again', null]);
  passing.say('x');
  passing.say(null);
  assert.deepEqual([passing.text, timers.running], [null, 0]);
});
