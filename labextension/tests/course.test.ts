import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { Course, emptyLine, type Moments } from '../src/dashboard/course';
import type { MetricName } from '../src/dashboard/metrics';
import type { MetricHistory as Told, Sample, MetricSeries } from '../src/wire';
import { reading, sample } from './fakes';

const METRICS: readonly MetricName[] = ['utilization', 'tensor'];

function told(
  step: number,
  t: readonly number[],
  utilization: Partial<MetricSeries> & Pick<MetricSeries, 'mean'>,
  changes: Partial<Told> = {}
): Told {
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

function shown(course: Course, since = 0, uuid = 'GPU-0'): (number | null)[][] {
  const moments: Moments = { times: [], places: [] };
  const line = emptyLine();
  course.moments(since, 0.2, moments);
  course.line(uuid, 'utilization', moments, line);
  return [moments.times, line.low, line.mean, line.high];
}

test('what the server told is drawn in the middle of its steps, with the lowest and the highest of each', () => {
  const course = new Course(10, METRICS);
  course.restart(
    told(2, [10, 12, 14], { mean: [1, 50, null], min: [0, 50, null], max: [99, 50, null] }, { newest: 14.2 })
  );
  assert.deepEqual(shown(course), [
    [11, 13, 14.2],
    [0, 50, null],
    [1, 50, null],
    [99, 50, null]
  ]);
});

test('where every point is a sample it stands at its own time', () => {
  const course = new Course(10, METRICS);
  course.restart(told(0, [1, 1.2, 1.4], { mean: [1, 2, 3] }));
  assert.equal(course.add(used(1.6, 4), 0), true);
  assert.deepEqual(shown(course).slice(0, 3), [
    [1, 1.2, 1.4, 1.6],
    [1, 2, 3, 4],
    [1, 2, 3, 4]
  ]);
});

test('samples go on from the step that was open: no spike is lost and the mean is that of all', () => {
  const course = new Course(10, METRICS);
  course.restart(
    told(1, [10, 11], { mean: [5, 20], min: [5, 10], max: [5, 30] }, { newest: 11.2, samples: [5, 2] })
  );
  for (const [time, value] of [
    [11.4, 97],
    [11.6, null],
    [12, 3],
    [12.2, 4]
  ] as const) {
    assert.equal(course.add(used(time, value), 0), true);
  }
  const [, low, mean, high] = shown(course);
  assert.deepEqual(
    [low, high],
    [
      [5, 10, 3],
      [5, 97, 4]
    ]
  );
  assert.deepEqual(
    mean?.map(value => Math.round(10 * (value ?? NaN)) / 10),
    // 11.6 was not read: three samples of that step are known.
    [5, 45.7, 3.5]
  );
});

test('the mean of a metric that was unknown for a part of a step is that of the samples in which it was known', () => {
  const course = new Course(10, METRICS);
  course.restart(told(10, [0], { mean: [null] }, { newest: 5, samples: [25] }));
  for (let count = 0; count < 24; count++) {
    course.add(used(5 + (count + 1) / 5, count === 0 ? 80 : 20), 0);
  }
  assert.deepEqual(shown(course)[2], [22.5]);
});

test('a sample that the server told already is not counted twice', () => {
  const course = new Course(10, METRICS);
  course.restart(told(1, [10], { mean: [20] }, { newest: 10.4, samples: [3] }));
  assert.equal(course.add(used(10.4, 100), 0), true);
  assert.deepEqual(shown(course)[3], [20]);
});

test('where nothing was read for long there is a gap', () => {
  const course = new Course(10, METRICS);
  course.restart(told(1, [10, 11, 40], { mean: [1, 2, 3] }, { newest: 41 }));
  assert.deepEqual(shown(course)[0], [10.5, 11.5, 26, 40.5]);
  assert.deepEqual(shown(course)[2], [1, 2, null, 3]);
});

test('what is older than is shown is let go of, however long it goes on', () => {
  const course = new Course(8, METRICS);
  course.restart(told(1, [0, 1, 2], { mean: [0, 1, 2] }));
  for (let time = 3; time < 1000; time++) {
    assert.equal(course.add(used(time, time % 100), time - 5), true);
  }
  assert.ok(course.length <= 8);
  assert.deepEqual(shown(course, 995.5)[2], [95, 96, 97, 98, 99]);
});

test('where there is no room for what is to be shown, the server has to be asked again', () => {
  const course = new Course(4, METRICS);
  course.restart(told(0, [1, 2, 3, 4], { mean: [1, 2, 3, 4] }));
  assert.equal(course.add(used(5, 5), 0), false);
});

test('where the clock was set back, the server has to be asked again', () => {
  const course = new Course(4, METRICS);
  course.restart(told(1, [1000], { mean: [1] }));
  assert.equal(course.add(used(400, 5), 0), false);
});

test('a GPU and a metric that come later have no values before', () => {
  const course = new Course(10, METRICS);
  course.restart(told(1, [10, 11], { mean: [1, 2] }));
  course.add(sample(12, [reading(0, { utilization: 3 }), reading(1, { utilization: 7 })]), 0);
  assert.deepEqual(shown(course, 0, 'GPU-1')[2], [null, null, 7]);
  assert.deepEqual(shown(course, 0, 'GPU-7')[2], [null, null, null]);
  assert.deepEqual(course.uuids, ['GPU-0', 'GPU-1']);
});

test('a line knows its highest value and whether anything moved within a step', () => {
  const course = new Course(10, METRICS);
  const moments: Moments = { times: [], places: [] };
  const line = emptyLine();
  course.restart(told(1, [10, 11], { mean: [1, 2], min: [1, 0], max: [1, 80] }));
  course.moments(0, 0.2, moments);
  course.line('GPU-0', 'utilization', moments, line);
  assert.deepEqual([line.highest, line.spread], [80, true]);
  course.line('GPU-0', 'tensor', moments, line);
  assert.deepEqual([line.highest, line.spread, line.mean], [NaN, false, [null, null]]);
});

test('more than there is room for is cut at its beginning', () => {
  const course = new Course(2, METRICS);
  course.restart(told(0, [1, 2, 3], { mean: [1, 2, 3] }));
  assert.deepEqual(shown(course)[2], [2, 3]);
});
