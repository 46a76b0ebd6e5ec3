import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { Hints, type Hint, type Thresholds } from '../src/holders/hints';
import { GIB, gpuUsage, holding, reading, sample, serverKernel, usage } from './fakes';
import type { GpuUsage, ServerKernel } from '../src/wire';

const HOUR = 3600;
const NOW = 100_000;
const THRESHOLDS: Thresholds = { idle: 2 * HOUR, memory: GIB, utilization: 30, window: 1800 };

/** What is said of so many GPUs at `time`. */
function hints(
  said: Hints,
  kernels: readonly ServerKernel[],
  gpus: readonly GpuUsage[],
  time = NOW,
  thresholds = THRESHOLDS
): Hint[] {
  const readings = gpus.map((_, index) => reading(index));
  return said.of(usage(kernels, gpus, time), sample(time, readings), thresholds);
}

function idle(id: string, hours: number): ServerKernel {
  return serverKernel(id, { idle_since: NOW - hours * HOUR });
}

/** Means of the last 10, 30 and 60 minutes. */
function means(...percent: (number | null)[]): Partial<GpuUsage> {
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

test('a GPU that did little for long is told with the longest window that says so', () => {
  const found = hints(new Hints(), [BUSY], [gpuUsage(0, JOB, means(11, 12, 13))]);
  assert.deepEqual(
    found.map(hint => hint.kind === 'slack' && [hint.utilization, hint.seconds, hint.holders.length]),
    [[13, 3600, 1]]
  );
  const later = hints(new Hints(), [BUSY], [gpuUsage(0, JOB, means(11, 12, 50))]);
  assert.deepEqual(
    later.map(hint => hint.kind === 'slack' && [hint.utilization, hint.seconds]),
    [[12, 1800]]
  );
});

test('without evidence nothing is said of a GPU', () => {
  const silent = (held: GpuUsage, kernels = [BUSY]): Hint[] => hints(new Hints(), kernels, [held]);
  assert.deepEqual(silent(gpuUsage(0, JOB, means(11, null, null))), []);
  assert.deepEqual(silent(gpuUsage(0, JOB, means(11, 30, 11))), []);
  assert.deepEqual(silent(gpuUsage(0, JOB)), []);
  assert.deepEqual(silent(gpuUsage(0, [], means(0, 0, 0))), []);
  assert.deepEqual(silent(gpuUsage(0, [], { ...means(0, 0, 0), unattributed: 9 * GIB })), []);
  assert.deepEqual(silent(gpuUsage(0, JOB, means(0, 0, 0)), [idle('job', 1)]), []);
});

test('a job is not blamed for the time before it came', () => {
  const said = new Hints();
  const low = means(5, 5, 5);
  hints(said, [BUSY], [gpuUsage(0, [], low)], NOW);
  assert.deepEqual(hints(said, [BUSY], [gpuUsage(0, JOB, low)], NOW + 60), []);
  assert.deepEqual(hints(said, [BUSY], [gpuUsage(0, JOB, low)], NOW + 1790), []);
  const found = hints(said, [BUSY], [gpuUsage(0, JOB, low)], NOW + 1800);
  assert.deepEqual(
    found.map(hint => hint.kind === 'slack' && hint.seconds),
    [1800]
  );
});

test('a threshold of 0 % points nothing out', () => {
  const never = { ...THRESHOLDS, utilization: 0 };
  assert.deepEqual(hints(new Hints(), [BUSY], [gpuUsage(0, JOB, means(0, 0, 0))], NOW, never), []);
});
