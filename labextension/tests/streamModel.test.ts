import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { StreamModel, expandedByDefault, memoryShares, type GpuNow } from '../src/model/stream/streamModel';
import {
  GIB,
  gpu,
  gpuUsage,
  hello,
  history,
  holding,
  kernelGpu,
  kernelState,
  reading,
  sample,
  usage
} from './fakes';

function now(changes: Partial<GpuNow> = {}): GpuNow {
  return { gpu: gpu(0), reading: reading(0), kernel: null, usage: null, activeKernelId: null, ...changes };
}

test("memory is divided into the notebook's, that of others and free memory", () => {
  assert.deepEqual(memoryShares(now({ kernel: kernelGpu(0) })), {
    here: 14 * GIB,
    other: 21 * GIB,
    used: 35 * GIB,
    free: 105 * GIB
  });
});

test('without the notebook’s memory, that of others is unknown', () => {
  const unknown = { here: null, other: null, used: 35 * GIB, free: 105 * GIB };
  assert.deepEqual(memoryShares(now()), unknown);
  assert.deepEqual(memoryShares(now({ kernel: kernelGpu(0, { process_memory: null }) })), unknown);
});

test('memory is divided as in the reading of its holders, whatever the newest sample has', () => {
  const usage = gpuUsage(0, [holding(2, { kernel: 'k' })], { memory_used: 5 * GIB });
  assert.deepEqual(memoryShares(now({ usage, activeKernelId: 'k' })), {
    here: 2 * GIB,
    other: 3 * GIB,
    used: 5 * GIB,
    free: 135 * GIB
  });
});

test('whose memory it is that was allocated since the holders were read is unknown', () => {
  const usage = gpuUsage(0, [holding(2, { kernel: 'k' })], { older: true });
  const grown = now({ usage, activeKernelId: 'k', kernel: kernelGpu(0, { process_memory: 2 * GIB }) });
  assert.deepEqual(memoryShares(grown), { here: null, other: null, used: 35 * GIB, free: 105 * GIB });
});

test('memory that was unknown when the holders were read is that of the newest sample', () => {
  const usage = gpuUsage(0, [], { memory_used: null, unattributed: null });
  assert.deepEqual(memoryShares(now({ usage, activeKernelId: 'k' })), {
    here: null,
    other: null,
    used: 35 * GIB,
    free: 105 * GIB
  });
});

test('unknown memory does not count as free', () => {
  const blind = now({ reading: reading(0, { memory_used: null }) });
  assert.deepEqual(memoryShares(blind), { here: null, other: null, used: null, free: null });
  const before = gpuUsage(0, [], { memory_used: 5 * GIB, unattributed: null });
  assert.deepEqual(memoryShares({ ...blind, usage: before }), memoryShares(blind));
});

test('a notebook never holds more than the memory in use', () => {
  const both = memoryShares(now({ kernel: kernelGpu(0, { process_memory: 36 * GIB }) }));
  assert.deepEqual([both.here, both.other], [35 * GIB, 0]);
});

/**
 * Return the UUIDs of the GPUs that a new panel expands on a machine with `count` GPUs. `busy` contains the
 * indices of the busy GPUs. `changes` apply to the last GPU.
 */
function expanded(
  count: number,
  busy: readonly number[],
  changes: Partial<GpuNow> = {},
  chosen: string | null = null
): string[] {
  const gpus = Array.from({ length: count }, (_, index) =>
    now({
      gpu: gpu(index),
      reading: reading(index, { utilization: busy.includes(index) ? 50 : 0 }),
      ...(index === count - 1 ? changes : {})
    })
  );
  return [...expandedByDefault(gpus, chosen)];
}

test('a new panel shows up to four GPUs expanded, whichever of them are busy at that moment', () => {
  assert.deepEqual(expanded(0, []), []);
  assert.deepEqual(expanded(2, []), ['GPU-0', 'GPU-1']);
  for (const busy of [[], [1, 3], [0, 1, 2, 3]]) {
    assert.deepEqual(expanded(4, busy), ['GPU-0', 'GPU-1', 'GPU-2', 'GPU-3']);
  }
});

test('of more than four GPUs, a new panel shows the first one expanded', () => {
  assert.deepEqual(expanded(5, []), ['GPU-0']);
  assert.deepEqual(expanded(8, [2, 3, 4]), ['GPU-0']);
});

test('of more than four GPUs, a new panel shows those of the notebook expanded', () => {
  const chosen = kernelGpu(15, { context: false });
  assert.deepEqual(expanded(16, [2], { kernel: kernelGpu(15) }), ['GPU-15']);
  assert.deepEqual(expanded(16, [2], { kernel: chosen }, 'cuda:15'), ['GPU-15']);
  assert.deepEqual(expanded(16, [2], { kernel: chosen }, 'cuda:1'), ['GPU-0']);
});

test('a lost GPU is expanded, because only its card has the reason', () => {
  const lost = { reading: reading(7, { lost_since: 9 }) };
  assert.deepEqual(expanded(8, [], lost), ['GPU-0', 'GPU-7']);
});

test('the kernel’s devices are joined with the GPUs by UUID', () => {
  const model = new StreamModel();
  model.take({ type: 'sample', sample: sample(1, [reading(0), reading(1)]) });
  const mine = kernelGpu(1, { torch_device: 'cuda:0' });
  const devices = model
    .gpus(kernelState({ gpus: [mine] }), null)
    .map(each => each.kernel?.torch_device ?? null);
  assert.deepEqual(devices, [null, 'cuda:0']);
});

test('the history after a reconnection is that of the server', () => {
  const model = new StreamModel();
  model.seconds = 120;
  model.take(hello({ sample: sample(3), history: history([1, 2, 3]) }));
  model.take({ type: 'sample', sample: sample(4) });
  model.take(hello({ sample: sample(9), history: history([8, 9]) }));
  const curve: [number[], (number | null)[], (number | null)[]] = [[], [], []];
  model.history.curve('GPU-0', 0, null, 10, curve);
  assert.deepEqual(curve[0], [8, 9]);
});

test('memory usage is unknown until the new stream has sent it', () => {
  const model = new StreamModel();
  model.take(hello({ sample: sample(3) }));
  model.take(usage([], [gpuUsage(0, [])]));
  assert.notEqual(model.usage, null);
  model.take(hello({ sample: sample(9000) }));
  assert.equal(model.usage, null);
  assert.deepEqual(
    model.gpus().map(each => each.usage),
    [null]
  );
});
