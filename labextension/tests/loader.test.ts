import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { Loader } from '../src/dashboard/loader';
import type { CourseQuery, CourseServer } from '../src/stream/server';
import type { MetricHistory } from '../src/wire';
import { FakeTimers, sample, settled } from './fakes';

const LIVE = { span: { seconds: 300 }, metrics: ['utilization'], points: 400 } as const;

/** A server that answers when told. */
class Held implements CourseServer {
  readonly asked: CourseQuery[] = [];
  private readonly waiting: { resolve: (course: MetricHistory) => void; reject: (error: unknown) => void }[] =
    [];

  course(query: CourseQuery): Promise<MetricHistory> {
    this.asked.push(query);
    return new Promise((resolve, reject) => this.waiting.push({ resolve, reject }));
  }

  async answer(t: readonly number[], step = 1): Promise<void> {
    this.waiting.shift()?.resolve({
      since: 0,
      until: 0,
      step_s: step,
      newest: t.at(-1) ?? null,
      t,
      samples: t.map(() => 1),
      gpus: [{ uuid: 'GPU-0', metrics: { utilization: { mean: t, min: null, max: null } } }]
    });
    await settled();
  }

  async fail(reason: string): Promise<void> {
    this.waiting.shift()?.reject(new Error(reason));
    await settled();
  }
}

function made(): { loader: Loader; server: Held; timers: FakeTimers; told: () => number } {
  const server = new Held();
  const timers = new FakeTimers();
  const loader = new Loader(server, timers);
  let count = 0;
  loader.changed.connect(() => count++);
  return { loader, server, timers, told: () => count };
}

test('the past is asked for once, and the samples that come meanwhile follow it', async () => {
  const { loader, server, told } = made();
  loader.load(LIVE);
  assert.deepEqual(server.asked, [{ part: { seconds: 300 }, metrics: ['utilization'], points: 400 }]);
  loader.take(sample(11));
  loader.take(sample(12));
  loader.take(sample(13));
  await server.answer([10, 11, 12]);
  assert.deepEqual([loader.course?.newest, loader.course?.length, told()], [13, 4, 1]);
  loader.take(sample(14));
  assert.equal(loader.course?.newest, 14);
  assert.equal(server.asked.length, 1);
});

test('an answer to what is wanted no more is not shown', async () => {
  const { loader, server } = made();
  loader.load(LIVE);
  loader.load({ ...LIVE, span: { from: 100, to: 200 } });
  await server.answer([1, 2, 3]);
  assert.deepEqual(server.asked[1]?.part, { since: 100, until: 200 });
  assert.deepEqual([loader.loading, loader.course], [true, null]);
  await server.answer([100, 101]);
  assert.equal(loader.course?.newest, 101);
});

test('of what is wished while the server is asked the last is asked for, and what lies on the way is shown', async () => {
  const { loader, server, timers } = made();
  for (let from = 100; from < 130; from++) {
    loader.load({ ...LIVE, span: { from, to: from + 100 } });
  }
  assert.equal(server.asked.length, 1);
  await server.answer([100, 101]);
  assert.deepEqual([loader.course?.newest, loader.loading], [101, true]);
  await server.answer([129, 130]);
  assert.deepEqual([loader.course?.newest, loader.loading, timers.running], [130, false, 0]);
  assert.deepEqual(
    server.asked.map(({ part }) => part),
    [
      { since: 100, until: 200 },
      { since: 129, until: 229 }
    ]
  );
});

test('a wish waits for ten seconds at most, and does not wait where the one before could not be had', async () => {
  const { loader, server, timers } = made();
  loader.load(LIVE);
  loader.load({ ...LIVE, span: { from: 1, to: 2 } });
  await timers.pass(10_000);
  assert.equal(server.asked.length, 2);
  await server.answer([1000]);
  assert.deepEqual([loader.course?.newest], [undefined]);
  loader.load({ ...LIVE, span: { from: 2, to: 3 } });
  await server.fail('away');
  assert.deepEqual([server.asked.length, loader.failure], [3, 'away']);
  await server.answer([2]);
  assert.deepEqual([loader.course?.newest, loader.failure, timers.running], [2, null, 0]);
});

test('a part that stands still takes no samples', async () => {
  const { loader, server } = made();
  loader.load({ ...LIVE, span: { from: 100, to: 200 } });
  loader.take(sample(150));
  await server.answer([100, 101]);
  loader.take(sample(300));
  assert.equal(loader.course?.newest, 101);
});

test('until the server has answered, what was there stays', async () => {
  const { loader, server } = made();
  loader.load(LIVE);
  await server.answer([10]);
  const before = loader.course;
  loader.load({ ...LIVE, span: { seconds: 60 } });
  assert.equal(loader.course, before);
});

test('where the clock was set back the past is asked for anew', async () => {
  const { loader, server } = made();
  loader.load(LIVE);
  await server.answer([5000]);
  loader.take(sample(1000));
  assert.equal(server.asked.length, 2);
  loader.take(sample(1000.2));
  await server.answer([1000]);
  assert.deepEqual([loader.course?.newest, server.asked.length], [1000.2, 2]);
});

test('a server that can not answer is asked again, and the reason is told meanwhile', async () => {
  const { loader, server, timers } = made();
  loader.load(LIVE);
  await server.fail('Service Unavailable');
  assert.deepEqual([loader.failure, loader.course, server.asked.length], ['Service Unavailable', null, 1]);
  await timers.pass(5000);
  assert.equal(server.asked.length, 2);
  await server.answer([1]);
  assert.deepEqual([loader.failure, timers.running], [null, 0]);
});

test('while nobody looks nothing is held and nothing happens', async () => {
  const { loader, server, timers, told } = made();
  loader.load(LIVE);
  await server.fail('away');
  loader.stop();
  await timers.pass(60_000);
  assert.deepEqual([server.asked.length, loader.course, timers.running], [1, null, 0]);
  loader.load(LIVE);
  loader.stop();
  const before = told();
  await server.answer([1]);
  loader.take(sample(2));
  assert.deepEqual([told(), loader.course], [before, null]);
});
