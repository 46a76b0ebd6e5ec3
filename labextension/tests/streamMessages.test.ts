import { strict as assert } from 'node:assert';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { parseSnapshot } from '../src/wire/clusterSnapshot';
import { parseHistory, parseStreamMessage } from '../src/wire/streamMessages';
import { gpu, gpuUsage, hello, history, holding, reading, sample, serverKernel, usage } from './fakes';

/** Return a message after it was sent and parsed. */
function received(message: unknown): unknown {
  return parseStreamMessage(JSON.stringify(message));
}

/** Return a copy of an object without some of its fields. */
function without(value: object, ...names: readonly string[]): unknown {
  return Object.fromEntries(Object.entries(value).filter(([name]) => !names.includes(name)));
}

test('the server of the oldest version with these schemas is understood: a new field must not be required', () => {
  const oldest = JSON.parse(readFileSync('labextension/tests/oldest_messages.json', 'utf-8')) as Record<
    string,
    { type?: string }
  >;
  const names = ['InitialMessage', 'SampleMessage', 'SampleChanges', 'MemoryOwnership', 'AlwaysOn'];
  assert.deepEqual(
    names.map(name => parseStreamMessage(JSON.stringify(oldest[name]))?.type),
    ['hello', 'sample', 'changes', 'usage', 'always_on']
  );
  assert.deepEqual(parseHistory(oldest.MetricHistory), oldest.MetricHistory);
  assert.deepEqual(parseSnapshot(oldest.ClusterSnapshot), oldest.ClusterSnapshot);
});

test('what an older server does not send is unknown, and never 0', () => {
  const older = { ...gpuUsage(0, []), holdings: [without(holding(1), 'pid', 'memory', 'other_users')] };
  assert.deepEqual(
    received(usage([], [without(older, 'memory_used', 'unattributed', 'older') as never])),
    usage(
      [],
      [
        gpuUsage(0, [holding(null, { pid: null, other_users: false })], {
          memory_used: null,
          unattributed: null,
          older: false
        })
      ]
    )
  );
  const full = sample(1, [reading(0)]);
  const readings = [without(reading(0), 'power_w', 'activity', 'missing')];
  assert.deepEqual(received({ type: 'sample', sample: { ...full, readings } }), {
    type: 'sample',
    sample: sample(1, [reading(0, { power_w: null })])
  });
});

test('an impossible value is unknown, but a temperature may be below 0', () => {
  const sent = { utilization: -1, memory_used: 0.5, power_w: 1e300, temperature_c: -5, answered: 1e300 };
  const expected = { utilization: null, memory_used: null, power_w: null, temperature_c: -5, answered: null };
  assert.deepEqual(received({ type: 'sample', sample: sample(1, [reading(0, sent)]) }), {
    type: 'sample',
    sample: sample(1, [reading(0, expected)])
  });
});

test('an invalid value is never read as a GPU that answers, is whole or live, or as no kernel', () => {
  const whole = sample(1);
  for (const changes of [
    { readings: [{ ...reading(0), lost_since: 'yes' }] },
    { readings: [{ ...reading(0), silent_since: true }] },
    { readings: [without(reading(0), 'lost_since')] },
    { gpus: [{ ...gpu(0), mig_parent: 7 }] },
    { gpus: [{ ...gpu(0), mig_index: -1 }] },
    { origin: { ...whole.origin, recording: 7 } },
    { readings: [reading(1)] },
    { readings: [] },
    { schema: 2 }
  ]) {
    assert.equal(received({ type: 'sample', sample: { ...whole, ...changes } }), null);
  }
  const broken = { ...gpuUsage(0, []), holdings: [{ ...holding(1), kernel: 7 }] };
  assert.deepEqual(
    received({ ...usage([], []), gpus: [broken, gpuUsage(1, [])] }),
    usage([], [gpuUsage(1, [])])
  );
});

test('an invalid kernel, or an invalid history, does not hide the rest of a message', () => {
  const kernel = serverKernel('kernel-1');
  assert.deepEqual(
    received({ ...usage([kernel], []), kernels: [{ ...kernel, id: 1 }, kernel] }),
    usage([kernel], [])
  );
  for (const broken of [null, { t: [2, 1], gpus: [] }, { t: 'x', gpus: [] }]) {
    assert.deepEqual(received({ ...hello(), history: broken }), hello());
  }
  const known = hello({ history: history([1, 2]) });
  const gpus = [...known.history.gpus, { uuid: 7 }];
  assert.deepEqual(received({ ...known, history: { ...known.history, gpus } }), known);
});

test('a sampling interval for which the page has no room, and a link to no web page, are refused', () => {
  for (const interval_s of [0, 0.001, 1e9, null, '1']) {
    assert.equal(received({ ...hello(), interval_s }), null);
  }
  assert.deepEqual(received(hello({ documentation: 'javascript:alert(1)' })), hello({ documentation: null }));
  assert.deepEqual(
    received(hello({ documentation: 'https://a.org' })),
    hello({ documentation: 'https://a.org' })
  );
});
