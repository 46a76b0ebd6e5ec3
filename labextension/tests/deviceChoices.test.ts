import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import {
  deviceOption,
  mostFreeGpu,
  mostFreeText,
  unseenText,
  withCurrentFree,
  withoutOtherProcesses
} from '../src/views/panel/deviceChoices';
import { StreamModel } from '../src/model/stream/streamModel';
import { kernelsOf } from '../src/model/memory/holders';
import {
  GIB,
  gpuUsage,
  holding,
  kernelGpu,
  kernelState,
  reading,
  sample,
  serverKernel,
  trans,
  usage
} from './fakes';
import type { DeviceChoice, GpuMemoryOwnership, Reading } from '../src/wire/wire';

function choice(device: string, free: number | null, holders: readonly string[] = []): DeviceChoice {
  return {
    device,
    uuid: null,
    index: null,
    name: null,
    compute_capability: null,
    memory_total: null,
    memory_free: free === null ? null : free * GIB,
    unified_memory: false,
    holders,
    candidates: []
  };
}

function found(choices: readonly DeviceChoice[], chosen: string | null = null): string | null {
  return mostFreeGpu([choice('cpu', 500), ...choices], chosen)?.device ?? null;
}

test('the GPU with the most free memory is found', () => {
  assert.equal(found([choice('cuda:0', 3), choice('cuda:1', 80), choice('cuda:2', 12)]), 'cuda:1');
});

test('GPUs that PyTorch does not see are counted once torch is loaded and sees one', () => {
  const text = (torch: string | null, ...devices: string[]): string =>
    unseenText(
      trans,
      kernelState({
        torch,
        choices: devices.map(device => choice(device, 1)),
        gpus: [kernelGpu(0), kernelGpu(1)]
      })
    );
  assert.equal(text('2.13.0', 'cpu', 'cuda:0'), 'PyTorch sees 1 of 2 GPUs');
  assert.equal(text('2.13.0', 'cpu', 'cuda:0', 'cuda:1'), '');
  assert.equal(text('2.13.0', 'cpu'), ''); // The panel says why there is no CUDA device.
  assert.equal(text(null, 'cpu', 'cuda:0'), '');
});

test('a GPU with unknown free memory does not count', () => {
  assert.equal(found([choice('cuda:0', null), choice('cuda:1', 2), choice('cuda:2', 3)]), 'cuda:2');
  assert.equal(found([choice('cuda:0', null), choice('cuda:1', 2)]), null);
  assert.equal(found([choice('cuda:0', 2)]), null);
});

test('among equals the chosen GPU wins, then the one with the fewest holders, then the first', () => {
  const equal = [choice('cuda:0', 80.01, ['ada']), choice('cuda:1', 80), choice('cuda:2', 80.02)];
  assert.equal(found(equal), 'cuda:1');
  assert.equal(found(equal, 'cuda:0'), 'cuda:0');
  assert.equal(found(equal, 'cpu'), 'cuda:1');
});

/**
 * Return the free GiB of `cuda:0` and `cuda:1` for these readings of the server. In the kernel's state, which
 * is `age` seconds old, each device has 1 GiB free.
 */
function free(age: number | null, ...used: Parameters<typeof reading>[1][]): (number | null)[] {
  const model = new StreamModel();
  model.take({
    type: 'sample',
    sample: sample(
      1,
      used.map((changes, index) => reading(index, changes))
    )
  });
  const choices = [0, 1].map(index => ({
    ...choice(`cuda:${String(index)}`, 1),
    uuid: `GPU-${String(index)}`
  }));
  return withCurrentFree(choices, model.gpus(), age).map(({ memory_free: bytes }) =>
    bytes === null ? null : bytes / GIB
  );
}

test('the free memory is the server’s, however old the kernel’s state is', () => {
  assert.deepEqual(free(3600, { memory_used: 40 * GIB }, { memory_used: 139 * GIB }), [100, 1]);
  assert.deepEqual(free(0, { memory_used: 40 * GIB }, { memory_used: 139 * GIB }), [100, 1]);
});

test('for a GPU that the server does not see, the kernel’s figure counts while it is fresh', () => {
  assert.deepEqual(free(4), [1, 1]);
  assert.deepEqual(free(6), [null, null]);
  assert.deepEqual(free(null), [null, null]);
});

test('a GPU that is lost, silent or without a figure does not fall back to an older one', () => {
  assert.deepEqual(free(0, { lost_since: 1 }, { silent_since: 1 }), [null, null]);
  assert.deepEqual(free(0, { memory_used: null }, {}), [null, 105]);
});

/** Return the option of `cuda:0`, whose GPU has this reading and these holders on the server. */
function optionOf(
  changes: Partial<DeviceChoice>,
  read: Partial<Reading> | null = null,
  owned: GpuMemoryOwnership | null = null
): ReturnType<typeof deviceOption> {
  const model = new StreamModel();
  if (read !== null) {
    model.take({ type: 'sample', sample: sample(1000, [reading(0, read)]) });
  }
  if (owned !== null) {
    model.take(usage([serverKernel('mine'), serverKernel('a/eval'), serverKernel('b/eval')], [owned]));
  }
  const gpus = model.gpus(null, 'mine');
  const known = { uuid: 'GPU-0', index: 1, name: 'NVIDIA H200', compute_capability: '9.0' };
  const given = { ...choice('cuda:0', 71.2), ...known, memory_total: 140 * GIB, ...changes };
  return deviceOption(trans, given, { gpus, kernels: kernelsOf(model.usage), time: 1000 });
}

test('an option has the model, the free memory and the number of holders, and its tooltip the details', () => {
  const others = ['a/eval', 'b/eval'].map(kernel => holding(30, { kernel }));
  const owned = gpuUsage(0, [...others, holding(9, { kernel: 'mine' })], { unattributed: GIB });
  assert.deepEqual(optionOf({}, {}, owned), {
    value: 'cuda:0',
    text: 'cuda:0 · H200 · 71 GiB free · you + 2 others',
    title: [
      'GPU 1 · NVIDIA H200 · compute capability 9.0 · 71.2 GiB of 140.0 GiB free',
      'mine.ipynb (this notebook): 9.0 GiB',
      'a/eval.ipynb: 30.0 GiB',
      'b/eval.ipynb: 30.0 GiB',
      'Unknown process: 1.0 GiB'
    ].join('\n'),
    disabled: false
  });
});

test('the number of holders is left out if there are none, and this notebook is not an other', () => {
  const text = (...kernels: string[]): string =>
    optionOf(
      {},
      {},
      gpuUsage(
        0,
        kernels.map(kernel => holding(1, { kernel }))
      )
    ).text;
  assert.equal(text(), 'cuda:0 · H200 · 71 GiB free');
  assert.equal(text('mine'), 'cuda:0 · H200 · 71 GiB free · you');
  assert.equal(text('a/eval'), 'cuda:0 · H200 · 71 GiB free · 1 other');
  assert.equal(text('mine', 'a/eval'), 'cuda:0 · H200 · 71 GiB free · you + 1 other');
});

test('the number of other users’ processes is not shown', () => {
  const others = optionOf({}, {}, gpuUsage(0, [holding(30, { other_users: true })]));
  assert.equal(others.text, 'cuda:0 · H200 · 71 GiB free · others');
  assert.equal(others.title.split('\n').at(-1), 'Other users: 30.0 GiB');
  const both = optionOf(
    {},
    {},
    gpuUsage(0, [holding(30, { other_users: true }), holding(9, { kernel: 'mine' }), holding(1, { pid: 7 })])
  );
  assert.equal(both.text, 'cuda:0 · H200 · 71 GiB free · you + others');
});

test('names of processes that the kernel lists are left out if the server hides other users', () => {
  const shown = (...holders: string[]): string[] => {
    const [hidden] = withoutOtherProcesses([choice('cuda:0', null, holders)]);
    const { text, title } = optionOf({
      memory_free: null,
      memory_total: null,
      holders: hidden?.holders ?? []
    });
    assert.equal(title.split('\n')[0], 'GPU 1 · NVIDIA H200 · compute capability 9.0');
    return [text, ...title.split('\n').slice(1)];
  };
  const device = 'cuda:0 · H200';
  assert.deepEqual(shown(), [device]);
  assert.deepEqual(shown('this notebook'), [`${device} · you`, 'This notebook']);
  assert.deepEqual(shown('ada: python x.py', 'process 7'), [`${device} · others`, 'Other processes']);
  assert.deepEqual(shown('this notebook', 'ada: python x.py', 'process 7'), [
    `${device} · you + others`,
    'This notebook',
    'Other processes'
  ]);
});

test('a tooltip names at most ten holders', () => {
  const owned = gpuUsage(
    0,
    Array.from({ length: 12 }, (_, pid) => holding(1, { pid, user: 'ada' }))
  );
  const lines = optionOf({}, {}, owned).title.split('\n');
  assert.deepEqual([lines.length, lines.at(-1)], [12, 'and 2 more']);
});

test('the names of the kernel do not tell how many processes there are', () => {
  const text = (...holders: string[]): string => optionOf({ memory_free: null, holders }).text;
  assert.equal(text('this notebook', 'ada: python train.py'), 'cuda:0 · H200 · you + others');
  assert.equal(text('this notebook'), 'cuda:0 · H200 · you');
  assert.equal(text('ada: python train.py'), 'cuda:0 · H200 · others');
  assert.equal(
    optionOf({ holders: ['this notebook', 'ada: python train.py'] }).title,
    'GPU 1 · NVIDIA H200 · compute capability 9.0 · 71.2 GiB of 140.0 GiB free\nThis notebook\nada: python train.py'
  );
});

test('a lost GPU cannot be chosen, and its option says why', () => {
  const missing = { memory_used: 'the GPU fell off the bus' };
  const { text, title, disabled } = optionOf({ memory_free: null }, { lost_since: 1000, missing });
  assert.match(text, /^cuda:0 · H200 · lost since \d\d:\d\d:\d\d$/);
  assert.match(title, /\nLost since \d\d:\d\d:\d\d: the GPU fell off the bus\./);
  assert.equal(disabled, true);
  const silent = optionOf({ memory_free: null }, { silent_since: 990 });
  assert.deepEqual([silent.text, silent.disabled], ['cuda:0 · H200 · no answer', false]);
});

test('a device whose GPU is unknown has the models that it may be', () => {
  const gpus = ['NVIDIA GeForce RTX 3090', 'NVIDIA GeForce RTX 4090', 'NVIDIA GeForce RTX 4090'];
  const candidates = gpus.map((name, index) => ({
    uuid: `GPU-${String(index)}`,
    index,
    name,
    compute_capability: '8.6',
    memory_total: 24 * GIB,
    memory_free: 23.5 * GIB,
    unified_memory: false
  }));
  const { text, title } = optionOf({ ...choice('cuda:0', null), candidates });
  assert.equal(text, 'cuda:0 · GeForce RTX 3090 / GeForce RTX 4090');
  assert.equal(
    title.split('\n')[1],
    'GPU 1 · NVIDIA GeForce RTX 4090 · compute capability 8.6 · 23.5 GiB of 24.0 GiB free'
  );
});

test('the CPU is only a name, and the option with the most free memory names its device', () => {
  const { text, title } = optionOf(choice('cpu', null));
  assert.deepEqual([text, title], ['cpu', '']);
  assert.equal(mostFreeText(trans, choice('cuda:1', 80)), 'Most free memory (now cuda:1)');
});
