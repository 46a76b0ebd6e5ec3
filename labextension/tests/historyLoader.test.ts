import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { HistoryLoader } from '../src/model/history/historyLoader';
import type { TimeAxis } from '../src/model/history/timeSeries';
import type { Result } from '../src/model/server/result';
import type { HistoryQuery, ServerClient } from '../src/model/server/serverClient';
import type { MetricHistory } from '../src/wire/wire';
import { failed, FakeClock, sample, settled } from './fakes';

const LIVE = {
  span: { seconds: 300 },
  metrics: ['utilization'],
  points: 400,
  node: null,
  streams: true
} as const;

/** A server that replies when the test calls `reply` or `fail`. */
class FakeHistoryServer implements Pick<ServerClient, 'history'> {
  readonly requests: HistoryQuery[] = [];
  readonly signals: AbortSignal[] = [];
  private readonly pending: ((result: Result<MetricHistory>) => void)[] = [];

  history(query: HistoryQuery, signal: AbortSignal): Promise<Result<MetricHistory>> {
    this.requests.push(query);
    this.signals.push(signal);
    return new Promise(resolve => this.pending.push(resolve));
  }

  async reply(t: readonly number[], step = 1): Promise<void> {
    const value: MetricHistory = {
      since: 0,
      until: 0,
      step_s: step,
      newest: t.at(-1) ?? null,
      t,
      samples: t.map(() => 1),
      gpus: [{ uuid: 'GPU-0', metrics: { utilization: { mean: t, min: null, max: null } } }]
    };
    this.pending.shift()?.({ kind: 'ok', value });
    await settled();
  }

  async fail(reason: string): Promise<void> {
    this.pending.shift()?.(failed('failed', reason));
    await settled();
  }
}

function setUp(): {
  loader: HistoryLoader;
  server: FakeHistoryServer;
  clock: FakeClock;
  changes: () => number;
} {
  const server = new FakeHistoryServer();
  const clock = new FakeClock();
  const loader = new HistoryLoader(server, clock);
  let count = 0;
  loader.changed.connect(() => count++);
  return { loader, server, clock, changes: () => count };
}

test('the history is requested once, and samples that arrive meanwhile are appended', async () => {
  const { loader, server, changes } = setUp();
  loader.load(LIVE);
  assert.deepEqual(server.requests, [
    { part: { seconds: 300 }, metrics: ['utilization'], points: 400, node: null }
  ]);
  loader.append(sample(11));
  loader.append(sample(12));
  loader.append(sample(13));
  await server.reply([10, 11, 12]);
  const axis: TimeAxis = { times: [], indices: [] };
  loader.series?.axis(0, 1, axis);
  assert.deepEqual([loader.series?.newest, axis.times.length, changes()], [13, 4, 1]);
  loader.append(sample(14));
  assert.equal(loader.series?.newest, 14);
  assert.equal(server.requests.length, 1);
});

test('the response to an outdated request is discarded', async () => {
  const { loader, server } = setUp();
  loader.load(LIVE);
  loader.load({ ...LIVE, span: { from: 100, to: 200 } });
  await server.reply([1, 2, 3]);
  assert.deepEqual(server.requests[1]?.part, { since: 100, until: 200 });
  assert.deepEqual([loader.series], [null]);
  await server.reply([100, 101]);
  assert.deepEqual([loader.series?.newest], [101]);
});

test('of several requests meanwhile only the last is sent, and time ranges on the way are shown', async () => {
  const { loader, server, clock } = setUp();
  for (let from = 100; from < 130; from++) {
    loader.load({ ...LIVE, span: { from, to: from + 100 } });
  }
  assert.equal(server.requests.length, 1);
  await server.reply([100, 101]);
  assert.deepEqual([loader.series?.newest], [101]);
  await server.reply([129, 130]);
  assert.deepEqual([loader.series?.newest, clock.running], [130, 0]);
  assert.deepEqual(
    server.requests.map(({ part }) => part),
    [
      { since: 100, until: 200 },
      { since: 129, until: 229 }
    ]
  );
});

test('a request waits at most ten seconds for the previous one, and not if that fails', async () => {
  const { loader, server, clock } = setUp();
  loader.load(LIVE);
  loader.load({ ...LIVE, span: { from: 1, to: 2 } });
  await clock.pass(10_000);
  assert.equal(server.requests.length, 2);
  await server.reply([1000]);
  assert.deepEqual([loader.series?.newest], [undefined]);
  loader.load({ ...LIVE, span: { from: 2, to: 3 } });
  await server.fail('away');
  assert.deepEqual([server.requests.length, loader.failure], [3, 'away']);
  await server.reply([2]);
  assert.deepEqual([loader.series?.newest, loader.failure, clock.running], [2, null, 0]);
});

test('a fixed time range takes no samples', async () => {
  const { loader, server } = setUp();
  loader.load({ ...LIVE, span: { from: 100, to: 200 } });
  loader.append(sample(150));
  await server.reply([100, 101]);
  loader.append(sample(300));
  assert.deepEqual([loader.series?.newest], [101]);
});

test('the previous history stays until the response', async () => {
  const { loader, server } = setUp();
  loader.load(LIVE);
  await server.reply([10]);
  const before = loader.series;
  loader.load({ ...LIVE, span: { seconds: 60 } });
  assert.equal(loader.series, before);
});

test('the history is loaded again when the clock was set back', async () => {
  const { loader, server } = setUp();
  loader.load(LIVE);
  await server.reply([5000]);
  loader.append(sample(1000));
  assert.equal(server.requests.length, 2);
  loader.append(sample(1000.2));
  await server.reply([1000]);
  assert.deepEqual([loader.series?.newest, server.requests.length], [1000.2, 2]);
});

test('a failed request is repeated, and its reason is reported meanwhile', async () => {
  const { loader, server, clock } = setUp();
  loader.load(LIVE);
  await server.fail('Service Unavailable');
  assert.deepEqual([loader.failure, loader.series, server.requests.length], ['Service Unavailable', null, 1]);
  await clock.pass(5000);
  assert.equal(server.requests.length, 2);
  await server.reply([1]);
  assert.deepEqual([loader.failure, clock.running], [null, 0]);
});

test('stopping drops all data and cancels the timers', async () => {
  const { loader, server, clock, changes } = setUp();
  loader.load(LIVE);
  await server.fail('away');
  loader.stop();
  await clock.pass(60_000);
  assert.deepEqual([server.requests.length, loader.series, clock.running], [1, null, 0]);
  loader.load(LIVE);
  loader.stop();
  const before = changes();
  await server.reply([1]);
  loader.append(sample(2));
  assert.deepEqual([changes(), loader.series], [before, null]);
});

test('stopping aborts the pending request', () => {
  const { loader, server } = setUp();
  loader.load(LIVE);
  loader.stop();
  assert.equal(server.signals[0]?.aborted, true);
});

test('a live part that no stream continues is loaded again after each step, but not more than every 5 s', async () => {
  const { loader, server, clock } = setUp();
  loader.load({ ...LIVE, node: 'node001', streams: false });
  assert.equal(server.requests[0]?.node, 'node001');
  loader.append(sample(12));
  await server.reply([10, 11]);
  loader.append(sample(13));
  assert.deepEqual([loader.series?.newest], [11]);
  await clock.pass(4999);
  assert.equal(server.requests.length, 1);
  await clock.pass(1);
  assert.equal(server.requests.length, 2);
  await server.reply([10, 11, 12]);
  assert.deepEqual([loader.series?.newest], [12]);
  loader.stop();
  assert.equal(clock.running, 0);
});
