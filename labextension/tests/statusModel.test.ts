import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { ActiveKernel, type KernelView } from '../src/kernel/activeKernel';
import { statusText, StatusModel } from '../src/status/statusModel';
import type { KernelState } from '../src/wire';
import { FakeClock, FakeKernel, GIB, kernelGpu, kernelState, ok, settled, trans } from './fakes';

function view(state: Partial<KernelState>, changes: Partial<KernelView> = {}): KernelView {
  return {
    notebook: 'train.ipynb',
    kernel: null,
    condition: { kind: 'ready', state: kernelState(state) },
    busy: false,
    restarted: false,
    silentFor: null,
    rejection: null,
    requested: { device: undefined, watching: undefined, switches: new Map() },
    ...changes
  };
}

function device(chosen: string | null, present: string | null = 'cpu'): KernelState['device'] {
  return { chosen, new_tensors: true, pending: false, present, note: null };
}

const NOTHING = { process_memory: 0, context: false };

function text(state: Partial<KernelState>, changes: Partial<KernelView> = {}): string | undefined {
  return statusText(trans, view(state, changes), false)?.text;
}

test('the text is the default device and the memory held there', () => {
  const gpus = [kernelGpu(0, { process_memory: 40 * GIB }), kernelGpu(1, { process_memory: 14.2 * GIB })];
  assert.equal(text({ gpus, device: device('cuda:1') }), 'cuda:1 · 14.2 GiB');
  assert.equal(text({ gpus, device: device(null, 'cuda:0') }), 'cuda:0 · 40.0 GiB');
});

test('if the default device is no GPU, the text is the memory held on all GPUs', () => {
  const [first, second] = [kernelGpu(0), kernelGpu(1, { process_memory: GIB })];
  assert.equal(text({ gpus: [first, kernelGpu(1, NOTHING)], device: device(null) }), 'cuda:0 · 14.0 GiB');
  assert.equal(text({ gpus: [first, second], device: device('cpu') }), '2 GPUs · 15.0 GiB');
  assert.equal(text({ gpus: [kernelGpu(0, NOTHING)], device: device(null) }), 'cpu · 0 MiB');
  assert.equal(text({ gpus: [kernelGpu(0, NOTHING)], device: device(null, null) }), 'GPU · 0 MiB');
});

test('unknown memory is n/a with its reason', () => {
  const gpu = kernelGpu(0, { process_memory: null, torch_reserved: null, context: false });
  const unknown = { gpus: [gpu], device: device(null) };
  const status = statusText(trans, view(unknown), false);
  assert.equal(status?.text, 'cpu · n/a');
  assert.match(status.title, /is not known$/);
});

test('torch’s own number is used and labelled if the driver has none, as in a container', () => {
  const gpus = [0, 1].map(index => kernelGpu(index, { process_memory: null }));
  const status = statusText(trans, view({ gpus, device: device('cuda:1') }), false);
  assert.equal(status?.text, 'cuda:1 · 13.0 GiB (torch)');
  assert.match(status.title, /cuda:0: 13.0 GiB \(torch\)\n.*\n.*without the CUDA context$/);
  assert.equal(text({ gpus, device: device(null) }), '2 GPUs · 26.0 GiB (torch)');
});

test('the memory of a kernel that does not reply or is not queried is unknown', () => {
  const gpus = [kernelGpu(0)];
  const silent = statusText(trans, view({ gpus }, { silentFor: 12 }), false);
  assert.equal(silent?.text, 'cuda:0 · n/a');
  assert.match(silent.title, /has not answered for 12 s/);
  const stale = statusText(trans, view({ gpus }), true);
  assert.equal(stale?.text, 'cuda:0 · n/a');
  assert.match(stale.title, /asked again when it has ended/);
});

test('there is no text without a notebook, a GPU or gpuwidget in the kernel', () => {
  assert.equal(text({ gpus: [] }), undefined);
  assert.equal(text({}, { condition: { kind: 'no-notebook' } }), undefined);
  assert.equal(text({}, { condition: { kind: 'not-loaded' } }), undefined);
});

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
  kernels.disablePolling();
  const model = new StatusModel(trans, kernels, clock);
  model.setWanted(true, true);
  kernels.setActive({ name: 'train.ipynb', kernel, phase: 'idle' });
  await settled();
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
  assert.equal(text(), 'cuda:0 · 14.0 GiB');
  assert.equal(changes, 2);
});

test('a disposed item has no timer and no connection', async () => {
  const { model, kernels, kernel, clock } = await setUp();
  kernels.setActive({ name: 'train.ipynb', kernel, phase: 'busy' });
  assert.equal(clock.running, 1);
  model.dispose();
  assert.equal(clock.running, 0);
  let updates = 0;
  model.changed.connect(() => updates++);
  await clock.pass(60_000);
  kernels.setActive({ name: null, kernel: null, phase: null });
  assert.equal(updates, 0);
});
