import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { Hints, type Hint, type Thresholds } from '../src/holders/hints';
import { GIB, gpuUsage, holding, reading, sample, serverKernel, usage } from './fakes';
import type { GpuMemoryOwnership, ServerKernel } from '../src/wire';

const HOUR = 3600;
const NOW = 100_000;
const THRESHOLDS: Thresholds = { idle: 2 * HOUR, memory: GIB, utilization: 30, window: 1800 };

/** What is said of so many GPUs at `time`. */
function hints(
  said: Hints,
  kernels: readonly ServerKernel[],
  gpus: readonly GpuMemoryOwnership[],
  time = NOW,
  thresholds = THRESHOLDS
): Hint[] {
  const readings = gpus.map((_, index) => reading(index));
  return said.of(usage(kernels, gpus, time), sample(time, readings), 1, thresholds);
}

/** What is said of one GPU after so many seconds in which the page has looked every five. */
function watched(
  said: Hints,
  kernel: ServerKernel,
  held: GpuMemoryOwnership,
  from: number,
  seconds: number
): Hint[] {
  let found: Hint[] = [];
  for (let time = from; time <= from + seconds; time += 5) {
    found = hints(said, [kernel], [held], time);
  }
  return found;
}

function idle(id: string, hours: number): ServerKernel {
  return serverKernel(id, { idle_since: NOW - hours * HOUR });
}

/** Means of the last 10, 30 and 60 minutes. */
function means(...percent: (number | null)[]): Partial<GpuMemoryOwnership> {
  return {
    means: [600, 1800, 3600].map((seconds, place) => ({ seconds, utilization: percent[place] ?? null }))
  };
}

test('a notebook that has been idle for hours and holds memory is pointed out, once for all its GPUs', () => {
  const mine = [holding(18, { kernel: 'a' })];
  const found = hints(new Hints(), [idle('a', 3)], [gpuUsage(0, mine), gpuUsage(1, []), gpuUsage(2, mine)]);
  assert.equal(found.length, 1);
  const [hint] = found;
  assert.ok(hint?.kind === 'idle');
  assert.deepEqual([hint.idle, hint.memory, hint.torch], [3 * HOUR, 36 * GIB, false]);
  assert.deepEqual(
    hint.gpus.map(({ index }) => index),
    [0, 2]
  );
});

test('one that is idle for less, holds less or works is not', () => {
  const gpus = [
    gpuUsage(0, [
      holding(18, { kernel: 'short' }),
      holding(0.5, { kernel: 'small' }),
      holding(18, { kernel: 'busy' }),
      holding(null, { kernel: 'unknown' }),
      holding(18, { kernel: 'since' })
    ])
  ];
  const kernels = [
    idle('short', 1.9),
    idle('small', 9),
    serverKernel('busy', { state: 'busy', idle_since: null }),
    idle('unknown', 9),
    serverKernel('since', { idle_since: null }),
    idle('nothing', 9)
  ];
  assert.deepEqual(hints(new Hints(), kernels, gpus), []);
});

test('the most there is to gain comes first', () => {
  const gpus = [gpuUsage(0, [holding(4, { kernel: 'a' }), holding(9, { kernel: 'b', source: 'torch' })])];
  const found = hints(new Hints(), [idle('a', 3), idle('b', 3)], gpus);
  assert.deepEqual(
    found.map(({ key }) => key),
    ['idle b', 'idle a']
  );
  assert.equal(found[0]?.kind === 'idle' && found[0].torch, true);
});

const BUSY = serverKernel('job', { state: 'busy', idle_since: null });
const JOB = [holding(18, { kernel: 'job' })];

/** What hints say of GPUs: percent and seconds. */
function slack(found: readonly Hint[]): unknown[] {
  return found.map(hint => hint.kind === 'slack' && [hint.utilization, hint.seconds]);
}

test('a GPU that did little for long is told with the longest window that says so and in which the job was seen', () => {
  const said = new Hints();
  assert.deepEqual(slack(watched(said, BUSY, gpuUsage(0, JOB, means(11, 12, 13)), NOW, 1800)), [[12, 1800]]);
  assert.deepEqual(slack(watched(said, BUSY, gpuUsage(0, JOB, means(11, 12, 13)), NOW + 1805, 1795)), [
    [13, 3600]
  ]);
  assert.deepEqual(slack(watched(said, BUSY, gpuUsage(0, JOB, means(11, 12, 50)), NOW + 3605, 5)), [
    [12, 1800]
  ]);
});

test('without evidence nothing is said of a GPU', () => {
  const silent = (held: GpuMemoryOwnership, kernel = BUSY): Hint[] =>
    watched(new Hints(), kernel, held, NOW, 3600);
  assert.deepEqual(silent(gpuUsage(0, JOB, means(11, null, null))), []);
  assert.deepEqual(silent(gpuUsage(0, JOB, means(11, 30, 11))), []);
  assert.deepEqual(silent(gpuUsage(0, JOB)), []);
  assert.deepEqual(silent(gpuUsage(0, [], means(0, 0, 0))), []);
  assert.deepEqual(silent(gpuUsage(0, [], { ...means(0, 0, 0), unattributed: 9 * GIB })), []);
  assert.deepEqual(silent(gpuUsage(0, JOB, means(0, 0, 0)), idle('job', 0)), []);
});

const LOW = gpuUsage(0, JOB, means(5, 5, 5));

test('a job is not blamed for the time before it came, nor for that before the page looked', () => {
  const said = new Hints();
  assert.deepEqual(watched(said, BUSY, gpuUsage(0, [], means(5, 5, 5)), NOW, 3600), []);
  assert.deepEqual(watched(said, BUSY, LOW, NOW + 3605, 1795), []);
  assert.deepEqual(slack(watched(said, BUSY, LOW, NOW + 5405, 0)), [[5, 1800]]);
  assert.deepEqual(hints(new Hints(), [BUSY], [LOW]), []);
});

test('a job is not blamed for an hour in which nobody looked', () => {
  const said = new Hints();
  watched(said, BUSY, LOW, NOW, 1800);
  assert.deepEqual(hints(said, [BUSY], [LOW], NOW + 9000), []);
  assert.deepEqual(slack(watched(said, BUSY, LOW, NOW + 9005, 1795)), [[5, 1800]]);
});

test('a notebook that was idle all hour is not blamed with its next cell', () => {
  const said = new Hints();
  watched(said, idle('job', 0), LOW, NOW, 3600);
  assert.deepEqual(watched(said, BUSY, LOW, NOW + 3605, 1795), []);
  assert.deepEqual(slack(watched(said, BUSY, LOW, NOW + 5405, 0)), [[5, 1800]]);
});

test('what is said of a GPU stands for a minute, so that no cell and no percent has the panel jump', () => {
  const said = new Hints();
  watched(said, BUSY, LOW, NOW, 1800);
  const after = (seconds: number, kernel: ServerKernel, held: GpuMemoryOwnership): unknown[] =>
    slack(hints(said, [kernel], [held], NOW + 1800 + seconds));
  assert.deepEqual(after(5, BUSY, gpuUsage(0, JOB, means(5, 30.1, 5))), [[5, 1800]]);
  assert.deepEqual(after(10, BUSY, LOW), [[5, 1800]]);
  for (let seconds = 15; seconds < 70; seconds += 5) {
    assert.deepEqual(after(seconds, idle('job', 0), LOW), [[5, 1800]]);
  }
  assert.deepEqual(after(70, idle('job', 0), LOW), []);
});

test('what is said of a job goes with it', () => {
  const said = new Hints();
  watched(said, BUSY, LOW, NOW, 1800);
  assert.deepEqual(hints(said, [], [gpuUsage(0, [], means(5, 5, 5))], NOW + 1805), []);
});

test('a threshold of 0 % points nothing out', () => {
  const never = { ...THRESHOLDS, utilization: 0 };
  const said = new Hints();
  const idling = gpuUsage(0, JOB, means(0, 0, 0));
  assert.equal(watched(said, BUSY, idling, NOW, 1800).length, 1);
  assert.deepEqual(hints(said, [BUSY], [idling], NOW + 1805, never), []);
});
