import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { Connection } from '../src/stream/connection';
import { STREAM_SCHEMA, type ReceivedMessage } from '../src/wire';
import { FakeServer, FakeTimers, hello, reading, sample } from './fakes';

function made(): { connection: Connection; server: FakeServer; timers: FakeTimers; types: string[] } {
  const server = new FakeServer();
  const timers = new FakeTimers();
  const connection = new Connection(server, timers, () => 1);
  const types: string[] = [];
  connection.received.connect((_, message) => types.push(message.type));
  return { connection, server, timers, types };
}

test('nothing is opened and no timer runs before somebody looks', () => {
  const { connection, server, timers } = made();
  assert.deepEqual([connection.state, server.sockets.length, timers.running], ['off', 0, 0]);
});

test('samples come once the server said hello', () => {
  const { connection, server, types } = made();
  connection.start();
  assert.equal(connection.state, 'opening');
  server.socket.say(hello());
  server.socket.say({ type: 'sample', sample: sample(1) });
  assert.equal(connection.state, 'open');
  assert.deepEqual(types, ['hello', 'sample']);
});

test('changes come as whole samples', () => {
  const { connection, server } = made();
  const received: ReceivedMessage[] = [];
  connection.received.connect((_, message) => received.push(message));
  connection.start();
  server.socket.say(hello());
  const first = sample(1, [reading(0), reading(1)]);
  server.socket.say({ type: 'sample', sample: first });
  server.socket.say({
    type: 'changes',
    time: 2,
    readings: [{ utilization: null, missing: { utilization: 'lost' } }, {}]
  });
  server.socket.say({ type: 'changes', time: 3, readings: [{}, { power_w: 5 }] });
  const [zero, one] = first.readings;
  const lost = { ...zero, utilization: null, missing: { utilization: 'lost' } };
  assert.deepEqual(received.slice(2), [
    { type: 'sample', sample: { ...first, time: 2, readings: [lost, one] } },
    { type: 'sample', sample: { ...first, time: 3, readings: [lost, { ...one, power_w: 5 }] } }
  ]);
  assert.equal(first.readings[0], zero);
});

test('changes after hello are relative to its sample', () => {
  const { connection, server } = made();
  const received: ReceivedMessage[] = [];
  connection.received.connect((_, message) => received.push(message));
  connection.start();
  const first = sample(1);
  server.socket.say(hello({ sample: first }));
  server.socket.say({ type: 'changes', time: 2, readings: [{ power_w: 5 }] });
  const readings = first.readings.map(one => ({ ...one, power_w: 5 }));
  assert.deepEqual(received.slice(1), [{ type: 'sample', sample: { ...first, time: 2, readings } }]);
});

test('changes without a sample before them are ignored, also where an earlier stream sent one', async () => {
  const { connection, server, timers, types } = made();
  connection.start();
  server.socket.say(hello({ sample: sample(1) }));
  server.code = 200;
  server.socket.breakOff();
  await timers.pass(500);
  server.socket.say({ type: 'changes', time: 2, readings: [{}] });
  assert.deepEqual([server.sockets.length, types], [2, ['hello']]);
});

test('when nobody looks any more the socket is closed and no timer is left', () => {
  const { connection, server, timers } = made();
  connection.start();
  server.socket.say(hello());
  connection.stop();
  assert.deepEqual([connection.state, server.socket.closed, timers.running], ['off', true, 0]);
});

test('after a restart of the server the stream comes back by itself, and meanwhile it says so', async () => {
  const { connection, server, timers } = made();
  connection.start();
  server.socket.say(hello());
  server.code = null;
  server.socket.breakOff();
  assert.equal(connection.state, 'lost');
  await timers.pass(500);
  assert.deepEqual([connection.state, server.sockets.length], ['lost', 2]);
  server.socket.breakOff();
  server.code = 200;
  await timers.pass(1000);
  server.socket.say(hello());
  assert.deepEqual([connection.state, server.sockets.length], ['open', 3]);
});

test('a server that stays away is asked ever less often, but at least every ten seconds', async () => {
  const { connection, server, timers } = made();
  const waits: number[] = [];
  connection.start();
  server.code = null;
  for (let attempt = 0; attempt < 7; attempt++) {
    const before = server.sockets.length;
    const since = timers.now();
    server.socket.breakOff();
    while (server.sockets.length === before) {
      await timers.pass(500);
    }
    waits.push(timers.now() - since);
  }
  assert.deepEqual(waits, [500, 1000, 2000, 4000, 8000, 10000, 10000]);
});

for (const [code, state] of [
  [404, 'absent'],
  [403, 'refused'],
  [401, 'refused'],
  [502, 'lost']
] as const) {
  test(`a server that answers ${String(code)} is ${state}, and is tried on`, async () => {
    const { connection, server, timers } = made();
    connection.start();
    server.code = code;
    server.socket.breakOff();
    await timers.pass(500);
    assert.deepEqual([connection.state, server.sockets.length], [state, 2]);
  });
}

test('a proxy that passes no websocket on is told from a server that is away', async () => {
  const { connection, server, timers } = made();
  connection.start();
  for (let attempt = 0; attempt < 4; attempt++) {
    server.socket.breakOff();
    await timers.pass(10_000);
  }
  assert.equal(connection.state, 'blocked');
});

test('a stream of another version is not read', () => {
  const { connection, server, types } = made();
  connection.start();
  server.socket.say(hello({ schema: STREAM_SCHEMA + 1 }));
  assert.deepEqual([connection.state, types, server.socket.closed], ['foreign', [], true]);
});

test('who stops looking while the server is tried is not connected behind their back', async () => {
  const { connection, server, timers } = made();
  connection.start();
  server.socket.breakOff();
  connection.stop();
  await timers.pass(60_000);
  assert.deepEqual([connection.state, server.sockets.length], ['off', 1]);
});
