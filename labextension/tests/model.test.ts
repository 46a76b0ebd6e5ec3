import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { Model, opensByItself, shares, type GpuNow } from '../src/model';
import { GIB, gpu, hello, history, kernelGpu, kernelState, reading, sample } from './fakes';

function now(changes: Partial<GpuNow> = {}): GpuNow {
  return { gpu: gpu(0), reading: reading(0), kernel: null, ...changes };
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

test('a GPU of few is a card, an idle one of some is a row, and so is any of many', () => {
  const idle = now({ reading: reading(0, { utilization: 0 }) });
  assert.deepEqual(
    [opensByItself(idle, 2, null), opensByItself(idle, 4, null), opensByItself(now(), 4, null)],
    [true, false, true]
  );
  assert.equal(opensByItself(now(), 8, null), false);
});

test('the GPU that the notebook is on is a card among however many', () => {
  assert.equal(opensByItself(now({ kernel: kernelGpu(0) }), 16, null), true);
  const chosen = kernelGpu(0, { context: false });
  assert.equal(opensByItself(now({ kernel: chosen }), 16, 'cuda:0'), true);
  assert.equal(opensByItself(now({ kernel: chosen }), 16, 'cuda:1'), false);
});

test('GPUs are joined with what the notebook says of them by their UUID', () => {
  const model = new Model();
  model.take({ type: 'sample', sample: sample(1, [reading(0), reading(1)]) });
  const mine = kernelGpu(1, { torch_device: 'cuda:0' });
  const devices = model.gpus(kernelState({ gpus: [mine] })).map(each => each.kernel?.torch_device ?? null);
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
