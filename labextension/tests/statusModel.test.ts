import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { Signal } from '@lumino/signaling';

import { ActiveKernel } from '../src/model/kernel/activeKernel';
import type { KernelView } from '../src/model/kernel/kernels';
import {
  ABSENT_MS,
  NewestSample,
  RETRY_MS,
  SAMPLE_POLL_MS,
  type SampleStream
} from '../src/model/stream/newestSample';
import type { FailureKind, Result } from '../src/model/server/result';
import { statusText, StatusModel, type Meter } from '../src/views/status/statusModel';
import { StreamModel } from '../src/model/stream/streamModel';
import type { KernelState, Reading, Sample } from '../src/wire/wire';
import {
  failed,
  FakeClock,
  FakeKernel,
  GIB,
  gpu,
  kernelGpu,
  kernelState,
  liveData,
  ok,
  reading,
  sample,
  staleData,
  trans
} from './fakes';

function view(state: Partial<KernelState>, changes: Partial<KernelView> = {}): KernelView {
  return {
    notebook: 'train.ipynb',
    kernel: null,
    condition: { kind: 'ready', state: kernelState(state) },
    busy: false,
    restarted: false,
    silentFor: null,
    rejection: null,
    pending: [],
    ...changes
  };
}

function device(chosen: string | null, present: string | null = 'cpu'): KernelState['device'] {
  return { chosen, new_tensors: true, pending: false, present, note: null };
}

const NOTHING = { process_memory: 0, context: false };

function text(
  state: Partial<KernelState>,
  changes: Partial<KernelView> = {},
  newest: Sample | null = null
): string | undefined {
  return statusText(trans, view(state, changes), newest, false)?.text;
}

test('the text is the default device and the memory held there', () => {
  const gpus = [kernelGpu(0, { process_memory: 40 * GIB }), kernelGpu(1, { process_memory: 14.2 * GIB })];
  assert.equal(text({ gpus, device: device('cuda:1') }), 'Default: cuda:1 · 14.2 GiB GPU memory');
  assert.equal(text({ gpus, device: device(null, 'cuda:0') }), 'Default: cuda:0 · 40.0 GiB GPU memory');
});

test('if the default device is no GPU, the text is the memory held on all GPUs', () => {
  const [first, second] = [kernelGpu(0), kernelGpu(1, { process_memory: GIB })];
  const none = [kernelGpu(0, NOTHING)];
  assert.equal(
    text({ gpus: [first, kernelGpu(1, NOTHING)], device: device(null) }),
    'Default: cpu · 14.0 GiB GPU memory'
  );
  assert.equal(text({ gpus: [first, second], device: device('cpu') }), 'Default: cpu · 15.0 GiB GPU memory');
  assert.equal(text({ gpus: none, device: device(null) }), 'Default: cpu · 0 GiB GPU memory');
  assert.equal(text({ gpus: none, device: device(null, null) }), '0 GiB GPU memory');
});

test('memory in a MIG slice, which its parent repeats, counts once', () => {
  const gpus = [kernelGpu(0), kernelGpu(1)];
  const newest = {
    ...sample(1, [reading(0), reading(1)]),
    gpus: [gpu(0), gpu(1, { mig_index: 0, mig_parent: 'GPU-0' })]
  };
  assert.match(text({ gpus, device: device(null) }, {}, newest) ?? '', /^Default: cpu · 14\.0 GiB/);
});

test('the utilization is that of the notebook’s GPUs, otherwise the mean of all GPUs', () => {
  const newest = sample(1, [reading(0, { utilization: 97 }), reading(1, { utilization: 10 })]);
  const gpus = [kernelGpu(0), kernelGpu(1, NOTHING)];
  const none = [kernelGpu(0, NOTHING), kernelGpu(1, NOTHING)];
  assert.equal(
    text({ gpus, device: device('cuda:1') }, {}, newest),
    'Default: cuda:1 · 0 GiB GPU memory · util 10 %'
  );
  assert.equal(
    text({ gpus, device: device('cpu') }, {}, newest),
    'Default: cpu · 14.0 GiB GPU memory · util 97 %'
  );
  assert.equal(
    text({ gpus: none, device: device('cpu') }, {}, newest),
    'Default: cpu · 0 GiB GPU memory · mean util 54 %'
  );
});

test('before gpuwidget is loaded, the text is the memory and utilization of the server’s GPUs', () => {
  const one = sample(1, [reading(0, { utilization: 7 })]);
  assert.equal(text({}, NOT_LOADED, one), 'GPU memory \u200735 of 140 GiB · util \u20077 %');
  const lost = reading(1, { utilization: 90, lost_since: 900, memory_used: 0 });
  const two = sample(1, [reading(0, { utilization: 40 }), lost]);
  const status = statusText(trans, view({}, NOT_LOADED), two, false);
  assert.equal(status?.text, '2 GPUs: memory ≥ 35 GiB, 1 lost · mean util 40 %');
  assert.deepEqual(status.title.split('\n'), [
    'All GPUs of this server',
    'GPU 0 H200: utilization 40 %, \u200735 of 140 GiB used',
    'GPU 1 H200: lost'
  ]);
  const unknown = sample(1, [reading(0, { utilization: null, memory_used: null })]);
  assert.equal(text({}, NOT_LOADED, unknown), 'GPU memory n/a · util n/a');
});

const NOT_LOADED = { condition: { kind: 'not-loaded' } } as const;

/** Return the meter on a server with these readings, and without a kernel. */
function meter(newest: Sample): Meter | undefined {
  return statusText(trans, view({}, NOT_LOADED), newest, false)?.meter;
}

test('the meter has the utilization and the memory of the notebook’s GPU, otherwise of all GPUs', () => {
  const newest = sample(1, [
    reading(0, { utilization: 97 }),
    reading(1, { utilization: 10, memory_used: 0 })
  ]);
  assert.deepEqual(meter(newest), {
    utilization: 53.5,
    percent: 12.5,
    level: '',
    memory: '\u200735 of 280 GiB'
  });
  const gpus = [kernelGpu(0), kernelGpu(1, NOTHING)];
  const own = statusText(trans, view({ gpus, device: device('cuda:0') }), newest, false);
  assert.deepEqual(own?.meter, { utilization: 97, percent: 25, level: '', memory: '\u200735 of 140 GiB' });
});

test('the meter goes on if a GPU is lost, and says that its memory is not all', () => {
  const lost = reading(1, { lost_since: 900, memory_used: null, utilization: null });
  const two = sample(1, [reading(0, { utilization: 40 }), lost]);
  const expected = { utilization: 40, percent: 25, level: '', memory: '≥ 35 GiB, 1 lost' };
  assert.deepEqual(meter(two), expected);
  // A GPU that was lost before it was first opened has no size either.
  assert.deepEqual(meter({ ...two, gpus: [gpu(0), gpu(1, { memory_total: null })] }), expected);
  assert.deepEqual(meter(sample(1, [{ ...lost, uuid: 'GPU-0' }])), {
    utilization: null,
    percent: null,
    level: '',
    memory: 'n/a, 1 lost'
  });
});

for (const [percent, level] of [
  [89.9, ''],
  [90, 'high'],
  [96.9, 'high'],
  [97, 'full']
] as const) {
  test(`memory of ${String(percent)} % has the level '${level}', also if it is only one GPU's`, () => {
    const full = reading(0, { memory_used: Math.ceil((percent / 100) * 140 * GIB) });
    assert.equal(meter(sample(1, [full, reading(1, { memory_used: 0 })]))?.level, level);
  });
}

test('memory in a MIG slice counts once', () => {
  const slice = gpu(1, { index: 0, mig_index: 0, mig_parent: 'GPU-0', memory_total: 20 * GIB });
  const newest = { ...sample(1, [reading(0), reading(1, { memory_used: GIB, utilization: null })]) };
  const mig = { ...newest, gpus: [gpu(0), slice] };
  assert.equal(
    text({}, { condition: { kind: 'no-notebook' } }, mig),
    '1 slice: memory 1.0 of 20 GiB · mean util 50 %'
  );
  const title = statusText(trans, view({}, NOT_LOADED), mig, false)?.title ?? '';
  assert.match(title, /^GPU 0 H200: .*\nSlice 0:0 H200: utilization n\/a, 1.0 of 20 GiB used$/m);
});

test('a recording is labeled', () => {
  const live = sample(1);
  const recorded = { ...live, origin: { ...live.origin, recording: 'Recording of 4 × NVIDIA H200' } };
  const status = statusText(trans, view({}, { condition: { kind: 'not-loaded' } }), recorded, false);
  assert.equal(status?.text, 'GPU memory \u200735 of 140 GiB · util 50 % (recording)');
  assert.equal(status.meter.memory, '\u200735 of 140 GiB (recording)');
  assert.match(status.title, /Recording of 4 × NVIDIA H200$/);
});

test('unknown memory is n/a with its reason', () => {
  const gpu = kernelGpu(0, { process_memory: null, torch_reserved: null, context: false });
  const unknown = { gpus: [gpu], device: device(null) };
  const status = statusText(trans, view(unknown), null, false);
  assert.equal(status?.text, 'Default: cpu · n/a GPU memory');
  assert.match(status.title, /does not report this notebook’s share of the memory$/);
});

test('the memory that PyTorch reports is used and labeled if the driver has none, as in a container', () => {
  const gpus = [0, 1].map(index => kernelGpu(index, { process_memory: null }));
  const status = statusText(trans, view({ gpus, device: device('cuda:1') }), null, false);
  assert.equal(status?.text, 'Default: cuda:1 · 13.0 GiB (torch) GPU memory');
  assert.match(status.title, /cuda:0: 13.0 GiB \(torch\)\n.*\n.*without the CUDA context$/);
  assert.equal(text({ gpus, device: device(null) }), 'Default: cpu · 26.0 GiB (torch) GPU memory');
});

test('the memory of a kernel that does not reply or is not queried is unknown', () => {
  const gpus = [kernelGpu(0)];
  const silent = statusText(trans, view({ gpus }, { silentFor: 12 }), null, false);
  assert.equal(silent?.text, 'Default: cpu · n/a GPU memory');
  assert.match(silent.title, /has not replied for 12 s/);
  const stale = statusText(trans, view({ gpus }), null, true);
  assert.equal(stale?.text, 'Default: cpu · n/a GPU memory');
  assert.match(stale.title, /queried again when the cell has ended/);
});

test('there is no text if neither the kernel nor the server reports a GPU', () => {
  assert.equal(text({ gpus: [] }), undefined);
  assert.equal(text({}, { condition: { kind: 'no-notebook' } }), undefined);
  assert.equal(text({}, { condition: { kind: 'not-loaded' } }, sample(1, [])), undefined);
});

/** Return a monitor without a stream. */
function fakeMonitor(): { data: SampleStream['data']; readonly changed: Signal<object, void> } {
  return {
    changed: new Signal<object, void>({}),
    data: { kind: 'none', reason: { link: 'off', seconds: null, hasSample: false } }
  };
}

/**
 * Return the status item's model for a notebook that uses a GPU. The kernel is not queried while a cell runs.
 */
async function setUp(): Promise<{
  model: StatusModel;
  kernels: ActiveKernel;
  kernel: FakeKernel;
  clock: FakeClock;
}> {
  const clock = new FakeClock();
  const kernels = new ActiveKernel(clock);
  const kernel = new FakeKernel();
  kernel.reply = ok({ gpus: [kernelGpu(0)], device: device('cuda:0') });
  kernels.setMentionsGpuwidget(kernel);
  kernel.activity.showsRequests = true;
  const server = { sample: () => Promise.resolve({ kind: 'ok', value: sample(1) } as const) };
  const newest = new NewestSample(server, fakeMonitor(), clock);
  const model = new StatusModel(trans, kernels, newest, clock);
  model.setWanted(true, true);
  kernels.setActive({ name: 'train.ipynb', kernel });
  await clock.pass(0);
  return { model, kernels, kernel, clock };
}

test('the item is shown and hidden by the settings', async () => {
  const { model } = await setUp();
  let changes = 0;
  model.activeChanged.connect(() => changes++);
  const text = (): string | undefined => model.text?.text;
  model.setWanted(false, true);
  assert.equal(text(), undefined);
  model.setWanted(true, true);
  assert.equal(text(), 'Default: cuda:0 · 14.0 GiB GPU memory · util 50 %');
  assert.equal(changes, 2);
});

test('the sparkline has a point of every five seconds, over two minutes', async () => {
  const clock = new FakeClock();
  let time = 0;
  let others: Reading[] = [];
  const changed = new Signal<object, void>({});
  const newest = {
    changed,
    get sample(): Sample {
      return sample(time, [reading(0, { utilization: time % 100 })].concat(others));
    },
    setWanted: () => undefined,
    dispose: () => undefined
  };
  const model = new StatusModel(trans, new ActiveKernel(clock), newest as unknown as NewestSample, clock);
  model.setWanted(true, true);
  for (time = 1; time <= 200; time++) {
    changed.emit();
  }
  await clock.pass(0);
  assert.equal(model.history.length, 24);
  assert.deepEqual(
    [model.history[0], model.history.at(-1)],
    [
      [85, 85],
      [200, 0]
    ]
  );
  others = [reading(1, { utilization: 51 })];
  changed.emit(); // The mean of other GPUs begins a new sparkline.
  assert.deepEqual(model.history, [[201, 26]]);
  model.dispose();
});

test('a disposed item has no timer and no connection', async () => {
  const { model, kernels, kernel, clock } = await setUp();
  kernel.activity.set('busy');
  assert.equal(clock.running, 2);
  model.dispose();
  assert.equal(clock.running, 0);
  let updates = 0;
  model.changed.connect(() => updates++);
  await clock.pass(60_000);
  kernels.setActive(null);
  assert.equal(updates, 0);
});

/** Return the sample of the status item on a server that sends these samples or failures, one after the other. */
function requests(replies: (Sample | FailureKind)[]): {
  newest: NewestSample;
  monitor: ReturnType<typeof fakeMonitor>;
  clock: FakeClock;
  sent: () => number;
} {
  let sent = 0;
  const server = {
    sample: (): Promise<Result<Sample>> => {
      const reply = replies[sent] ?? 'absent';
      sent++;
      return Promise.resolve(typeof reply === 'string' ? failed(reply) : { kind: 'ok', value: reply });
    }
  };
  const [clock, monitor] = [new FakeClock(), fakeMonitor()];
  return { newest: new NewestSample(server, monitor, clock), monitor, clock, sent: () => sent };
}

test('while no stream is open, a sample is requested every five seconds, and none while it is not shown', async () => {
  const { newest, clock, sent } = requests([sample(1), sample(2), sample(3)]);
  newest.setWanted(true);
  await clock.pass(SAMPLE_POLL_MS);
  assert.deepEqual([sent(), newest.sample?.time], [2, 2]);
  newest.setWanted(false);
  assert.equal(clock.running, 0);
  newest.setWanted(true);
  await clock.pass(0);
  assert.equal(newest.sample?.time, 3);
});

test('an open stream replaces the requests', async () => {
  const { newest, monitor, clock, sent } = requests([sample(1)]);
  newest.setWanted(true);
  await clock.pass(0);
  const model = new StreamModel();
  model.take({ type: 'sample', sample: sample(9) });
  monitor.data = liveData(model);
  monitor.changed.emit();
  await clock.pass(3 * SAMPLE_POLL_MS);
  assert.deepEqual([sent(), newest.sample?.time], [1, 9]);
});

test('after a failure there is no sample until a later request succeeds', async () => {
  const { newest, clock, sent } = requests([sample(1), 'failed', sample(3)]);
  newest.setWanted(true);
  await clock.pass(SAMPLE_POLL_MS);
  assert.deepEqual([sent(), newest.sample], [2, null]);
  await clock.pass(RETRY_MS);
  assert.equal(newest.sample?.time, 3);
});

test('a server without gpuwidget is asked again every five minutes', async () => {
  const { newest, clock, sent } = requests([sample(1), 'absent', sample(3)]);
  newest.setWanted(true);
  await clock.pass(SAMPLE_POLL_MS);
  assert.deepEqual([sent(), newest.sample], [2, null]);
  await clock.pass(ABSENT_MS);
  assert.deepEqual([sent(), newest.sample?.time], [3, 3]);
});

test('after the panel was closed, a new sample is requested at once, also of a server that had none before', async () => {
  const { newest, monitor, clock, sent } = requests(['absent', sample(10), 'failed']);
  newest.setWanted(true);
  await clock.pass(0);
  const model = new StreamModel();
  model.take({ type: 'sample', sample: sample(9) });
  monitor.data = liveData(model);
  monitor.changed.emit();
  assert.deepEqual([sent(), newest.sample?.time], [1, 9]);
  monitor.data = staleData(model);
  monitor.changed.emit();
  await clock.pass(0);
  assert.deepEqual([sent(), newest.sample?.time], [2, 10]);
  await clock.pass(SAMPLE_POLL_MS);
  assert.deepEqual([sent(), newest.sample], [3, null]);
});

test('a request that is not wanted any more is aborted, and its late result is discarded', async () => {
  const [clock, monitor] = [new FakeClock(), fakeMonitor()];
  const signals: AbortSignal[] = [];
  let reply: (result: Result<Sample>) => void = () => undefined;
  const server = {
    sample: (signal: AbortSignal): Promise<Result<Sample>> => {
      signals.push(signal);
      return new Promise(resolve => {
        reply = resolve;
      });
    }
  };
  const newest = new NewestSample(server, monitor, clock);
  newest.setWanted(true);
  await clock.pass(0);
  newest.setWanted(false);
  assert.deepEqual([signals[0]?.aborted, clock.running], [true, 0]);
  reply({ kind: 'ok', value: sample(1) });
  await clock.pass(60_000);
  assert.deepEqual([newest.sample, signals.length, clock.running], [null, 1, 0]);
});

test('a page that was hidden for a long time does not show the old sample', async () => {
  const { newest, clock } = requests([sample(1), sample(2), sample(3)]);
  const time = (): number | undefined => newest.sample?.time;
  newest.setWanted(true);
  await clock.pass(0);
  newest.setWanted(false);
  await clock.pass(RETRY_MS);
  newest.setWanted(true);
  assert.equal(time(), 1);
  await clock.pass(0);
  newest.setWanted(false);
  await clock.pass(RETRY_MS + 1);
  newest.setWanted(true);
  assert.equal(time(), undefined);
  await clock.pass(0);
  assert.equal(time(), 3);
});
