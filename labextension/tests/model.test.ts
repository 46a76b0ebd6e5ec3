import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { Model, openByThemselves, shares, type GpuNow } from '../src/stream/model';
import { GIB, gpu, gpuUsage, hello, history, kernelGpu, kernelState, reading, sample, usage } from './fakes';

function now(changes: Partial<GpuNow> = {}): GpuNow {
  return { gpu: gpu(0), reading: reading(0), kernel: null, usage: null, front: null, ...changes };
}

test("memory is this notebook's, others' and nobody's", () => {
  assert.deepEqual(shares(now({ kernel: kernelGpu(0) })), {
    here: 14 * GIB,
    other: 21 * GIB,
    used: 35 * GIB,
    free: 105 * GIB
  });
});

test('where the notebook does not say what it holds, nobody is blamed', () => {
  const unknown = { here: null, other: null, used: 35 * GIB, free: 105 * GIB };
  assert.deepEqual(shares(now()), unknown);
  assert.deepEqual(shares(now({ kernel: kernelGpu(0, { process_memory: null }) })), unknown);
});

test('memory that cannot be read is not known, and not free', () => {
  const blind = now({ reading: reading(0, { memory_used: null }) });
  assert.deepEqual(shares(blind), { here: null, other: null, used: null, free: null });
});

test('a notebook is never shown with more than the whole GPU has in use', () => {
  const both = shares(now({ kernel: kernelGpu(0, { process_memory: 36 * GIB }) }));
  assert.deepEqual([both.here, both.other], [35 * GIB, 0]);
});

/** Which of so many GPUs, the busy ones of them at 50 %, are cards by themselves. */
function open(
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
  return [...openByThemselves(gpus, chosen)];
}

test('of few GPUs all are cards, of some the busy ones, of many none but one', () => {
  assert.deepEqual(open(2, []), ['GPU-0', 'GPU-1']);
  assert.deepEqual(open(4, [1, 3]), ['GPU-1', 'GPU-3']);
  assert.deepEqual(open(8, [2, 3, 4]), ['GPU-2']);
});

test('there is a chart to see though all GPUs are idle', () => {
  assert.deepEqual(open(4, []), ['GPU-0']);
  assert.deepEqual(open(0, []), []);
});

test('the GPU that the notebook is on is a card among however many', () => {
  const chosen = kernelGpu(15, { context: false });
  assert.deepEqual(open(16, [2], { kernel: kernelGpu(15) }), ['GPU-15']);
  assert.deepEqual(open(16, [2], { kernel: chosen }, 'cuda:15'), ['GPU-15']);
  assert.deepEqual(open(16, [2], { kernel: chosen }, 'cuda:1'), ['GPU-2']);
});

test('GPUs are joined with what the notebook says of them by their UUID', () => {
  const model = new Model();
  model.take({ type: 'sample', sample: sample(1, [reading(0), reading(1)]) });
  const mine = kernelGpu(1, { torch_device: 'cuda:0' });
  const devices = model
    .gpus(kernelState({ gpus: [mine] }), null)
    .map(each => each.kernel?.torch_device ?? null);
  assert.deepEqual(devices, [null, 'cuda:0']);
});

test('after a reconnection the past is what the server held, not what this page had', () => {
  const model = new Model();
  model.seconds = 120;
  model.take(hello({ sample: sample(3), history: history([1, 2, 3]) }));
  model.take({ type: 'sample', sample: sample(4) });
  model.take(hello({ sample: sample(9), history: history([8, 9]) }));
  const curve: [number[], (number | null)[], (number | null)[]] = [[], [], []];
  model.past.curve('GPU-0', 0, null, 10, curve);
  assert.deepEqual(curve[0], [8, 9]);
});

test('who holds what is not known anew until a new stream says it', () => {
  const model = new Model();
  model.take(hello({ sample: sample(3) }));
  model.take(usage([], [gpuUsage(0, [])]));
  assert.notEqual(model.usage, null);
  model.take(hello({ sample: sample(9000) }));
  assert.equal(model.usage, null);
  assert.deepEqual(
    model.gpus(null, null).map(each => each.usage),
    [null]
  );
});
