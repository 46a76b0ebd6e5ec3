import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import {
  DEFAULT_STATE,
  isRecent,
  restoreState,
  withGpu,
  withMetric,
  withOnly,
  withoutPrometheus,
  keyAction,
  navigate
} from '../src/model/history/dashboardState';
import {
  axisTicks,
  axisTop,
  formatIn,
  isMetric,
  METRICS,
  metricText,
  reasonOf,
  sectionOf,
  sectionTitles,
  unitOf,
  valueOf
} from '../src/model/metrics';
import {
  abbreviate,
  groupLabels,
  paintRow,
  rowRanges,
  sortNumbers
} from '../src/views/dashboard/plotPainting';
import { dashPattern, colorIndex } from '../src/views/dashboard/gpuColors';
import { columnsFor } from '../src/views/dashboard/columns';
import { setUnits } from '../src/model/format';
import { gapsOf, TimeSeries } from '../src/model/history/timeSeries';
import type { MetricHistory } from '../src/wire/wire';
import { RenderThrottle } from '../src/views/dashboard/renderThrottle';
import { ACTIVITY, FakeClock, GIB, reading, trans } from './fakes';

const NOW = 10_000;

test('the saved state is restored after a reload, including the zoom', () => {
  const state = {
    range: 900,
    zoom: { from: 9000, to: 9100 },
    metrics: ['utilization', 'tensor'] as const,
    hidden: ['GPU-1'],
    node: 'node001',
    enlarged: 'tensor' as const,
    mean: true,
    lines: true,
    smoothing: 20
  };
  assert.deepEqual(restoreState(JSON.parse(JSON.stringify(state)), NOW), state);
});

test('a saved zoom is dropped once nobody has the history of it', () => {
  const zoom = { from: 9000, to: 9100 };
  const state = { ...DEFAULT_STATE, range: 7 * 86_400, zoom, node: 'node001' };
  assert.deepEqual(restoreState(state, 9100 + 30 * 86_400 - 1), state);
  assert.equal(restoreState(state, 9100 + 30 * 86_400).zoom, null);
  // Without a Prometheus, there is an hour of the server's machine.
  const own = { ...state, range: 3600, node: null };
  assert.deepEqual(withoutPrometheus(state, 9100 + 3599), own);
  assert.deepEqual(withoutPrometheus(state, 9100 + 3600), { ...own, zoom: null });
});

test('an invalid saved state is replaced by defaults', () => {
  const odd = {
    range: '5',
    metrics: 'all',
    hidden: 3,
    zoom: { from: 'x', to: 9100 },
    enlarged: 'x',
    mean: 1,
    lines: 'yes',
    smoothing: 7
  };
  for (const saved of [undefined, null, 7, 'x', [], odd, { zoom: { from: 9100, to: 9000 } }]) {
    assert.deepEqual(restoreState(saved, NOW), DEFAULT_STATE);
  }
  const old = { range: 7, metrics: ['gone', 'sm'], hidden: [1, 'GPU-0'], enlarged: 'power_w' };
  assert.deepEqual(restoreState(old, NOW), {
    range: 300,
    zoom: null,
    metrics: ['sm'],
    hidden: ['GPU-0'],
    node: null,
    enlarged: null,
    mean: false,
    lines: false,
    smoothing: 1
  });
  assert.deepEqual(restoreState({ metrics: [] }, NOW).metrics, []);
});

test('the order of the metrics does not depend on the order of selection', () => {
  const none = { ...DEFAULT_STATE, metrics: [] };
  const two = withMetric(withMetric(none, 'tensor', true), 'utilization', true);
  assert.deepEqual(two.metrics, ['utilization', 'tensor']);
  assert.deepEqual(withMetric(two, 'utilization', false).metrics, ['tensor']);
  assert.deepEqual(withMetric(two, 'no metric', true), two);
});

test('a GPU can be hidden, shown, or shown alone and then with all', () => {
  const without = withGpu(DEFAULT_STATE, 'b', false);
  assert.deepEqual(without.hidden, ['b']);
  assert.deepEqual(withGpu(without, 'b', true).hidden, []);
  const alone = withOnly(without, 'b', ['a', 'b', 'c']);
  assert.deepEqual(alone.hidden, ['a', 'c']);
  assert.deepEqual(withOnly(alone, 'b', ['a', 'b', 'c']).hidden, []);
});

test('every metric has a value or a reason', () => {
  const now = reading(0, {
    activity: ACTIVITY,
    memory_temperature_c: null,
    missing: { memory_temperature_c: 'no sensor' }
  });
  assert.deepEqual(
    METRICS.map(name => [name, valueOf(now, name)]).filter(([, value]) => value !== null),
    [
      ['utilization', 50],
      ['graphics', 1],
      ['sm', 2],
      ['sm_occupancy', 3],
      ['tensor', 4],
      ['fp64', 6],
      ['fp32', 7],
      ['memory_used', 35 * GIB],
      ['power_w', 300],
      ['temperature_c', 40],
      ['sm_clock_mhz', 1980],
      ['memory_utilization', 10],
      ['dram', 5],
      ['pcie_tx', 9],
      ['pcie_rx', 10],
      ['nvlink_tx', 11],
      ['nvlink_rx', 12]
    ]
  );
  assert.equal(reasonOf(now, 'memory_temperature_c'), 'no sensor');
  const without = reading(0, { missing: { activity: 'Hopper and later' } });
  assert.deepEqual([valueOf(without, 'sm'), reasonOf(without, 'sm')], [null, 'Hopper and later']);
  assert.equal(reasonOf(without, 'utilization'), '');
  // The chart of a value that is about to be read keeps its place.
  const early = reading(0, { memory_temperature_c: null, missing: { memory_temperature_c: 'not read yet' } });
  assert.equal(reasonOf(early, 'memory_temperature_c'), '');
  assert.deepEqual([isMetric('sm'), isMetric('uuid'), isMetric(3)], [true, false, false]);
});

test('an axis ends at the capacity or at a round number above the values', () => {
  assert.equal(axisTop('utilization', 3, [], []), 100);
  assert.equal(axisTop('memory_used', 5, [140 * GIB, 80 * GIB], []), 140 * GIB);
  assert.equal(axisTop('power_w', 90, [], [700]), 800);
  assert.equal(axisTop('power_w', 1017, [], [700]), 1500);
  assert.equal(axisTop('temperature_c', 104, [], []), 150);
  assert.equal(axisTop('sm_clock_mhz', 1980, [], []), 2000);
  assert.equal(axisTop('pcie_tx', 0, [], []), 1e6);
  assert.equal(axisTop('nvlink_rx', 3.2e10, [], []), 4e10);
});

test('ticks are round numbers in the unit of the axis', () => {
  const ticks = (name: Parameters<typeof unitOf>[0], top: number, intervals: number): string[] => {
    const unit = unitOf(name, top);
    return axisTicks(top, unit, intervals).map(value => formatIn(value, unit));
  };
  assert.deepEqual(ticks('utilization', 100, 3), ['0', '50', '100']);
  assert.deepEqual(ticks('utilization', 100, 5), ['0', '20', '40', '60', '80', '100']);
  assert.deepEqual(ticks('memory_used', 139.72 * GIB, 3), ['0', '50', '100']);
  assert.deepEqual(ticks('power_w', 800, 3), ['0', '400', '800']);
  assert.deepEqual(ticks('power_w', 250, 3), ['0', '100', '200']);
  assert.deepEqual(ticks('sm_clock_mhz', 2000, 3), ['0', '1000', '2000']);
  assert.deepEqual(ticks('pcie_tx', 1e6, 4), ['0', '0.5', '1']);
  assert.deepEqual(ticks('pcie_tx', 2.5e6, 2), ['0', '1', '2']);
  assert.deepEqual(ticks('nvlink_rx', 4e10, 5), ['0', '10', '20', '30', '40']);
  setUnits({ memory: 'GB', temperature: 'F' });
  assert.deepEqual(ticks('temperature_c', 100, 5), ['50', '100', '150', '200']);
  assert.deepEqual(ticks('memory_used', 139.72 * GIB, 3), ['0', '50', '100', '150']);
  setUnits({ memory: 'GiB', temperature: 'C' });
});

test('eight GPUs have different colors, and GPUs of the same color have different dash patterns', () => {
  const looks = Array.from(
    { length: 32 },
    (_, at) => `${String(colorIndex(at))} ${dashPattern(at).join(' ')}`
  );
  assert.equal(new Set(looks).size, 32);
  assert.equal(new Set(looks.slice(0, 8).map(look => look.split(' ')[0])).size, 8);
  assert.deepEqual([dashPattern(7), dashPattern(8)], [[], [6, 3]]);
});

test('every metric has a section with a title, and the sections are in the order of the metrics', () => {
  const sections = sectionTitles(trans).map(([section]) => section);
  assert.deepEqual([...new Set(METRICS.map(sectionOf))], sections);
});

test('a gap is between the samples around it, and before the first sample', () => {
  const history = (t: number[]): MetricHistory => ({
    since: 0,
    until: 100,
    step_s: 0,
    newest: t.at(-1) ?? null,
    t,
    samples: t.map(() => 1),
    gpus: []
  });
  const gaps = (t: number[], from: number): (readonly [number, number])[] => {
    const series = new TimeSeries(50, METRICS);
    series.restart(history(t));
    const axis = { times: [], indices: [] };
    series.axis(from, 0.2, axis);
    return gapsOf(axis, { from, to: 100 }, series.since);
  };
  assert.deepEqual(gaps([10, 11, 12, 13, 14, 50, 51], 8), [[14, 50]]);
  assert.deepEqual(gaps([10, 11, 12, 13, 14], 0), [[0, 10]]);
  assert.deepEqual(gaps([], 0), [[0, 100]]);
  // A longer range was chosen, whose history is not loaded yet.
  assert.deepEqual(gaps([10, 11, 12, 13, 14], -900), [[0, 10]]);
});

test('the charts have the number of columns that fills the window best', () => {
  const columns = (count: number): number => columnsFor([count], 1300, 600);
  assert.deepEqual([1, 2, 3, 4, 6, 23].map(columns), [1, 1, 2, 2, 2, 3]);
  assert.deepEqual([columnsFor([23], 320, 600), columnsFor([0], 1300, 600)], [1, 1]);
  assert.equal(columnsFor([23], 1900, 900), 5);
  // Every section begins a row, so few charts in many sections need as many rows.
  assert.deepEqual([columnsFor([1, 1, 1], 1300, 600), columnsFor([8, 2, 4, 6, 3], 1300, 600)], [1, 3]);
});

test('values are written in the unit of the axis, and small values are not 0', () => {
  const written = (name: Parameters<typeof unitOf>[0], top: number, value: number | null): string =>
    `${formatIn(value, unitOf(name, top))} ${unitOf(name, top).name}`;
  assert.equal(written('memory_used', 140 * GIB, 14.2 * GIB), '14.2 GiB');
  assert.equal(written('memory_used', 140 * GIB, 1024 ** 2), '<0.1 GiB');
  assert.equal(written('pcie_tx', 1e6, 5e5), '0.5 MB/s');
  assert.equal(written('nvlink_rx', 4e10, 3.2e10), '32 GB/s');
  assert.equal(written('power_w', 800, 612.4), '612 W');
  assert.equal(written('sm_clock_mhz', 2000, 1980), '1980 MHz');
  assert.equal(written('utilization', 100, 0), '0 %');
  assert.equal(written('utilization', 100, null), 'n/a %');
});

test('overlapping labels form a group', () => {
  assert.deepEqual(groupLabels([50, 10, 53, 100], 11, 5, 95), [
    { y: 10, members: [1] },
    { y: 50, members: [0, 2] },
    { y: 95, members: [3] }
  ]);
  assert.deepEqual(groupLabels([], 11, 0, 9), []);
  assert.deepEqual(abbreviate(['0', '2', '10'], 3), [['0', '2', '10'], '']);
  assert.deepEqual(abbreviate(['0', '1', '2', '3', '10'], 3), [['0', '1'], '+3']);
  assert.deepEqual(sortNumbers(['10 H200', '0:1 A100', '2 H200']), ['0:1 A100', '2 H200', '10 H200']);
});

test('the row of a heat map ends where a gap begins', () => {
  const filled: [number, number][] = [];
  const ctx = {
    save: () => undefined,
    restore: () => undefined,
    fillRect: (x: number, _y: number, width: number) => filled.push([x, x + width])
  };
  const u = { ctx, bbox: { left: 0, width: 100 }, scales: { x: { min: 0, max: 100 } } };
  Object.assign(globalThis, { devicePixelRatio: 1 });
  // The gap between the samples at 12 and 60 has an unknown value in its middle.
  const times = [10, 11, 12, 36, 60, 61];
  const values = [50, 50, 50, null, 50, 50];
  paintRow(u as unknown as Parameters<typeof paintRow>[0], times, values, 100, { y: 0, height: 5 }, 'red', 1);
  assert.deepEqual(filled, [
    [10, 13],
    [60, 100]
  ]);
});

test('runs of known values are separated by gaps', () => {
  assert.deepEqual(rowRanges([null, 1, 2, null, 3]), [
    [1, 3],
    [4, 5]
  ]);
  assert.deepEqual(rowRanges([null]), []);
  assert.deepEqual(rowRanges([0]), [[0, 1]]);
});

test('keys move, zoom, move the cursor and return to live mode', () => {
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

test('moving and zooming stay within the history', () => {
  const part = { from: 9700, to: 10_000 };
  const move = (share: number): unknown => navigate({ kind: 'move', share }, part, 10_000, null, 3600);
  assert.deepEqual(move(-0.2), { from: 9640, to: 9940 });
  assert.deepEqual(move(0.2), part);
  assert.deepEqual(navigate({ kind: 'move', share: -1 }, { from: 6500, to: 6800 }, 10_000, null, 3600), {
    from: 6400,
    to: 6700
  });
  assert.deepEqual(navigate({ kind: 'zoom', factor: 0.5 }, part, 10_000, null, 3600), {
    from: 9775,
    to: 9925
  });
  assert.deepEqual(navigate({ kind: 'zoom', factor: 0.5 }, part, 10_000, 10_000, 3600), {
    from: 9850,
    to: 10_000
  });
  assert.deepEqual(navigate({ kind: 'zoom', factor: 100 }, part, 10_000, null, 3600), {
    from: 6400,
    to: 10_000
  });
  assert.deepEqual(navigate({ kind: 'zoom', factor: 0.001 }, part, 10_000, 9850, 3600), {
    from: 9849,
    to: 9851
  });
});

test('drawing is limited, and the last change is always drawn', async () => {
  const clock = new FakeClock();
  let drawn = 0;
  const throttle = new RenderThrottle(clock, () => drawn++);
  throttle.seconds = 60;
  for (let tick = 0; tick < 50; tick++) {
    throttle.invoke();
    await clock.pass(200);
  }
  assert.ok(drawn >= 18 && drawn <= 23, String(drawn));
  await clock.pass(1000);
  const before = drawn;
  await clock.pass(10_000);
  assert.equal(drawn, before);
  throttle.invoke();
  assert.equal(drawn, before + 1);
  throttle.invoke();
  throttle.stop();
  await clock.pass(10_000);
  assert.deepEqual([drawn, clock.running], [before + 1, 0]);
});

test('the reasons of the newest sample hold for every range that the server itself keeps, also for the whole hour', () => {
  const newest = 1_700_000_000.7;
  for (const range of [60, 300, 900, 3600]) {
    assert.equal(isRecent({ from: newest - range, to: newest }, newest), true);
  }
  assert.equal(isRecent({ from: newest - 3601, to: newest - 3000 }, newest), false);
});

test('a value of every metric has its own unit', () => {
  const texts = METRICS.map(name => metricText(trans, name, 12_345_678, null));
  assert.deepEqual(Object.fromEntries(METRICS.map((name, index) => [name, texts[index]])), {
    ...Object.fromEntries(METRICS.map(name => [name, '12345678 %'])),
    memory_used: '11.8 MiB',
    power_w: '12345678 W',
    temperature_c: '12345678 °C',
    memory_temperature_c: '12345678 °C',
    sm_clock_mhz: '12345678 MHz',
    memory_clock_mhz: '12345678 MHz',
    pcie_tx: '12.3 MB/s',
    pcie_rx: '12.3 MB/s',
    nvlink_tx: '12.3 MB/s',
    nvlink_rx: '12.3 MB/s'
  });
  assert.deepEqual(
    METRICS.map(name => metricText(trans, name, null, null)),
    METRICS.map(() => 'n/a')
  );
  assert.equal(metricText(trans, 'power_w', 611.4, 700), '611 of 700 W');
  assert.equal(metricText(trans, 'memory_used', 24 * GIB, null), '24 GiB');
});
