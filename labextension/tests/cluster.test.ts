import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { ClusterModel, type ClusterData } from '../src/model/cluster/clusterModel';
import { lastValue } from '../src/model/freshness';
import type { Result } from '../src/model/server/result';
import { clusterCsv } from '../src/views/cluster/clusterCsv';
import { clusterNotice } from '../src/views/cluster/clusterMessages';
import { describeGpu } from '../src/views/cluster/gpuGrid';
import { legendRanges, level, quantity, QUANTITY_NAMES, summaryText } from '../src/views/cluster/quantities';
import { findFree, isFree, wallGroups } from '../src/views/cluster/wallRows';
import { DEFAULT_WALL, restoreWall } from '../src/views/cluster/wallState';
import { gpusOfNode } from '../src/views/dashboard/dashboardGpus';
import { parseSnapshot } from '../src/wire/clusterSnapshot';
import type { ClusterGpu, ClusterSnapshot } from '../src/wire/wire';
import { failed, FakeClock, trans } from './fakes';

const GPU: ClusterGpu = {
  uuid: 'GPU-0',
  node: 'a1',
  index: 0,
  model: 'NVIDIA H200',
  mig: null,
  exporters: ['dcgm'],
  utilization: 0,
  memory_used: 0,
  memory_total: 100,
  power_w: null,
  power_limit_w: 700,
  temperature_c: 30,
  xid: null,
  ecc_uncorrected: null,
  lost: false,
  idle_s: 0,
  users: [],
  notebooks: [],
  job: null
};
const SNAPSHOT: ClusterSnapshot = {
  time: 1_700_000_000,
  interval_s: 5,
  problem: null,
  nodes: [
    { name: 'a1', up: true, last_seen: null },
    { name: 'a2', up: true, last_seen: null },
    { name: 'a10', up: false, last_seen: null }
  ],
  gpus: [
    GPU,
    { ...GPU, uuid: 'GPU-1', index: 1, utilization: null },
    { ...GPU, uuid: 'GPU-2', node: 'a2', utilization: 50, users: ['ada', 'bob'] },
    { ...GPU, uuid: 'GPU-3', node: 'a10' }
  ]
};

test('a snapshot is requested only while a view is visible', async () => {
  const clock = new FakeClock();
  let requests = 0;
  let visible = false;
  const cluster = (): Promise<Result<ClusterSnapshot>> => {
    requests++;
    return Promise.resolve({ kind: 'ok', value: SNAPSHOT });
  };
  const model = new ClusterModel({ cluster }, clock);
  model.addView(() => visible);
  model.wake();
  await clock.pass(20_000);
  assert.equal(requests, 0);
  visible = true;
  model.wake();
  model.wake();
  await clock.pass(11_000);
  assert.deepEqual([requests, lastValue(model.data)?.gpus.length], [3, 4]);
  visible = false;
  model.wake();
  assert.equal(clock.running, 0);
  visible = true;
  model.wake();
  await clock.pass(3999);
  assert.equal(requests, 3); // The snapshot is not due yet.
  await clock.pass(1);
  assert.equal(requests, 4);
  visible = false;
  await clock.pass(20_000);
  assert.deepEqual([requests, clock.running], [5, 0]);
});

test('a snapshot becomes old, with a signal, while the next request is pending for too long', async () => {
  const clock = new FakeClock();
  let pending: Promise<Result<ClusterSnapshot>> = Promise.resolve({ kind: 'ok', value: SNAPSHOT });
  const model = new ClusterModel({ cluster: () => pending }, clock);
  let visible = true;
  model.addView(() => visible);
  model.wake();
  await clock.pass(0);
  const kinds: string[] = [];
  model.changed.connect(() => kinds.push(model.data.kind));
  pending = new Promise(() => undefined);
  await clock.pass(9999);
  assert.deepEqual([kinds, model.data.kind], [[], 'live']);
  await clock.pass(1);
  assert.deepEqual(kinds, ['stale']);
  visible = false;
  model.wake();
  assert.equal(clock.running, 0);
});

test('after a failure the last values stay, with the reason', async () => {
  const clock = new FakeClock();
  let result: Result<ClusterSnapshot> = { kind: 'ok', value: SNAPSHOT };
  const model = new ClusterModel({ cluster: () => Promise.resolve(result) }, clock);
  model.addView(() => true);
  model.wake();
  await clock.pass(0);
  result = failed('unreachable', 'Away.');
  await clock.pass(5000);
  const reason = { failure: 'Away.', problem: null };
  assert.deepEqual(model.data, { kind: 'stale', value: SNAPSHOT, reason });
  result = { kind: 'ok', value: SNAPSHOT };
  await clock.pass(5000);
  assert.deepEqual(model.data, { kind: 'live', value: SNAPSHOT });
});

test('the values of a Prometheus that does not answer, and those of a view that was hidden, are old', async () => {
  const clock = new FakeClock();
  let problem: string | null = 'Prometheus does not answer.';
  const cluster = (): Promise<Result<ClusterSnapshot>> =>
    Promise.resolve({ kind: 'ok', value: { ...SNAPSHOT, problem } });
  const model = new ClusterModel({ cluster }, clock);
  let visible = true;
  model.addView(() => visible);
  model.wake();
  await clock.pass(0);
  assert.deepEqual([model.data.kind, clusterNotice(trans, model.data)], ['stale', problem]);
  problem = null;
  await clock.pass(5000);
  assert.deepEqual([model.data.kind, clusterNotice(trans, model.data)], ['live', null]);
  visible = false;
  model.wake();
  await clock.pass(60_000);
  visible = true;
  model.wake();
  assert.equal(model.data.kind, 'stale');
  assert.match(clusterNotice(trans, model.data) ?? '', /^Reading the cluster… Showing the values from 2023/);
  await clock.pass(0);
  assert.equal(model.data.kind, 'live');
});

test('the reason for old values is a sentence, and has their time', () => {
  const notice = (failure: string, value?: ClusterSnapshot): string => {
    const reason = { failure, problem: null };
    const data = value === undefined ? { kind: 'none', reason } : { kind: 'stale', value, reason };
    return clusterNotice(trans, data as ClusterData) ?? '';
  };
  assert.equal(notice('Failed to fetch'), 'The cluster could not be read: Failed to fetch.');
  assert.equal(notice('Away.'), 'The cluster could not be read: Away.');
  assert.match(
    notice('Failed to fetch', SNAPSHOT),
    /^The cluster could not be read: Failed to fetch\. Showing the values from 2023-11-1\d \d\d:\d\d:20\.$/
  );
});

test('the GPUs of a lost node, and a lost GPU, have the reason why there are no current values', () => {
  const gpus = [...SNAPSHOT.gpus, { ...GPU, uuid: 'GPU-4', lost: true }];
  const problems = (node: string): unknown =>
    gpusOfNode(trans, { ...SNAPSHOT, gpus }, node).map(({ uuid, problem }) => [uuid, problem]);
  assert.deepEqual(problems('a1'), [
    ['GPU-0', null],
    ['GPU-1', null],
    ['GPU-4', ['lost', 'The exporter no longer reaches this GPU.']]
  ]);
  assert.deepEqual(problems('a10'), [['GPU-3', ['lost', 'lost']]]);
});

test('a GPU with an unknown value, with memory or hardware errors, or that is lost is not free', () => {
  assert.equal(isFree(GPU), true);
  for (const other of [
    { utilization: null },
    { utilization: 1 },
    { memory_used: null },
    { memory_used: 2e9 },
    { xid: 79 },
    { ecc_uncorrected: 1 },
    { lost: true }
  ]) {
    assert.equal(isFree({ ...GPU, ...other }), false);
  }
  // An XID that a program causes does not mean that the GPU is broken.
  assert.equal(isFree({ ...GPU, xid: 31 }), true);
});

test('free GPUs are found on nodes that are up', () => {
  assert.deepEqual(findFree(SNAPSHOT, { count: 1, model: 'NVIDIA H200' }), {
    nodes: ['a1'],
    total: 1,
    spread: 1
  });
  assert.deepEqual(findFree(SNAPSHOT, { count: 2, model: '' }).nodes, []);
  assert.equal(findFree(SNAPSHOT, { count: 1, model: 'NVIDIA A100' }).total, 0);
});

test('GPUs are filtered, grouped and sorted', () => {
  const names = (state: Partial<typeof DEFAULT_WALL>): unknown =>
    wallGroups(SNAPSHOT, { ...DEFAULT_WALL, ...state }).map(({ name, rows }) => [
      name,
      ...rows.map(row => row.node.name)
    ]);
  assert.deepEqual(names({}), [[null, 'a1', 'a2', 'a10']]);
  assert.deepEqual(names({ sorting: 'highest' }), [[null, 'a2', 'a1', 'a10']]);
  assert.deepEqual(names({ sorting: 'problems' }), [[null, 'a10', 'a1', 'a2']]);
  assert.deepEqual(names({ filter: 'H200 ada' }), [[null, 'a2']]);
  assert.deepEqual(names({ grouping: 'user' }), [
    ['ada', 'a2'],
    ['bob', 'a2'],
    [null, 'a1', 'a10']
  ]);
});

test('the color scale has a level for each range and none for an unknown value', () => {
  const utilization = quantity('utilization');
  assert.deepEqual(
    [null, 0, 1, 20, 21, 81].map(value => level(utilization, value)),
    [null, 0, 1, 1, 2, 5]
  );
  assert.deepEqual(
    legendRanges(utilization).map(({ text }) => text),
    ['0', '0–20', '20–40', '40–60', '60–80', '> 80']
  );
  assert.deepEqual(legendRanges(quantity('errors')), [
    { level: 0, text: '0' },
    { level: 5, text: '> 0' }
  ]);
});

test('the value of a node has the unit of its quantity, and is n/a if no GPU has a value', () => {
  const texts = (gpus: readonly ClusterGpu[]): string[] =>
    QUANTITY_NAMES.map(name => summaryText(trans, quantity(name), gpus));
  const busy = { ...GPU, utilization: 50, memory_used: 30, power_w: 350, temperature_c: 51.4, idle_s: 900 };
  assert.deepEqual(texts([GPU, { ...busy, xid: 79, ecc_uncorrected: 2 }]), [
    '25 %',
    '15 %',
    '50 %',
    '51 °C',
    '3',
    '15 min 00 s'
  ]);
  const unknown = { ...GPU, utilization: null, memory_used: null, temperature_c: null, idle_s: null };
  assert.deepEqual(texts([unknown]), ['n/a', 'n/a', 'n/a', 'n/a', 'n/a', 'n/a']);
});

test('the description of a GPU says what its XID means and what to do', () => {
  const described = (errors: Partial<ClusterGpu>): string =>
    describeGpu(trans, { ...GPU, ...errors }, { name: 'a1', up: true, last_seen: null }, 1_700_000_000);
  assert.ok(
    described({ xid: 48, ecc_uncorrected: 2 }).includes(
      ' · XID 48, 2 memory errors · an uncorrectable memory error · Reset the GPU: save your work, stop all ' +
        'programs that use the GPU, then run nvidia-smi --gpu-reset -i N as root, where N is the ' +
        "GPU's number."
    )
  );
  assert.ok(
    described({ xid: 9999 }).endsWith(
      " · XID 9999 · Look the XID up in NVIDIA's catalog: https://docs.nvidia.com/deploy/xid-errors/."
    )
  );
});

test('a table has each GPU once, and unknown values are empty', () => {
  const groups = wallGroups(SNAPSHOT, { ...DEFAULT_WALL, grouping: 'user' });
  const lines = clusterCsv(1_700_000_000, groups).trimEnd().split('\r\n');
  assert.equal(lines.length, 5);
  assert.equal(
    lines[1],
    '2023-11-14T22:13:20.000Z,a2,true,0,GPU-2,NVIDIA H200,,50,0,100,,700,30,,,false,0,ada bob,,,dcgm'
  );
});

test('an invalid saved state has defaults', () => {
  assert.deepEqual(restoreWall({ quantity: 'x', search: { count: 0, model: '' } }), DEFAULT_WALL);
  const saved = { ...DEFAULT_WALL, search: { count: 4, model: 'NVIDIA H200' } };
  assert.deepEqual(restoreWall(saved), saved);
});

test('an exporter, or anything else that this page does not know, rejects no snapshot', () => {
  const sent = {
    ...SNAPSHOT,
    gpus: [
      { ...GPU, exporters: ['dcgm', 'rocm'], more: 1 },
      { ...GPU, exporters: ['x'] }
    ]
  };
  assert.deepEqual(
    parseSnapshot(sent)?.gpus.map(({ exporters }) => exporters),
    [['dcgm'], []]
  );
});
