import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { Connection } from '../src/stream/connection';
import { ActiveKernel } from '../src/kernel/activeKernel';
import { Model } from '../src/stream/model';
import { Monitor } from '../src/stream/monitor';
import { FakeKernel, FakeServer, FakeTimers, hello, reading, sample, settled, usage } from './fakes';

function made(): { monitor: Monitor; server: FakeServer; timers: FakeTimers; told: () => number } {
  const server = new FakeServer();
  const timers = new FakeTimers();
  const connection = new Connection(server, timers, () => 1);
  const monitor = new Monitor(new Model(), new ActiveKernel(timers), connection, timers);
  let count = 0;
  monitor.changed.connect(() => count++);
  return { monitor, server, timers, told: () => count };
}

test('nothing is done before somebody looks nor after', async () => {
  const { monitor, server, timers } = made();
  await timers.pass(60_000);
  assert.deepEqual([server.sockets.length, timers.running], [0, 0]);
  monitor.look(true);
  server.socket.say(hello());
  monitor.look(false);
  assert.deepEqual([server.socket.closed, timers.running, monitor.link], [true, 0, 'off']);
});

test('an open stream that falls silent is told, and for how long', async () => {
  const { monitor, server, timers } = made();
  monitor.look(true);
  server.socket.say(hello({ sample: sample(1) }));
  await timers.pass(2000);
  assert.equal(monitor.quietFor, null);
  await timers.pass(10_000);
  assert.equal(monitor.quietFor, 12);
  server.socket.say({ type: 'sample', sample: sample(2) });
  assert.equal(monitor.quietFor, null);
});

test('a server that does not answer and one whose driver does not are told apart', async () => {
  const { monitor, server, timers } = made();
  monitor.look(true);
  await timers.pass(5000);
  assert.deepEqual([monitor.link, monitor.quietFor, monitor.sampled], ['opening', 5, false]);
  server.socket.say(hello({ sample: null }));
  await timers.pass(5000);
  assert.deepEqual([monitor.link, monitor.quietFor, monitor.sampled], ['open', 5, false]);
  server.socket.say({ type: 'sample', sample: sample(1) });
  await timers.pass(5000);
  assert.deepEqual([monitor.link, monitor.quietFor, monitor.sampled], ['open', 5, true]);
});

test('a stream that may be dead without a close is opened anew, now and then, and what is said goes on', async () => {
  const { monitor, server, timers } = made();
  monitor.look(true);
  server.socket.say(hello({ sample: sample(1) }));
  await timers.pass(16_000);
  assert.deepEqual([server.sockets.length, monitor.quietFor], [2, 16]);
  server.socket.say(hello({ sample: null }));
  await timers.pass(29_000);
  assert.deepEqual([server.sockets.length, monitor.quietFor], [2, 45]);
  await timers.pass(2000);
  assert.equal(server.sockets.length, 3);
  server.socket.say(hello({ sample: sample(2) }));
  assert.equal(monitor.quietFor, null);
});

for (const [gpus, times] of [
  [1, 3],
  [4, 3],
  [5, 2]
] as const) {
  test(`figures of ${String(gpus)} GPUs change no faster than they can be read, and none is lost`, async () => {
    const { monitor, server, timers, told } = made();
    const readings = Array.from({ length: gpus }, (_, index) => reading(index));
    monitor.look(true);
    server.socket.say(hello());
    const before = told();
    for (let tick = 1; tick <= 10; tick++) {
      await timers.pass(200);
      server.socket.say({ type: 'sample', sample: sample(tick, readings) });
    }
    assert.equal(told() - before, times);
    assert.equal(monitor.model.sample?.time, 10);
  });
}

test('another length of the past is asked of the server at once', () => {
  const { monitor, server } = made();
  monitor.look(true);
  monitor.keep(300);
  assert.deepEqual([server.sockets.length, server.sockets[0]?.closed], [2, true]);
  monitor.keep(300);
  assert.equal(server.sockets.length, 2);
});

test('a dashboard has the hardware counters read while it is looked at, and no longer', () => {
  const { monitor, server } = made();
  const dashboard = {};
  monitor.follow(dashboard, true);
  assert.deepEqual(server.socket.said, []);
  server.socket.say(hello());
  assert.deepEqual(server.socket.said, [{ type: 'activity', wanted: true }]);
  monitor.look(true);
  monitor.follow(dashboard, false);
  assert.deepEqual(server.socket.said[1], { type: 'activity', wanted: false });
  assert.deepEqual([server.sockets.length, server.socket.closed], [1, false]);
  monitor.look(false);
  assert.deepEqual([server.socket.closed, monitor.link], [true, 'off']);
});

test('a stream that is opened anew says again what is looked at', async () => {
  const { monitor, server, timers } = made();
  monitor.follow({}, true);
  server.socket.say(hello());
  server.socket.breakOff();
  await timers.pass(2000);
  assert.equal(server.sockets.length, 2);
  server.socket.say(hello());
  assert.deepEqual(server.socket.said, [{ type: 'activity', wanted: true }]);
});

test('the panel alone asks for no hardware counters', () => {
  const { monitor, server } = made();
  monitor.look(true);
  server.socket.say(hello());
  assert.deepEqual(server.socket.said, []);
});

test('who follows the stream gets every sample', () => {
  const { monitor, server } = made();
  const seen: string[] = [];
  monitor.received.connect((_, { type }) => {
    seen.push(type);
  });
  monitor.follow({}, true);
  server.socket.say(hello());
  for (const time of [1, 1.2, 1.4]) {
    server.socket.say({ type: 'sample', sample: sample(time) });
  }
  assert.deepEqual(seen, ['hello', 'sample', 'sample', 'sample']);
});

test('for alerts samples come though nobody looks, and nobody’s kernel is asked', async () => {
  const { monitor, server, timers, told } = made();
  const kernel = new FakeKernel();
  monitor.kernels.setActive({ name: 'train.ipynb', kernel, phase: 'idle' });
  monitor.overhear(true);
  server.socket.say(hello({ sample: sample(1) }));
  assert.deepEqual([monitor.link, kernel.requests.length], ['open', 0]);
  monitor.look(true);
  await settled();
  assert.deepEqual([server.sockets.length, kernel.requests.length], [1, 1]);
  monitor.look(false);
  const before = told();
  await timers.pass(1000);
  server.socket.say({ type: 'sample', sample: sample(2) });
  assert.deepEqual([monitor.link, told()], ['open', before + 1]);
  monitor.overhear(false);
  assert.deepEqual([monitor.link, timers.running], ['off', 0]);
});

test('who holds what is told with the next sample, and within a second where none comes', async () => {
  const { monitor, server, timers, told } = made();
  monitor.look(true);
  server.socket.say(hello({ sample: sample(1) }));
  server.socket.say(usage([], []));
  await timers.pass(500);
  const before = told();
  for (let said = 0; said < 10; said++) {
    server.socket.say(usage([], []));
  }
  assert.equal(told(), before);
  server.socket.say({ type: 'sample', sample: sample(2) });
  assert.equal(told(), before + 1);
  server.socket.say(usage([], []));
  await timers.pass(1000);
  assert.equal(told(), before + 2);
  await timers.pass(1000);
  assert.equal(told(), before + 2);
});

test('who holds what is told at once where a view has none', () => {
  const { monitor, server, told } = made();
  monitor.look(true);
  server.socket.say(hello());
  const before = told();
  server.socket.say(usage([], []));
  assert.equal(told() - before, 1);
});

test('fewer samples are asked for where the settings want it, and every one for a dashboard', () => {
  const { monitor, server } = made();
  monitor.pace(1);
  monitor.look(true);
  server.socket.say(hello());
  assert.deepEqual(server.socket.said, [{ type: 'rate', interval_s: 1 }]);
  assert.equal(monitor.model.server?.interval, 1);
  const dashboard = {};
  monitor.follow(dashboard, true);
  assert.equal(monitor.model.server.interval, 0.2);
  monitor.follow(dashboard, false);
  const rates = server.socket.said.filter(said => (said as { type: string }).type === 'rate');
  assert.deepEqual(
    rates.map(said => (said as { interval_s: number }).interval_s),
    [1, 0, 1]
  );
});

test('the usual rate needs no word, and another is said without a new stream', () => {
  const { monitor, server } = made();
  monitor.look(true);
  server.socket.say(hello());
  assert.deepEqual(server.socket.said, []);
  monitor.pace(5);
  assert.deepEqual([server.sockets.length, server.socket.said], [1, [{ type: 'rate', interval_s: 5 }]]);
});

test('samples are told to come as they do: whole steps of the server’s, and never faster', () => {
  const { monitor, server } = made();
  monitor.look(true);
  server.socket.say(hello({ interval_s: 0.2 }));
  const told = [0, 0.1, 0.2, 0.24, 0.5, 1].map(wish => {
    monitor.pace(wish);
    return Math.round(100 * (monitor.model.server?.interval ?? NaN)) / 100;
  });
  assert.deepEqual(told, [0.2, 0.2, 0.2, 0.2, 0.6, 1]);
});

test('a curve of few samples is not broken between them, nor when more come again', () => {
  const { monitor, server } = made();
  monitor.look(true);
  server.socket.say(hello());
  assert.equal(monitor.model.gap, 2);
  monitor.pace(5);
  assert.equal(Math.round(monitor.model.gap), 15);
  monitor.pace(0);
  assert.equal(Math.round(monitor.model.gap), 15);
  server.socket.say(hello());
  assert.equal(monitor.model.gap, 2);
});

test('a server that is silent for longer than usual is told only after what the settings have it wait', async () => {
  const { monitor, server, timers } = made();
  monitor.pace(10);
  monitor.look(true);
  server.socket.say(hello({ sample: sample(1) }));
  await timers.pass(20_000);
  assert.equal(monitor.quietFor, null);
  await timers.pass(12_000);
  assert.equal(monitor.quietFor, 32);
});
