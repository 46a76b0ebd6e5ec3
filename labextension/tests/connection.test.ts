import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { Connection } from '../src/model/stream/connection';
import { STREAM_SCHEMA, type ReceivedMessage } from '../src/wire/wire';
import { FakeServer, FakeClock, hello, reading, sample } from './fakes';

function setUp(): { connection: Connection; server: FakeServer; clock: FakeClock; types: string[] } {
  const server = new FakeServer();
  const clock = new FakeClock();
  const connection = new Connection(server, clock, () => 1);
  const types: string[] = [];
  connection.received.connect((_, message) => types.push(message.type));
  return { connection, server, clock, types };
}

test('a new connection is closed and has no timer', () => {
  const { connection, server, clock } = setUp();
  assert.deepEqual([connection.state, server.sockets.length, clock.running], ['off', 0, 0]);
});

test('samples arrive after the hello message', () => {
  const { connection, server, types } = setUp();
  connection.start();
  assert.equal(connection.state, 'opening');
  server.socket.receive(hello());
  server.socket.receive({ type: 'sample', sample: sample(1) });
  assert.equal(connection.state, 'open');
  assert.deepEqual(types, ['hello', 'sample']);
});

test('changes are delivered as complete samples', () => {
  const { connection, server } = setUp();
  const received: ReceivedMessage[] = [];
  connection.received.connect((_, message) => received.push(message));
  connection.start();
  server.socket.receive(hello());
  const first = sample(1, [reading(0), reading(1)]);
  server.socket.receive({ type: 'sample', sample: first });
  server.socket.receive({
    type: 'changes',
    time: 2,
    readings: [{ utilization: null, missing: { utilization: 'lost' } }, {}]
  });
  server.socket.receive({ type: 'changes', time: 3, readings: [{}, { power_w: 5 }] });
  const [zero, one] = first.readings;
  const lost = { ...zero, utilization: null, missing: { utilization: 'lost' } };
  assert.deepEqual(received.slice(2), [
    { type: 'sample', sample: { ...first, time: 2, readings: [lost, one] } },
    { type: 'sample', sample: { ...first, time: 3, readings: [lost, { ...one, power_w: 5 }] } }
  ]);
  assert.equal(first.readings[0], zero);
});

test('changes after the hello message are relative to its sample', () => {
  const { connection, server } = setUp();
  const received: ReceivedMessage[] = [];
  connection.received.connect((_, message) => received.push(message));
  connection.start();
  const first = sample(1);
  server.socket.receive(hello({ sample: first }));
  server.socket.receive({ type: 'changes', time: 2, readings: [{ power_w: 5 }] });
  const readings = first.readings.map(one => ({ ...one, power_w: 5 }));
  assert.deepEqual(received.slice(1), [{ type: 'sample', sample: { ...first, time: 2, readings } }]);
});

test('changes without a previous sample on the same websocket are ignored', async () => {
  const { connection, server, clock, types } = setUp();
  connection.start();
  server.socket.receive(hello({ sample: sample(1) }));
  server.state = 'ok';
  server.socket.disconnect();
  await clock.pass(500);
  server.socket.receive({ type: 'changes', time: 2, readings: [{}] });
  assert.deepEqual([server.sockets.length, types], [2, ['hello']]);
});

test('stopping closes the websocket and cancels all timers', () => {
  const { connection, server, clock } = setUp();
  connection.start();
  server.socket.receive(hello());
  connection.stop();
  assert.deepEqual([connection.state, server.socket.closed, clock.running], ['off', true, 0]);
});

test('the stream reopens after a restart of the server and is lost meanwhile', async () => {
  const { connection, server, clock } = setUp();
  connection.start();
  server.socket.receive(hello());
  server.state = 'unreachable';
  server.socket.disconnect();
  assert.equal(connection.state, 'lost');
  await clock.pass(500);
  assert.deepEqual([connection.state, server.sockets.length], ['lost', 2]);
  server.socket.disconnect();
  server.state = 'ok';
  await clock.pass(1000);
  server.socket.receive(hello());
  assert.deepEqual([connection.state, server.sockets.length], ['open', 3]);
});

test('retries become less frequent, down to one every ten seconds', async () => {
  const { connection, server, clock } = setUp();
  const waits: number[] = [];
  connection.start();
  server.state = 'unreachable';
  for (let attempt = 0; attempt < 7; attempt++) {
    const before = server.sockets.length;
    const since = clock.now();
    server.socket.disconnect();
    while (server.sockets.length === before) {
      await clock.pass(500);
    }
    waits.push(clock.now() - since);
  }
  assert.deepEqual(waits, [500, 1000, 2000, 4000, 8000, 10000, 10000]);
});

for (const [result, state] of [
  ['absent', 'absent'],
  ['refused', 'refused'],
  ['unreachable', 'lost']
] as const) {
  test(`a server that is ${result} is ${state} and is retried`, async () => {
    const { connection, server, clock } = setUp();
    connection.start();
    server.state = result;
    server.socket.disconnect();
    await clock.pass(500);
    assert.deepEqual([connection.state, server.sockets.length], [state, 2]);
  });
}

test('a proxy that blocks websockets is distinguished from an unreachable server', async () => {
  const { connection, server, clock } = setUp();
  connection.start();
  for (let attempt = 0; attempt < 4; attempt++) {
    server.socket.disconnect();
    await clock.pass(10_000);
  }
  assert.equal(connection.state, 'blocked');
});

test('a server that is unreachable for a long time is lost, and no proxy blocks it', async () => {
  const { connection, server, clock } = setUp();
  connection.start();
  server.socket.receive(hello());
  server.state = 'unreachable';
  for (let attempt = 0; attempt < 8; attempt++) {
    server.socket.disconnect();
    await clock.pass(10_000);
  }
  assert.equal(connection.state, 'lost');
});

test('no proxy blocks a server that answers again after a long time', async () => {
  const { connection, server, clock } = setUp();
  const states: string[] = [];
  connection.changed.connect((_, state) => states.push(state));
  connection.start();
  server.socket.receive(hello());
  server.state = 'unreachable';
  for (let attempt = 0; attempt < 8; attempt++) {
    server.socket.disconnect();
    await clock.pass(10_000);
  }
  server.state = 'ok';
  server.socket.disconnect();
  await clock.pass(10_000);
  server.socket.receive(hello());
  assert.deepEqual(states, ['opening', 'open', 'lost', 'open']);
});

for (const state of ['opening', 'open', 'lost', 'limited', 'full', 'absent'] as const) {
  test(`a listener may stop the stream when it is ${state}, and nothing of it remains`, async () => {
    const { connection, server, clock } = setUp();
    connection.changed.connect((_, changed) => {
      if (changed === state) {
        connection.stop();
      }
    });
    connection.start();
    if (state !== 'opening') {
      server.state = state === 'absent' ? 'absent' : 'busy';
      if (state !== 'absent' && state !== 'full') {
        server.socket.receive(hello());
      }
      server.socket.disconnect(state === 'limited' ? 1008 : 1006);
    }
    await clock.pass(120_000);
    assert.deepEqual([connection.state, clock.running, server.sockets.length], ['off', 0, 1]);
  });
}

test('a listener may stop the stream at its first message', () => {
  const { connection, server, clock } = setUp();
  connection.received.connect(() => {
    connection.stop();
  });
  connection.start();
  server.socket.receive(hello());
  assert.deepEqual([connection.state, clock.running, server.socket.closed], ['off', 0, true]);
});

test('a server with too many clients is tried every 30 seconds, and no websocket is opened meanwhile', async () => {
  const { connection, server, clock } = setUp();
  connection.start();
  server.state = 'busy';
  server.socket.disconnect();
  await clock.pass(500);
  assert.deepEqual([connection.state, server.sockets.length, server.requests], ['full', 1, 1]);
  await clock.pass(29_500);
  assert.equal(server.requests, 1);
  await clock.pass(500);
  assert.deepEqual([connection.state, server.sockets.length, server.requests], ['full', 1, 2]);
  server.state = 'ok';
  await clock.pass(30_000);
  server.socket.receive(hello());
  assert.deepEqual([connection.state, server.sockets.length], ['open', 2]);
});

test('a page that has sent too many messages waits 30 seconds', async () => {
  const { connection, server, clock } = setUp();
  connection.start();
  server.socket.receive(hello());
  server.socket.disconnect(1008);
  assert.equal(connection.state, 'limited');
  await clock.pass(29_500);
  assert.deepEqual([connection.state, server.sockets.length], ['limited', 1]);
  await clock.pass(500);
  server.socket.receive(hello());
  assert.deepEqual([connection.state, server.sockets.length], ['open', 2]);
});

test('a server that was full is not taken for one whose websockets a proxy blocks', async () => {
  const { connection, server, clock } = setUp();
  connection.start();
  for (let attempt = 0; attempt < 5; attempt++) {
    server.state = 'unreachable';
    server.socket.disconnect();
    await clock.pass(10_000);
  }
  server.state = 'busy';
  server.socket.disconnect();
  await clock.pass(10_000);
  assert.equal(connection.state, 'full');
  server.state = 'ok';
  await clock.pass(30_000);
  assert.equal(connection.state, 'lost');
});

test('a websocket that is closed as a violation before it opens has not sent too many messages', async () => {
  const { connection, server, clock } = setUp();
  connection.start();
  server.state = 'ok';
  server.socket.disconnect(1008);
  await clock.pass(500);
  assert.deepEqual([connection.state, server.sockets.length], ['lost', 2]);
});

test('stopping a connection to a full server cancels its timer', async () => {
  const { connection, server, clock } = setUp();
  connection.start();
  server.state = 'busy';
  server.socket.disconnect();
  await clock.pass(500);
  connection.stop();
  await clock.pass(60_000);
  assert.deepEqual([connection.state, clock.running, server.requests], ['off', 0, 1]);
});

test('a stream of another version is closed', () => {
  const { connection, server, types } = setUp();
  connection.start();
  server.socket.receive(hello({ schema: STREAM_SCHEMA + 1 }));
  assert.deepEqual([connection.state, types, server.socket.closed], ['foreign', [], true]);
});

test('a connection that is stopped during a retry stays closed', async () => {
  const { connection, server, clock } = setUp();
  connection.start();
  server.socket.disconnect();
  connection.stop();
  await clock.pass(60_000);
  assert.deepEqual([connection.state, server.sockets.length], ['off', 1]);
});

test('a websocket that hangs in its handshake is given up and retried', async () => {
  const { connection, server, clock } = setUp();
  connection.start();
  await clock.pass(15_000);
  assert.equal(server.sockets[0]?.closed, true);
  await clock.pass(500);
  assert.equal(server.sockets.length, 2);
  server.socket.receive(hello());
  assert.equal(connection.state, 'open');
  await clock.pass(60_000);
  assert.deepEqual([connection.state, server.sockets.length], ['open', 2]);
});

test('a websocket that always hangs although the server replies is blocked', async () => {
  const { connection, clock } = setUp();
  connection.start();
  await clock.pass(5 * 25_000);
  assert.equal(connection.state, 'blocked');
});

test('a first message that cannot be read means another version of gpuwidget', () => {
  for (const message of [{}, hello({ interval_s: 0 }), { ...hello(), sample: 'x' }, 'text']) {
    const { connection, server, types } = setUp();
    connection.start();
    server.socket.receive(message);
    assert.deepEqual([connection.state, types, server.socket.closed], ['foreign', [], true]);
  }
});

test('after a sample that cannot be read, the stream is reopened', async () => {
  const other = sample(2, [reading(0, { uuid: 'GPU-9' })]);
  for (const message of [
    { type: 'changes', time: 2, readings: [] },
    { type: 'changes', time: 2, readings: [{ uuid: 'GPU-9' }] },
    { type: 'sample', sample: { ...other, gpus: sample(2).gpus } },
    { type: 'sample', sample: { ...sample(2), gpus: [] } },
    { type: 'other' }
  ]) {
    const { connection, server, clock, types } = setUp();
    connection.start();
    server.socket.receive(hello({ sample: sample(1) }));
    const first = server.socket;
    first.receive(message);
    assert.deepEqual([connection.state, first.closed, types], ['lost', true, ['hello']]);
    await clock.pass(2000);
    server.socket.receive(hello({ sample: sample(3) }));
    assert.deepEqual([connection.state, server.sockets.length, types], ['open', 2, ['hello', 'hello']]);
    connection.stop();
  }
});

test('only the address of a web page is a link to the documentation', () => {
  const { connection, server } = setUp();
  const links: unknown[] = [];
  connection.received.connect((_, message) => {
    links.push(message.type === 'hello' ? message.documentation : undefined);
  });
  connection.start();
  server.socket.receive(hello({ documentation: 'javascript:alert(1)' }));
  server.socket.receive(hello({ documentation: 'https://example.org/gpus' }));
  assert.deepEqual(links, [null, 'https://example.org/gpus']);
});

test('a value of an unexpected type is unknown, and the others are shown', () => {
  const { connection, server } = setUp();
  const received: ReceivedMessage[] = [];
  connection.received.connect((_, message) => received.push(message));
  connection.start();
  server.socket.receive(hello({ sample: sample(1) }));
  const strange = { utilization: '97', memory_used: -1, power_w: 1e300, temperature_c: -5, throttle: 7 };
  server.socket.receive({ type: 'changes', time: 2, readings: [strange] });
  const [first] = sample(1).readings;
  const known = { utilization: null, memory_used: null, power_w: null, temperature_c: -5, throttle: null };
  assert.deepEqual(received.slice(1), [
    { type: 'sample', sample: { ...sample(2), readings: [{ ...first, ...known }] } }
  ]);
});
