/** Messages of every shape: the views show what was sent, or n/a, and keep working. */

import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import './lab_stubs';
import type { LabIcon } from '@jupyterlab/ui-components';

import { alertText } from '../src/model/alerts/alertRules';
import { AlertTracker } from '../src/model/alerts/alertTracker';
import { serverAlerts } from '../src/model/alerts/serverAlerts';
import { MemoryGrowth } from '../src/model/cells/memoryGrowth';
import { parseReport } from '../src/model/cells/report';
import { totals, type CellRun } from '../src/model/cells/runTable';
import { clusterCsv } from '../src/views/cluster/clusterCsv';
import { clusterNotice, clusterSummary } from '../src/views/cluster/clusterMessages';
import { parseSnapshot } from '../src/wire/clusterSnapshot';
import { describeGpu } from '../src/views/cluster/gpuGrid';
import { level, quantity, QUANTITY_NAMES, summaryText } from '../src/views/cluster/quantities';
import { findFree, models, wallGroups } from '../src/views/cluster/wallRows';
import { DEFAULT_WALL } from '../src/views/cluster/wallState';
import { toCsv } from '../src/views/dashboard/csvExport';
import { gpusOfNode, gpusOfSample } from '../src/views/dashboard/dashboardGpus';
import { formatIn, METRICS, reasonOf, unitOf, valueOf } from '../src/model/metrics';
import { emptyLine, TimeSeries } from '../src/model/history/timeSeries';
import { mergedChecks } from '../src/views/doctor/doctorMessages';
import { doctorSummary } from '../src/views/doctor/doctorSummary';
import { ActiveKernel } from '../src/model/kernel/activeKernel';
import { parseDiagnosis, parseReply } from '../src/wire/kernelReply';
import { gpuHoursText, jobText } from '../src/model/memory/gpuHours';
import { HintFinder } from '../src/model/memory/hints';
import {
  holderName,
  holdersOf,
  holdingsOf,
  holdingsText,
  kernelPath,
  kernelsOf,
  kernelStateText,
  sharedReason,
  sortedHolders
} from '../src/model/memory/holders';
import { RunningHolders } from '../src/views/memory/runningHolders';
import {
  cellName,
  energyTitle,
  memoryTitle,
  outcomeMark,
  timeTitle,
  totalsText
} from '../src/views/panel/cellRow';
import {
  defaultText,
  deviceOption,
  mostFreeChosenText,
  mostFreeGpu,
  withCurrentFree
} from '../src/views/panel/deviceChoices';
import { orderNotes } from '../src/views/panel/deviceOrder';
import { memorySegments } from '../src/views/panel/memoryBar';
import {
  deviceNotes,
  kernelNotice,
  throttling,
  unavailability,
  unknownValues
} from '../src/views/panel/panelMessages';
import { switchesLog, switchesSummary } from '../src/views/panel/switchesSection';
import { statusText } from '../src/views/status/statusModel';
import { Connection } from '../src/model/stream/connection';
import { GpuMonitor } from '../src/model/stream/gpuMonitor';
import type { Curve } from '../src/model/stream/historyBuffer';
import { parseHistory, parseSample, parseStreamMessage } from '../src/wire/streamMessages';
import { expandedByDefault, memoryShares, StreamModel } from '../src/model/stream/streamModel';
import { memory, memoryOf, moment, powerOf, temperature, whole } from '../src/model/format';
import { DEFAULTS } from '../src/model/settings/settings';
import type { ClusterSnapshot, MemoryOwnership, MetricHistory, Sample } from '../src/wire/wire';
import {
  ACTIVITY,
  DIAGNOSIS,
  FakeClock,
  FakeKernel,
  FakeServer,
  GIB,
  gpu,
  gpuUsage,
  hello,
  history,
  holding,
  kernelGpu,
  kernelState,
  ok,
  reading,
  sample,
  serverKernel,
  settled,
  torchSwitch,
  trans,
  usage
} from './fakes';
import { report, reportedGpu } from './fakes_cells';
import { assertGiven, assertReadable, chosen, encoded, mutated, seeded } from './mutation';

/** Number of streams, of replies, and so on, that each test sends. */
const SEEDS = 200;
const NOW = 1_700_000_000;
const ALERTS = { ...DEFAULTS.alerts, throttle: true, memory: true, temperature: true };
const THRESHOLDS = { idleHours: 1 / 60, idleGib: 1, busyPercent: 30, busyMinutes: 5 };

/** Return a sample of three GPUs of which one has all values, one is lost and one is a MIG slice. */
function fullSample(time: number): Sample {
  const activity = { ...ACTIVITY, since: time - 1, until: time };
  const full = sample(time, [
    reading(0, { answered: time, measured: time, activity, throttle: ['too hot'] }),
    reading(1, { answered: time, lost_since: time - 60, utilization: null, memory_used: null, xid: 79 }),
    reading(2, { answered: time, missing: { fan_speed: 'No fan.' }, missing_ids: {}, ecc_uncorrected: 1 })
  ]);
  const slice = gpu(2, { index: 0, mig_index: 1, mig_parent: 'GPU-0', memory_total: 20 * GIB });
  return { ...full, gpus: [gpu(0), gpu(1, { unified_memory: true }), slice] };
}

function fullUsage(time: number): MemoryOwnership {
  const hours = {
    held_s: 3600,
    busy_s: 1800,
    memory_byte_s: 3600 * GIB,
    energy_j: 1e6,
    shared: true,
    price: 2.5,
    currency: 'EUR'
  };
  const idle = { since: time - 7200, memory: 3 * GIB, complete: false };
  return {
    ...usage(
      [
        serverKernel('kernel-1', { gpu_hours: hours, idle_since: time - 7200, idle_holder: idle }),
        serverKernel('kernel-2', { state: 'busy', idle_since: null, kind: 'console', path: null })
      ],
      [
        gpuUsage(
          0,
          [
            holding(3, { kernel: 'kernel-1' }),
            holding(2, { kernel: 'kernel-2', source: 'torch' }),
            holding(null, { pid: 8, user: 'bob', program: 'python -m x' })
          ],
          { unattributed: null, reason: 'Unknown.', means: [{ seconds: 300, utilization: 4 }] }
        ),
        gpuUsage(1, []),
        gpuUsage(2, [holding(1, { terminal: '1' })])
      ],
      time
    ),
    job: { id: '12', gpus: 2, end: time + 600, warning_s: 900 }
  };
}

/** Return the messages of a stream, in the order in which a server sends them. */
function messages(): unknown[] {
  const full = fullSample(NOW);
  return [
    hello({ sample: full, history: history([NOW - 2, NOW - 1, NOW]), documentation: 'https://example.org' }),
    fullUsage(NOW),
    { type: 'changes', time: NOW + 1, readings: [{ utilization: 17, missing: {} }, {}, { power_w: null }] },
    { type: 'sample', sample: fullSample(NOW + 2) },
    { type: 'changes', time: NOW + 3, readings: [{ memory_used: 17 * GIB }, { lost_since: null }, {}] },
    fullUsage(NOW + 4)
  ];
}

/** A page with all views of the stream. */
class Page {
  readonly server = new FakeServer();
  readonly clock = new FakeClock();
  readonly model = new StreamModel();
  private readonly kernels = new ActiveKernel(this.clock);
  private readonly kernel = new FakeKernel();
  private readonly connection = new Connection(this.server, this.clock, () => 1);
  private readonly monitor = new GpuMonitor(this.model, this.kernels, this.connection, this.clock);
  private readonly alerts = new AlertTracker({ load: () => null, save: () => undefined }, ALERTS);
  private readonly hints = new HintFinder();
  private readonly series = new TimeSeries(64, METRICS);
  private readonly running = new RunningHolders(
    trans,
    this.monitor,
    { goTo: () => undefined, confirmShutDown: () => undefined, shutDownNow: () => undefined },
    () => ({ name: 'icon' }) as unknown as LabIcon,
    () => undefined
  );

  constructor() {
    this.model.seconds = 60;
    this.monitor.changed.connect(() => {
      this.readViews();
    });
    this.connection.received.connect((_, message) => {
      if (message.type === 'sample') {
        this.series.add(message.sample, message.sample.time - 60);
      }
    });
    this.monitor.setPanelVisible(true);
  }

  /** Set the kernel's reply to all further requests, and query the kernel. */
  async answer(reply: unknown): Promise<void> {
    this.kernel.reply = reply;
    this.kernels.setActive({ name: 'a.ipynb', kernel: this.kernel });
    this.kernels.refresh();
    await settled();
    this.readViews();
  }

  /** Deliver the text of a message. */
  receive(text: string): void {
    const { socket } = this.server;
    socket.onmessage?.call(socket as unknown as WebSocket, { data: text } as MessageEvent);
    this.readViews();
  }

  close(): void {
    this.monitor.setPanelVisible(false);
  }

  /** Create the texts of all views. */
  readViews(): void {
    this.readKernel();
    const { model, kernels } = this;
    const { sample, usage: owners } = model;
    assertReadable(
      statusText(trans, kernels.view, sample, false)?.text,
      statusText(trans, kernels.view, sample, false)?.title,
      sharedReason(owners),
      ...(owners?.kernels ?? []).flatMap(({ gpu_hours: hours }) =>
        hours === null ? [] : [gpuHoursText(trans, hours)]
      ),
      ...(owners?.job ? [jobText(trans, owners.job, NOW)] : []),
      ...this.running.running().flatMap(item => [orEmpty(item.label()), orEmpty(item.detail?.())])
    );
    if (sample === null) {
      return;
    }
    this.readSample(sample);
    for (const alert of this.alerts.take(sample, 1, true)) {
      assertReadable(alertText(trans, alert, sample.time));
    }
    if (owners !== null) {
      assertReadable(...serverAlerts(trans, owners, sample.time).map(({ text }) => text));
      for (const kernel of owners.kernels) {
        assertReadable(
          kernelPath(trans, kernel),
          kernelStateText(trans, kernel, sample.time),
          holdingsText(trans, holdingsOf(model, kernel.id))
        );
      }
      for (const hint of this.hints.find(owners, sample, 1, THRESHOLDS)) {
        assertReadable(hint.kind === 'idle' ? memory(hint.memory) : whole(hint.utilization));
      }
    }
  }

  private readSample(sample: Sample): void {
    const { model, kernels } = this;
    const gpus = model.gpus(kernels.state, 'kernel-1');
    expandedByDefault(gpus, 'cuda:0');
    assert.ok(gpus.every(({ gpu, reading }) => gpu.uuid === reading.uuid));
    gpusOfSample(trans, sample);
    for (const now of gpus) {
      const { gpu, reading, usage: owners } = now;
      const shares = memoryShares(now);
      const holders = owners === null ? [] : holdersOf(owners, kernelsOf(model.usage), 'kernel-1');
      const sorted = sortedHolders(holders, []);
      assert.ok(memorySegments(shares, sorted).every(({ memory }) => memory > 0));
      assertReadable(
        memoryOf(trans, shares.used, gpu.memory_total),
        memory(shares.here),
        memory(shares.other),
        memory(shares.free),
        powerOf(trans, reading.power_w, reading.power_limit_w),
        temperature(reading.temperature_c),
        unknownValues(trans, reading),
        ...(unavailability(trans, reading, sample.time) ?? []),
        ...throttling(trans, reading).warnings,
        ...sorted.flatMap(holder => holderName(trans, holder, kernelsOf(model.usage).values())),
        ...METRICS.flatMap(name => [
          formatIn(valueOf(reading, name), unitOf(name, 100)),
          reasonOf(reading, name)
        ])
      );
      const curve: Curve = [[], [], []];
      model.history.curve(gpu.uuid, 0, gpu.memory_total, model.gap, curve);
      assert.ok(curve.flat().every(value => value === null || Number.isFinite(value)));
      const axis = { times: [], indices: [] };
      const line = emptyLine();
      this.series.axis(0, 1, axis);
      for (const name of METRICS) {
        this.series.line(gpu.uuid, name, axis, line);
        assert.ok(line.mean.every(value => value === null || Number.isFinite(value)));
      }
    }
  }

  private readKernel(): void {
    const { kernels, model } = this;
    const { view, state } = kernels;
    assertReadable(
      kernelNotice(trans, view, model.server)?.text,
      deviceNotes(trans, view, model.server?.version ?? null, null),
      switchesSummary(trans, view),
      switchesLog(trans, view, null),
      defaultText(trans, state?.device ?? null)
    );
    const data = {
      gpus: model.gpus(null, 'kernel-1'),
      kernels: kernelsOf(model.usage),
      time: model.sample?.time ?? NaN
    };
    const choices = withCurrentFree(state?.choices ?? [], data.gpus, kernels.age);
    for (const choice of choices) {
      const { text, title } = deviceOption(trans, choice, data);
      assertReadable(text, title);
    }
    const mostFree = mostFreeGpu(choices, null);
    assertReadable(
      mostFree === null ? '' : mostFreeChosenText(trans, mostFree),
      state === null ? '' : orderNotes(state.order)
    );
  }
}

function orEmpty(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function fullReply(): unknown {
  const choice = {
    device: 'cuda:0',
    uuid: 'GPU-0',
    index: 0,
    name: 'NVIDIA H200',
    compute_capability: '9.0',
    memory_total: 140 * GIB,
    memory_free: 71 * GIB,
    unified_memory: true,
    holders: ['this notebook', 'python'],
    candidates: []
  };
  const candidate = {
    uuid: 'GPU-1',
    index: 1,
    name: 'NVIDIA L4',
    compute_capability: null,
    memory_total: null,
    memory_free: 3,
    unified_memory: false
  };
  return ok({
    choices: [
      choice,
      { ...choice, device: 'cuda:1', uuid: null, index: null, name: null, candidates: [candidate] }
    ],
    gpus: [kernelGpu(0), kernelGpu(1, { process_memory: null })],
    switches: [torchSwitch(), torchSwitch({ name: 'b', pending: 'on', statement: 'b = 1', note: 'Why.' })],
    order: { source: 'cuda', notes: ['Why.'], note_ids: [{ id: 'why', params: { visible: null } }] }
  });
}

test('the unchanged messages are read as they were sent', () => {
  for (const message of messages()) {
    assert.deepEqual(parseStreamMessage(JSON.stringify(message)), message);
  }
  assert.deepEqual(parseSample(fullSample(NOW)), fullSample(NOW));
  assert.deepEqual(parseReply(fullReply()), fullReply());
  assert.deepEqual(parseSnapshot(SNAPSHOT), SNAPSHOT);
  assert.deepEqual(parseHistory(METRIC_HISTORY), METRIC_HISTORY);
});

test('stream messages of every shape break no view, and only what was sent is shown', async () => {
  let read = 0;
  for (let seed = 0; seed < SEEDS; seed++) {
    const random = seeded(seed);
    const page = new Page();
    if (random() < 0.5) {
      await page.answer(random() < 0.5 ? fullReply() : mutated(random, fullReply()));
    }
    const sent = messages();
    if (random() < 0.2) {
      sent.splice(1, 3, ...sent.slice(1, 4).reverse()); // The order changes too.
    }
    for (const [place, message] of sent.entries()) {
      const changed = random() < (place === 0 ? 0.2 : 0.5) ? mutated(random, message) : message;
      const text = encoded(random, changed);
      const parsed = parseStreamMessage(text);
      if (parsed !== null) {
        read++;
        assertGiven(parsed, JSON.parse(text));
      }
      page.receive(text);
    }
    await page.clock.pass(20_000);
    page.close();
    assert.equal(page.clock.running, 0, `seed ${String(seed)}`);
  }
  // Most messages are read in part: one bad value does not hide the others.
  assert.ok(read > 0.7 * 6 * SEEDS, String(read));
  assert.equal(({} as { polluted?: unknown }).polluted, undefined);
});

test('kernel replies of every shape break no view, and only what was sent is shown', async () => {
  for (let seed = 0; seed < SEEDS; seed++) {
    const random = seeded(seed);
    const page = new Page();
    page.receive(JSON.stringify(messages()[0]));
    const growth = new MemoryGrowth();
    for (const reply of [
      fullReply(),
      { status: 'error', reason: 'No.', state: kernelState() },
      { status: 'examined', doctor: DIAGNOSIS, texts: { a: 'b' }, state: null }
    ]) {
      const sent = mutated(random, reply);
      const parsed = parseReply(sent);
      if (parsed.status === 'incompatible') {
        assert.ok(parsed.version === null || parsed.version.length < 20_000);
      } else {
        assertGiven(parsed, sent);
        growth.setState(parsed.state, []);
        growth.begin();
        assertReadable(memory(growth.bytes));
      }
      await page.answer(sent);
    }
    const diagnosis = parseDiagnosis(mutated(random, { ...DIAGNOSIS, texts: {} }));
    mergedChecks(diagnosis, null);
    if (diagnosis !== null) {
      assertReadable(doctorSummary(trans, [{ kind: 'done', diagnosis }])[1]);
    }
    page.close();
  }
});

const SNAPSHOT: ClusterSnapshot = {
  time: NOW,
  interval_s: 5,
  problem: 'A node is down.',
  nodes: [
    { name: 'a1', up: true, last_seen: NOW },
    { name: 'a2', up: false, last_seen: null }
  ],
  gpus: [0, 1].map(index => ({
    uuid: `GPU-${String(index)}`,
    node: 'a1',
    index,
    model: 'NVIDIA H200',
    mig: null,
    exporters: ['gpuwidget', 'dcgm'],
    utilization: 17,
    memory_used: 3 * GIB,
    memory_total: 140 * GIB,
    power_w: 300,
    power_limit_w: 700,
    temperature_c: 40,
    xid: 79,
    ecc_uncorrected: 2,
    lost: false,
    idle_s: 600,
    users: ['ada'],
    notebooks: ['a.ipynb'],
    job: '12'
  }))
};

test('snapshots of the cluster of every shape break no view of the wall', () => {
  for (let seed = 0; seed < SEEDS; seed++) {
    const random = seeded(seed);
    const sent = mutated(random, SNAPSHOT);
    const snapshot = parseSnapshot(sent);
    if (snapshot === null) {
      continue;
    }
    assertGiven(snapshot, sent);
    const search = { count: 1, model: '' };
    const grouping = chosen(random, ['node', 'model', 'user', 'notebook', 'job'] as const);
    const groups = wallGroups(snapshot, { ...DEFAULT_WALL, grouping, search, filter: 'a' });
    findFree(snapshot, search);
    models(snapshot);
    clusterNotice(trans, { kind: 'stale', value: snapshot, reason: { failure: null, problem: null } });
    assertReadable(
      clusterCsv(snapshot.time ?? 0, groups),
      clusterSummary(trans, snapshot, true),
      ...snapshot.gpus.map(each => describeGpu(trans, each, { name: 'a', up: true, last_seen: null }, NOW)),
      ...gpusOfNode(trans, snapshot, 'a1').map(({ number }) => number)
    );
    for (const name of QUANTITY_NAMES) {
      const shown = quantity(name);
      assertReadable(
        summaryText(trans, shown, snapshot.gpus),
        ...snapshot.gpus.map(each => shown.text(trans, each))
      );
      assert.ok(snapshot.gpus.every(each => (level(shown, shown.value(each)) ?? 0) < 6));
    }
  }
});

const METRIC_HISTORY: MetricHistory = {
  since: NOW - 10,
  until: NOW,
  step_s: 1,
  newest: NOW,
  t: [NOW - 3, NOW - 2, NOW - 1],
  samples: [5, null, 5],
  gpus: [
    {
      uuid: 'GPU-0',
      metrics: {
        utilization: { mean: [1, null, 3], min: [0, null, 2], max: [2, null, 4] },
        temperature_c: { mean: [-5, 40, 41], min: null, max: null }
      }
    }
  ]
};

test('a history of every shape breaks neither the charts nor the CSV file', () => {
  for (let seed = 0; seed < SEEDS; seed++) {
    const sent = mutated(seeded(seed), METRIC_HISTORY);
    const found = parseHistory(sent);
    if (found === null) {
      continue;
    }
    assertGiven(found, sent);
    const series = new TimeSeries(64, METRICS);
    series.restart(found);
    series.add(fullSample(NOW + 1), NOW - 60);
    const axis = { times: [], indices: [] };
    const line = emptyLine();
    series.axis(0, 1, axis);
    series.line('GPU-0', 'utilization', axis, line);
    assert.ok([...axis.times, ...line.mean].every(value => value === null || Number.isFinite(value)));
    const table = { uuid: 'GPU-0', name: 'H200', number: '0', memoryTotal: null, powerLimit: null };
    assertReadable(toCsv(trans, found, [table], METRICS));
  }
});

test('single samples of every shape are read like those of the stream', () => {
  for (let seed = 0; seed < SEEDS; seed++) {
    const sent = mutated(seeded(seed), fullSample(NOW));
    assertGiven(parseSample(sent), sent);
  }
});

test('reports of every shape break no row of the list of cells', () => {
  for (let seed = 0; seed < 2 * SEEDS; seed++) {
    const sent = mutated(
      seeded(seed),
      report(3, { gpus: [reportedGpu(0), reportedGpu(1, { missing: { energy_j: 'Too short.' } })] })
    );
    const found = parseReport(sent);
    if (found === null) {
      continue;
    }
    const run: CellRun = { key: '', cellId: 'a', code: '', trusted: false, report: found };
    assertReadable(
      cellName(trans, run),
      outcomeMark(trans, found)?.[1],
      memoryTitle(trans, found),
      timeTitle(trans, found, NOW),
      energyTitle(trans, found),
      totalsText(trans, 1, totals([run]), false),
      found.started === null ? '' : moment(found.started, NOW)
    );
    assert.ok(found.gpus.length <= 64);
  }
});
