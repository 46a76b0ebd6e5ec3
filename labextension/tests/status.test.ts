import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import type { KernelView } from '../src/kernel/activeKernel';
import { statusText } from '../src/status/words';
import type { KernelState } from '../src/wire';
import { GIB, kernelGpu, kernelState, trans } from './fakes';

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

test('the default device and what the notebook holds there', () => {
  const gpus = [kernelGpu(0, { process_memory: 40 * GIB }), kernelGpu(1, { process_memory: 14.2 * GIB })];
  assert.equal(text({ gpus, device: device('cuda:1') }), 'cuda:1 · 14.2 GiB');
  assert.equal(text({ gpus, device: device(null, 'cuda:0') }), 'cuda:0 · 40.0 GiB');
});

test('where the default is no GPU, it is where the notebook holds anything', () => {
  const [first, second] = [kernelGpu(0), kernelGpu(1, { process_memory: GIB })];
  assert.equal(text({ gpus: [first, kernelGpu(1, NOTHING)], device: device(null) }), 'cuda:0 · 14.0 GiB');
  assert.equal(text({ gpus: [first, second], device: device('cpu') }), '2 GPUs · 15.0 GiB');
  assert.equal(text({ gpus: [kernelGpu(0, NOTHING)], device: device(null) }), 'cpu · 0 MiB');
  assert.equal(text({ gpus: [kernelGpu(0, NOTHING)], device: device(null, null) }), 'GPU · 0 MiB');
});

test('what is not known is n/a with its reason', () => {
  const gpu = kernelGpu(0, { process_memory: null, torch_reserved: null, context: false });
  const unknown = { gpus: [gpu], device: device(null) };
  const said = statusText(trans, view(unknown), false);
  assert.equal(said?.text, 'cpu · n/a');
  assert.match(said.title, /is not known$/);
});

test('where nobody else can tell whose memory it is, as in a container, it is torch’s own number and says so', () => {
  const gpus = [0, 1].map(index => kernelGpu(index, { process_memory: null }));
  const said = statusText(trans, view({ gpus, device: device('cuda:1') }), false);
  assert.equal(said?.text, 'cuda:1 · 13.0 GiB (torch)');
  assert.match(said.title, /cuda:0: 13.0 GiB \(torch\)\n.*\n.*without the CUDA context$/);
  assert.equal(text({ gpus, device: device(null) }), '2 GPUs · 26.0 GiB (torch)');
});

test('a kernel that does not answer, or is not asked while its cell runs, holds nobody knows what', () => {
  const gpus = [kernelGpu(0)];
  const silent = statusText(trans, view({ gpus }, { silentFor: 12 }), false);
  assert.equal(silent?.text, 'cuda:0 · n/a');
  assert.match(silent.title, /has not answered for 12 s/);
  const stale = statusText(trans, view({ gpus }), true);
  assert.equal(stale?.text, 'cuda:0 · n/a');
  assert.match(stale.title, /asked again when it has ended/);
});

test('nothing at all without a notebook, a GPU, or gpuwidget in the kernel', () => {
  assert.equal(text({ gpus: [] }), undefined);
  assert.equal(text({}, { condition: { kind: 'no-notebook' } }), undefined);
  assert.equal(text({}, { condition: { kind: 'not-loaded' } }), undefined);
});
