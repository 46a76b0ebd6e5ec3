import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { Connection } from '../src/model/stream/connection';
import { ActiveKernel } from '../src/model/kernel/activeKernel';
import { StreamModel, type Outage } from '../src/model/stream/streamModel';
import { GpuMonitor } from '../src/model/stream/gpuMonitor';
import { FakeKernel, FakeServer, FakeClock, hello, reading, sample, settled, usage } from './fakes';

function setUp(): { monitor: GpuMonitor; server: FakeServer; clock: FakeClock; updates: () => number } {
  const server = new FakeServer();
  const clock = new FakeClock();
  const connection = new Connection(server, clock, () => 1);
  const monitor = new GpuMonitor(new StreamModel(), new ActiveKernel(clock), connection, clock);
  let count = 0;
  monitor.changed.connect(() => count++);
  return { monitor, server, clock, updates: () => count };
}

/** Return why the monitor has no current sample; null if it has one. */
function outage({ data }: GpuMonitor): Outage | null {
  return data.kind === 'live' ? null : data.reason;
}

function silentFor(monitor: GpuMonitor): number | null {
  return outage(monitor)?.seconds ?? null;
}

test('the stream is open only while a view is visible', async () => {
  const { monitor, server, clock } = setUp();
  await clock.pass(60_000);
  assert.deepEqual([server.sockets.length, clock.running], [0, 0]);
  monitor.setPanelVisible(true);
  server.socket.receive(hello());
  monitor.setPanelVisible(false);
  assert.deepEqual([server.socket.closed, clock.running, monitor.connectionState], [true, 0, 'off']);
});

test('after the last view was closed, the holders of memory are unknown', () => {
  const { monitor, server } = setUp();
  monitor.setPanelVisible(true);
  server.socket.receive(hello({ sample: sample(1) }));
  server.socket.receive(usage([], []));
  assert.deepEqual(monitor.model.usage?.gpus, []);
  monitor.setPanelVisible(false);
  assert.equal(monitor.model.usage, null);
});

test('a listener may end the need for samples at any time, and they can be wanted again', async () => {
  const { monitor, server, clock } = setUp();
  monitor.setPanelVisible(true);
  server.socket.receive(hello({ sample: sample(1) }));
  monitor.changed.connect(() => {
    if (silentFor(monitor) !== null) {
      monitor.setPanelVisible(false);
    }
  });
  await clock.pass(60_000);
  assert.deepEqual([monitor.connectionState, clock.running, server.sockets.length], ['off', 0, 1]);
  monitor.setPanelVisible(true);
  assert.deepEqual([monitor.connectionState, server.sockets.length], ['opening', 2]);
});

test('the seconds since the last sample are reported', async () => {
  const { monitor, server, clock } = setUp();
  monitor.setPanelVisible(true);
  server.socket.receive(hello({ sample: sample(1) }));
  await clock.pass(2000);
  assert.equal(silentFor(monitor), null);
  await clock.pass(10_000);
  assert.equal(silentFor(monitor), 12);
  server.socket.receive({ type: 'sample', sample: sample(2) });
  assert.equal(silentFor(monitor), null);
});

test('a server without a reply is distinguished from a driver without samples', async () => {
  const { monitor, server, clock } = setUp();
  monitor.setPanelVisible(true);
  await clock.pass(5000);
  assert.deepEqual(
    [monitor.connectionState, silentFor(monitor), outage(monitor)?.hasSample],
    ['opening', 5, false]
  );
  server.socket.receive(hello({ sample: null }));
  await clock.pass(5000);
  assert.deepEqual(
    [monitor.connectionState, silentFor(monitor), outage(monitor)?.hasSample],
    ['open', 5, false]
  );
  server.socket.receive({ type: 'sample', sample: sample(1) });
  await clock.pass(5000);
  assert.deepEqual(
    [monitor.connectionState, silentFor(monitor), outage(monitor)?.hasSample],
    ['open', 5, true]
  );
});

test('the last sample is current only while the stream delivers samples', async () => {
  const { monitor, server, clock } = setUp();
  const kinds: string[] = [monitor.data.kind];
  const step = async (act: () => void): Promise<void> => {
    act();
    await clock.pass(0);
    kinds.push(monitor.data.kind);
  };
  await step(() => {
    monitor.setPanelVisible(true);
    server.socket.receive(hello({ sample: null }));
  });
  await step(() => {
    server.socket.receive({ type: 'sample', sample: sample(1) });
  });
  await step(() => {
    monitor.setPanelVisible(false);
  });
  await clock.pass(3_600_000);
  await step(() => {
    monitor.setPanelVisible(true); // The sample is of an hour ago.
  });
  await step(() => {
    server.socket.receive(hello({ sample: null }));
  });
  await step(() => {
    server.socket.receive({ type: 'sample', sample: sample(2) });
  });
  await clock.pass(4000);
  await step(() => undefined);
  await step(() => {
    server.socket.receive({ type: 'sample', sample: sample(3) });
  });
  await step(() => {
    server.socket.disconnect();
  });
  assert.deepEqual(kinds, [
    ...['none', 'none', 'live', 'stale', 'stale', 'stale', 'live'],
    ...['stale', 'live', 'stale']
  ]);
});

test('a silent stream is reopened from time to time and still counts as silent', async () => {
  const { monitor, server, clock } = setUp();
  monitor.setPanelVisible(true);
  server.socket.receive(hello({ sample: sample(1) }));
  await clock.pass(16_000);
  assert.deepEqual([server.sockets.length, silentFor(monitor)], [2, 16]);
  server.socket.receive(hello({ sample: null }));
  await clock.pass(29_000);
  assert.deepEqual([server.sockets.length, silentFor(monitor)], [2, 45]);
  await clock.pass(2000);
  assert.equal(server.sockets.length, 3);
  server.socket.receive(hello({ sample: sample(2) }));
  assert.equal(silentFor(monitor), null);
});

for (const [gpus, times] of [
  [1, 3],
  [4, 3],
  [5, 2]
] as const) {
  test(`updates for ${String(gpus)} GPUs are limited, and the model has every sample`, async () => {
    const { monitor, server, clock, updates } = setUp();
    const readings = Array.from({ length: gpus }, (_, index) => reading(index));
    monitor.setPanelVisible(true);
    server.socket.receive(hello());
    const before = updates();
    for (let tick = 1; tick <= 10; tick++) {
      await clock.pass(200);
      server.socket.receive({ type: 'sample', sample: sample(tick, readings) });
    }
    assert.equal(updates() - before, times);
    assert.equal(monitor.model.sample?.time, 10);
  });
}

test('a change of the history length reopens the stream', () => {
  const { monitor, server } = setUp();
  monitor.setPanelVisible(true);
  monitor.setHistorySeconds(300);
  assert.deepEqual([server.sockets.length, server.sockets[0]?.closed], [2, true]);
  monitor.setHistorySeconds(300);
  assert.equal(server.sockets.length, 2);
});

test('hardware counters are read while a dashboard is visible', () => {
  const { monitor, server } = setUp();
  const dashboard = {};
  monitor.setDashboardVisible(dashboard, true);
  assert.deepEqual(server.socket.sent, []);
  server.socket.receive(hello());
  assert.deepEqual(server.socket.sent, [{ type: 'activity', wanted: true }]);
  monitor.setPanelVisible(true);
  monitor.setDashboardVisible(dashboard, false);
  assert.deepEqual(server.socket.sent[1], { type: 'activity', wanted: false });
  assert.deepEqual([server.sockets.length, server.socket.closed], [1, false]);
  monitor.setPanelVisible(false);
  assert.deepEqual([server.socket.closed, monitor.connectionState], [true, 'off']);
});

test('a reopened stream requests the hardware counters again', async () => {
  const { monitor, server, clock } = setUp();
  monitor.setDashboardVisible({}, true);
  server.socket.receive(hello());
  server.socket.disconnect();
  await clock.pass(2000);
  assert.equal(server.sockets.length, 2);
  server.socket.receive(hello());
  assert.deepEqual(server.socket.sent, [{ type: 'activity', wanted: true }]);
});

test('the panel requests no hardware counters', () => {
  const { monitor, server } = setUp();
  monitor.setPanelVisible(true);
  server.socket.receive(hello());
  assert.deepEqual(server.socket.sent, []);
});

test('every sample is delivered', () => {
  const { monitor, server } = setUp();
  const types: string[] = [];
  monitor.received.connect((_, { type }) => {
    types.push(type);
  });
  monitor.setDashboardVisible({}, true);
  server.socket.receive(hello());
  for (const time of [1, 1.2, 1.4]) {
    server.socket.receive({ type: 'sample', sample: sample(time) });
  }
  assert.deepEqual(types, ['hello', 'sample', 'sample', 'sample']);
});

test('samples arrive for alerts without a visible view, and no kernel is queried', async () => {
  const { monitor, server, clock, updates } = setUp();
  const kernel = new FakeKernel();
  monitor.kernels.setActive({ name: 'train.ipynb', kernel });
  monitor.setBackground(clock, true);
  server.socket.receive(hello({ sample: sample(1) }));
  assert.deepEqual([monitor.connectionState, kernel.requests.length], ['open', 0]);
  monitor.setPanelVisible(true);
  await settled();
  assert.deepEqual([server.sockets.length, kernel.requests.length], [1, 1]);
  monitor.setPanelVisible(false);
  const before = updates();
  await clock.pass(1000);
  server.socket.receive({ type: 'sample', sample: sample(2) });
  assert.deepEqual([monitor.connectionState, updates()], ['open', before + 1]);
  monitor.setBackground(clock, false);
  assert.deepEqual([monitor.connectionState, clock.running], ['off', 0]);
});

test('the alerts’ own need for samples does not count as an open view', () => {
  const { monitor } = setUp();
  const [alerts, section, dashboard] = [{}, {}, {}];
  const found = [];
  monitor.setBackground(alerts, true);
  found.push(monitor.hasOtherUsers({}), monitor.hasOtherUsers(alerts));
  for (const setVisible of [
    (visible: boolean) => {
      monitor.setPanelVisible(visible);
    },
    (visible: boolean) => {
      monitor.setDashboardVisible(dashboard, visible);
    },
    (visible: boolean) => {
      monitor.setBackground(section, visible);
    }
  ]) {
    setVisible(true);
    found.push(monitor.hasOtherUsers(alerts));
    setVisible(false);
    found.push(monitor.hasOtherUsers(alerts));
  }
  assert.deepEqual(found, [true, false, true, false, true, false, true, false]);
});

test('memory usage is displayed with the next sample, or after a second without one', async () => {
  const { monitor, server, clock, updates } = setUp();
  monitor.setPanelVisible(true);
  server.socket.receive(hello({ sample: sample(1) }));
  server.socket.receive(usage([], []));
  await clock.pass(500);
  const before = updates();
  for (let count = 0; count < 10; count++) {
    server.socket.receive(usage([], []));
  }
  assert.equal(updates(), before);
  server.socket.receive({ type: 'sample', sample: sample(2) });
  assert.equal(updates(), before + 1);
  server.socket.receive(usage([], []));
  await clock.pass(1000);
  assert.equal(updates(), before + 2);
  await clock.pass(1000);
  assert.equal(updates(), before + 2);
});

test('the first memory usage is displayed at once', () => {
  const { monitor, server, updates } = setUp();
  monitor.setPanelVisible(true);
  server.socket.receive(hello());
  const before = updates();
  server.socket.receive(usage([], []));
  assert.equal(updates() - before, 1);
});

test('the sampling interval of the settings is requested, but not for a dashboard', () => {
  const { monitor, server } = setUp();
  monitor.setSampleInterval(1);
  monitor.setPanelVisible(true);
  server.socket.receive(hello());
  assert.deepEqual(server.socket.sent, [{ type: 'rate', interval_s: 1 }]);
  assert.equal(monitor.model.server?.interval, 1);
  const dashboard = {};
  monitor.setDashboardVisible(dashboard, true);
  assert.equal(monitor.model.server.interval, 0.2);
  monitor.setDashboardVisible(dashboard, false);
  const rates = server.socket.sent.filter(message => (message as { type: string }).type === 'rate');
  assert.deepEqual(
    rates.map(message => (message as { interval_s: number }).interval_s),
    [1, 0, 1]
  );
});

test('a change of the interval does not reopen the stream, and the default is not sent', () => {
  const { monitor, server } = setUp();
  monitor.setPanelVisible(true);
  server.socket.receive(hello());
  assert.deepEqual(server.socket.sent, []);
  monitor.setSampleInterval(5);
  assert.deepEqual([server.sockets.length, server.socket.sent], [1, [{ type: 'rate', interval_s: 5 }]]);
});

test('the interval is a multiple of the server’s and never shorter', () => {
  const { monitor, server } = setUp();
  monitor.setPanelVisible(true);
  server.socket.receive(hello({ interval_s: 0.2 }));
  const intervals = [0, 0.1, 0.2, 0.24, 0.5, 1].map(seconds => {
    monitor.setSampleInterval(seconds);
    return Math.round(100 * (monitor.model.server?.interval ?? NaN)) / 100;
  });
  assert.deepEqual(intervals, [0.2, 0.2, 0.2, 0.2, 0.6, 1]);
});

test('a curve with a long interval has no gaps, also after the interval was shortened', () => {
  const { monitor, server } = setUp();
  monitor.setPanelVisible(true);
  server.socket.receive(hello());
  assert.equal(monitor.model.gap, 2);
  monitor.setSampleInterval(5);
  assert.equal(Math.round(monitor.model.gap), 15);
  monitor.setSampleInterval(0);
  assert.equal(Math.round(monitor.model.gap), 15);
  server.socket.receive(hello());
  assert.equal(monitor.model.gap, 2);
});

test('a server with a long interval counts as silent only after several intervals', async () => {
  const { monitor, server, clock } = setUp();
  monitor.setSampleInterval(10);
  monitor.setPanelVisible(true);
  server.socket.receive(hello({ sample: sample(1) }));
  await clock.pass(20_000);
  assert.equal(silentFor(monitor), null);
  await clock.pass(12_000);
  assert.equal(silentFor(monitor), 32);
});
