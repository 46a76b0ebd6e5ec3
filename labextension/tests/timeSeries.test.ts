import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import type { MetricName } from '../src/wire/metricTable';
import {
  emptyLine,
  meanOfLines,
  smooth,
  TimeSeries,
  type Line,
  type TimeAxis
} from '../src/model/history/timeSeries';
import type { MetricHistory, Sample, MetricSeries } from '../src/wire/wire';
import { reading, sample } from './fakes';

const METRICS: readonly MetricName[] = ['utilization', 'tensor'];

function history(
  step: number,
  t: readonly number[],
  utilization: Partial<MetricSeries> & Pick<MetricSeries, 'mean'>,
  changes: Partial<MetricHistory> = {}
): MetricHistory {
  return {
    since: 0,
    until: 10_000,
    step_s: step,
    newest: t.at(-1) ?? null,
    t,
    samples: t.map(() => 1),
    gpus: [{ uuid: 'GPU-0', metrics: { utilization: { min: null, max: null, ...utilization } } }],
    ...changes
  };
}

function used(time: number, utilization: number | null): Sample {
  return sample(time, [reading(0, { utilization })]);
}

function shown(series: TimeSeries, since = 0, uuid = 'GPU-0'): (number | null)[][] {
  const axis: TimeAxis = { times: [], indices: [] };
  const line = emptyLine();
  series.axis(since, 0.2, axis);
  series.line(uuid, 'utilization', axis, line);
  return [axis.times, line.low, line.mean, line.high];
}

test('the server’s history is drawn in the middle of its steps with minimum and maximum', () => {
  const series = new TimeSeries(10, METRICS);
  series.restart(
    history(
      2,
      [10, 12, 14],
      { mean: [1, 50, null], min: [0, 50, null], max: [99, 50, null] },
      { newest: 14.2 }
    )
  );
  assert.deepEqual(shown(series), [
    [11, 13, 14.2],
    [0, 50, null],
    [1, 50, null],
    [99, 50, null]
  ]);
});

test('a point that is a single sample is drawn at its time', () => {
  const series = new TimeSeries(10, METRICS);
  series.restart(history(0, [1, 1.2, 1.4], { mean: [1, 2, 3] }));
  assert.equal(series.add(used(1.6, 4), 0), true);
  assert.deepEqual(shown(series).slice(0, 3), [
    [1, 1.2, 1.4, 1.6],
    [1, 2, 3, 4],
    [1, 2, 3, 4]
  ]);
});

test('samples continue the last step: the mean is that of all samples, and no spike is lost', () => {
  const series = new TimeSeries(10, METRICS);
  series.restart(
    history(1, [10, 11], { mean: [5, 20], min: [5, 10], max: [5, 30] }, { newest: 11.2, samples: [5, 2] })
  );
  for (const [time, value] of [
    [11.4, 97],
    [11.6, null],
    [12, 3],
    [12.2, 4]
  ] as const) {
    assert.equal(series.add(used(time, value), 0), true);
  }
  const [, low, mean, high] = shown(series);
  assert.deepEqual(
    [low, high],
    [
      [5, 10, 3],
      [5, 97, 4]
    ]
  );
  assert.deepEqual(
    mean?.map(value => Math.round(10 * (value ?? NaN)) / 10),
    // The step at 11 s has three samples with a known value: two from the history, and the one at
    // 11.4 s. The value at 11.6 s is unknown.
    [5, 45.7, 3.5]
  );
});

test('the mean of a step ignores samples with an unknown value', () => {
  const series = new TimeSeries(10, METRICS);
  series.restart(history(10, [0], { mean: [null] }, { newest: 5, samples: [25] }));
  for (let count = 0; count < 24; count++) {
    series.add(used(5 + (count + 1) / 5, count === 0 ? 80 : 20), 0);
  }
  assert.deepEqual(shown(series)[2], [22.5]);
});

test('a sample that is already in the history is not counted again', () => {
  const series = new TimeSeries(10, METRICS);
  series.restart(history(1, [10], { mean: [20] }, { newest: 10.4, samples: [3] }));
  assert.equal(series.add(used(10.4, 100), 0), true);
  assert.deepEqual(shown(series)[3], [20]);
});

test('a pause without samples is a gap', () => {
  const series = new TimeSeries(10, METRICS);
  series.restart(history(1, [10, 11, 40], { mean: [1, 2, 3] }, { newest: 41 }));
  assert.deepEqual(shown(series)[0], [10.5, 11.5, 26, 40.5]);
  assert.deepEqual(shown(series)[2], [1, 2, null, 3]);
});

test('old steps are dropped to make room', () => {
  const series = new TimeSeries(8, METRICS);
  series.restart(history(1, [0, 1, 2], { mean: [0, 1, 2] }));
  for (let time = 3; time < 1000; time++) {
    assert.equal(series.add(used(time, time % 100), time - 5), true);
  }
  assert.ok((shown(series)[0] ?? []).length <= 8);
  assert.deepEqual(shown(series, 995.5)[2], [95, 96, 97, 98, 99]);
});

test('a sample that does not fit is refused', () => {
  const series = new TimeSeries(4, METRICS);
  series.restart(history(0, [1, 2, 3, 4], { mean: [1, 2, 3, 4] }));
  assert.equal(series.add(used(5, 5), 0), false);
});

test('a sample is refused when the clock was set back', () => {
  const series = new TimeSeries(4, METRICS);
  series.restart(history(1, [1000], { mean: [1] }));
  assert.equal(series.add(used(400, 5), 0), false);
});

test('a GPU or metric that appears later has unknown values before', () => {
  const series = new TimeSeries(10, METRICS);
  series.restart(history(1, [10, 11], { mean: [1, 2] }));
  series.add(sample(12, [reading(0, { utilization: 3 }), reading(1, { utilization: 7 })]), 0);
  assert.deepEqual(shown(series, 0, 'GPU-1')[2], [null, null, 7]);
  assert.deepEqual(shown(series, 0, 'GPU-7')[2], [null, null, null]);
});

test('a line has its maximum and whether values differ within a step', () => {
  const series = new TimeSeries(10, METRICS);
  const axis: TimeAxis = { times: [], indices: [] };
  const line = emptyLine();
  series.restart(history(1, [10, 11], { mean: [1, 2], min: [1, 0], max: [1, 80] }));
  series.axis(0, 0.2, axis);
  series.line('GPU-0', 'utilization', axis, line);
  assert.deepEqual([line.highest, line.varies], [80, true]);
  series.line('GPU-0', 'tensor', axis, line);
  assert.deepEqual([line.highest, line.varies, line.mean], [NaN, false, [null, null]]);
});

test('history that exceeds the capacity is cut at its beginning', () => {
  const series = new TimeSeries(2, METRICS);
  series.restart(history(0, [1, 2, 3], { mean: [1, 2, 3] }));
  assert.deepEqual(shown(series)[2], [2, 3]);
});

test('steps that are regularly longer than requested are connected', () => {
  // Prometheus has a sample every 60 s, in steps of 5 s.
  const series = new TimeSeries(10, METRICS);
  series.restart(history(5, [0, 60, 120, 180, 400], { mean: [1, 2, 3, 4, 5] }));
  assert.deepEqual(shown(series)[2], [1, 2, 3, 4, null, 5]);
});

function lineOf(mean: (number | null)[], low = mean, high = mean): Line {
  return { low: [...low], mean: [...mean], high: [...high], highest: NaN, varies: false };
}

test('the mean over GPUs ignores unknown values, and its area reaches from the lowest to the highest value', () => {
  const into = emptyLine();
  meanOfLines([lineOf([10, 20, null, null], [0, 20, null, null]), lineOf([30, null, 50, null])], into);
  assert.deepEqual(into, {
    mean: [20, 20, 50, null],
    low: [0, 20, 50, null],
    high: [30, 20, 50, null],
    highest: 50,
    varies: true
  });
  meanOfLines([], into);
  assert.deepEqual(into, { mean: [], low: [], high: [], highest: NaN, varies: false });
});

test('smoothing takes the mean of the last points since a gap, and keeps the lowest and highest value', () => {
  const line = lineOf([0, 30, 60, null, 12, 0], [0, 30, 60, null, 12, 0], [0, 30, 99, null, 12, 0]);
  smooth(line, 2);
  assert.deepEqual(line, {
    mean: [0, 15, 45, null, 12, 6],
    low: [0, 0, 30, null, 12, 0],
    high: [0, 30, 99, null, 12, 12],
    highest: NaN,
    varies: true
  });
});
