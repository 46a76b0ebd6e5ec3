import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { HintFinder, type Hint, type Thresholds } from '../src/model/memory/hints';
import { GIB, gpuUsage, holding, reading, sample, serverKernel, usage } from './fakes';
import type { GpuMemoryOwnership, ServerKernel } from '../src/wire/wire';

const HOUR = 3600;
const NOW = 100_000;
const THRESHOLDS: Thresholds = { idleHours: 2, idleGib: 1, busyPercent: 30, busyMinutes: 30 };

/** Return the hints at `time`. `gpus` contains the memory ownership of each GPU. */
function hints(
  finder: HintFinder,
  kernels: readonly ServerKernel[],
  gpus: readonly GpuMemoryOwnership[],
  time = NOW,
  thresholds = THRESHOLDS
): Hint[] {
  const readings = gpus.map((_, index) => reading(index));
  return finder.find(usage(kernels, gpus, time), sample(time, readings), 1, thresholds);
}

/** Return the hints for one GPU after `seconds` of samples, with one sample every five seconds. */
function afterSeconds(
  finder: HintFinder,
  kernel: ServerKernel,
  held: GpuMemoryOwnership,
  from: number,
  seconds: number
): Hint[] {
  let found: Hint[] = [];
  for (let time = from; time <= from + seconds; time += 5) {
    found = hints(finder, [kernel], [held], time);
  }
  return found;
}

function idle(id: string, hours: number): ServerKernel {
  return serverKernel(id, { idle_since: NOW - hours * HOUR });
}

/** Return the mean utilization over the last 10, 30 and 60 minutes in the server's format. */
function means(...percent: (number | null)[]): Partial<GpuMemoryOwnership> {
  return {
    means: [600, 1800, 3600].map((seconds, place) => ({ seconds, utilization: percent[place] ?? null }))
  };
}

test('a notebook that is idle for hours and holds memory gives one hint for all its GPUs', () => {
  const mine = [holding(18, { kernel: 'a' })];
  const found = hints(
    new HintFinder(),
    [idle('a', 3)],
    [gpuUsage(0, mine), gpuUsage(1, []), gpuUsage(2, mine)]
  );
  assert.equal(found.length, 1);
  const [hint] = found;
  assert.ok(hint?.kind === 'idle');
  assert.deepEqual([hint.idle, hint.memory, hint.torch], [3 * HOUR, 36 * GIB, false]);
  assert.deepEqual(
    hint.gpus.map(({ index }) => index),
    [0, 2]
  );
});

test('a shorter idle time, less memory or a busy kernel gives no hint', () => {
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
  assert.deepEqual(hints(new HintFinder(), kernels, gpus), []);
});

test('the hint with the most memory comes first', () => {
  const gpus = [gpuUsage(0, [holding(4, { kernel: 'a' }), holding(9, { kernel: 'b', source: 'torch' })])];
  const found = hints(new HintFinder(), [idle('a', 3), idle('b', 3)], gpus);
  assert.deepEqual(
    found.map(({ key }) => key),
    ['idle b', 'idle a']
  );
  assert.equal(found[0]?.kind === 'idle' && found[0].torch, true);
});

const BUSY = serverKernel('job', { state: 'busy', idle_since: null });
const JOB = [holding(18, { kernel: 'job' })];

/** Return the utilization and the window of each hint about an underused GPU. */
function underused(found: readonly Hint[]): unknown[] {
  return found.map(hint => hint.kind === 'underused' && [hint.utilization, hint.seconds]);
}

test('an underused GPU gives a hint with the longest window in which the job was seen', () => {
  const finder = new HintFinder();
  assert.deepEqual(underused(afterSeconds(finder, BUSY, gpuUsage(0, JOB, means(11, 12, 13)), NOW, 1800)), [
    [12, 1800]
  ]);
  assert.deepEqual(
    underused(afterSeconds(finder, BUSY, gpuUsage(0, JOB, means(11, 12, 13)), NOW + 1805, 1795)),
    [[13, 3600]]
  );
  assert.deepEqual(
    underused(afterSeconds(finder, BUSY, gpuUsage(0, JOB, means(11, 12, 50)), NOW + 3605, 5)),
    [[12, 1800]]
  );
});

test('without evidence a GPU gives no hint', () => {
  const noHints = (held: GpuMemoryOwnership, kernel = BUSY): Hint[] =>
    afterSeconds(new HintFinder(), kernel, held, NOW, 3600);
  assert.deepEqual(noHints(gpuUsage(0, JOB, means(11, null, null))), []);
  assert.deepEqual(noHints(gpuUsage(0, JOB, means(11, 30, 11))), []);
  assert.deepEqual(noHints(gpuUsage(0, JOB)), []);
  assert.deepEqual(noHints(gpuUsage(0, [], means(0, 0, 0))), []);
  assert.deepEqual(noHints(gpuUsage(0, [], { ...means(0, 0, 0), unattributed: 9 * GIB })), []);
  // Hidden processes of other users.
  assert.deepEqual(noHints(gpuUsage(0, [holding(9, { other_users: true })], means(0, 0, 0))), []);
  assert.deepEqual(noHints(gpuUsage(0, JOB, means(0, 0, 0)), idle('job', 0)), []);
});

const LOW = gpuUsage(0, JOB, means(5, 5, 5));

test('the time before a job was seen does not count', () => {
  const finder = new HintFinder();
  assert.deepEqual(afterSeconds(finder, BUSY, gpuUsage(0, [], means(5, 5, 5)), NOW, 3600), []);
  assert.deepEqual(afterSeconds(finder, BUSY, LOW, NOW + 3605, 1795), []);
  assert.deepEqual(underused(afterSeconds(finder, BUSY, LOW, NOW + 5405, 0)), [[5, 1800]]);
  assert.deepEqual(hints(new HintFinder(), [BUSY], [LOW]), []);
});

test('a gap in the samples starts the window again', () => {
  const finder = new HintFinder();
  afterSeconds(finder, BUSY, LOW, NOW, 1800);
  assert.deepEqual(hints(finder, [BUSY], [LOW], NOW + 9000), []);
  assert.deepEqual(underused(afterSeconds(finder, BUSY, LOW, NOW + 9005, 1795)), [[5, 1800]]);
});

test('the time in which a notebook was idle does not count', () => {
  const finder = new HintFinder();
  afterSeconds(finder, idle('job', 0), LOW, NOW, 3600);
  assert.deepEqual(afterSeconds(finder, BUSY, LOW, NOW + 3605, 1795), []);
  assert.deepEqual(underused(afterSeconds(finder, BUSY, LOW, NOW + 5405, 0)), [[5, 1800]]);
});

test('a hint about a GPU stays for a minute, so that the panel does not jump', () => {
  const finder = new HintFinder();
  afterSeconds(finder, BUSY, LOW, NOW, 1800);
  const after = (seconds: number, kernel: ServerKernel, held: GpuMemoryOwnership): unknown[] =>
    underused(hints(finder, [kernel], [held], NOW + 1800 + seconds));
  assert.deepEqual(after(5, BUSY, gpuUsage(0, JOB, means(5, 30.1, 5))), [[5, 1800]]);
  assert.deepEqual(after(10, BUSY, LOW), [[5, 1800]]);
  for (let seconds = 15; seconds < 70; seconds += 5) {
    assert.deepEqual(after(seconds, idle('job', 0), LOW), [[5, 1800]]);
  }
  assert.deepEqual(after(70, idle('job', 0), LOW), []);
});

test('a hint goes with its holder', () => {
  const finder = new HintFinder();
  afterSeconds(finder, BUSY, LOW, NOW, 1800);
  assert.deepEqual(hints(finder, [], [gpuUsage(0, [], means(5, 5, 5))], NOW + 1805), []);
});

test('a threshold of 0 % gives no hint', () => {
  const never = { ...THRESHOLDS, busyPercent: 0 };
  const finder = new HintFinder();
  const idling = gpuUsage(0, JOB, means(0, 0, 0));
  assert.equal(afterSeconds(finder, BUSY, idling, NOW, 1800).length, 1);
  assert.deepEqual(hints(finder, [BUSY], [idling], NOW + 1805, never), []);
});
