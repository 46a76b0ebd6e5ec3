import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import type { Kernel, Phase } from '../src/kernel/kernel';
import { GLANCE_MS, Kernels, POLL_MS } from '../src/kernel/kernels';
import { FakeKernel, FakeClock, kernelState, ok, settled, torchSwitch } from './fakes';

function made(): { kernels: Kernels; timers: FakeClock } {
  const timers = new FakeClock();
  const kernels = new Kernels(timers);
  kernels.start();
  return { kernels, timers };
}

async function show(kernels: Kernels, kernel: Kernel | null, phase: Phase | null): Promise<void> {
  kernels.show({ notebook: 'train.ipynb', kernel, phase });
  await settled();
}

function kind(kernels: Kernels): string {
  return kernels.view.condition.kind;
}

test('without a notebook nobody is asked', () => {
  const { kernels } = made();
  assert.equal(kind(kernels), 'no-notebook');
});

test('a kernel that has gpuwidget loaded is asked when its notebook comes to the front', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  kernel.answer = ok({ watching: true });
  await show(kernels, kernel, 'idle');
  assert.equal(kind(kernels), 'ready');
  assert.equal(kernels.state?.watching, true);
  assert.deepEqual(kernel.questions, [{ schema: 1, ask: 'state' }]);
});

test('a kernel that is not Python is never asked', async () => {
  const { kernels, timers } = made();
  const kernel = new FakeKernel('R');
  await show(kernels, kernel, 'idle');
  await show(kernels, kernel, 'busy');
  await show(kernels, kernel, 'idle');
  await timers.pass(10 * POLL_MS);
  assert.deepEqual(kernels.view.condition, { kind: 'not-python', language: 'R' });
  assert.deepEqual(kernel.questions, []);
});

test('one that answers is asked again now and then, and no more once nobody looks', async () => {
  const { kernels, timers } = made();
  const kernel = new FakeKernel();
  kernel.answer = ok();
  await show(kernels, kernel, 'idle');
  await timers.pass(2 * POLL_MS);
  assert.equal(kernel.questions.length, 3);
  kernels.stop();
  await timers.pass(10 * POLL_MS);
  assert.deepEqual([kernel.questions.length, timers.running], [3, 0]);
});

test('one without gpuwidget is asked once, not again and again', async () => {
  const { kernels, timers } = made();
  const kernel = new FakeKernel();
  await show(kernels, kernel, 'idle');
  await timers.pass(10 * POLL_MS);
  await show(kernels, kernel, 'busy');
  await show(kernels, kernel, 'idle');
  assert.deepEqual([kind(kernels), kernel.questions.length], ['not-loaded', 1]);
});

test('a busy one that does not answer may just be held up: it is asked again after the cell', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  await show(kernels, kernel, 'busy');
  assert.equal(kind(kernels), 'unanswered');
  kernel.answer = ok();
  await show(kernels, kernel, 'idle');
  assert.equal(kind(kernels), 'ready');
});

test('one that has answered and falls silent keeps what it said, and how long ago is told', async () => {
  const { kernels, timers } = made();
  const kernel = new FakeKernel();
  kernel.answer = ok();
  await show(kernels, kernel, 'busy');
  kernel.answer = null;
  await timers.pass(4 * POLL_MS);
  assert.deepEqual([kind(kernels), kernels.view.silentFor], ['ready', (4 * POLL_MS) / 1000]);
});

test('after a restart nothing is believed that the old process said', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  kernel.answer = ok();
  await show(kernels, kernel, 'idle');
  kernel.answer = null;
  await show(kernels, kernel, 'restarting');
  assert.deepEqual([kind(kernels), kernels.state], ['restarting', null]);
  await show(kernels, kernel, 'idle');
  assert.deepEqual([kind(kernels), kernels.view.restarted], ['not-loaded', true]);
});

test('choosing asks the kernel, and shows what holds then', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  kernel.answer = ok();
  await show(kernels, kernel, 'idle');
  const device = { chosen: 'cuda:1', new_tensors: true, pending: false, present: 'cuda:1', note: null };
  kernel.answer = ok({ device });
  await kernels.choose('cuda:1', true);
  assert.deepEqual(kernel.questions.at(-1), {
    schema: 1,
    ask: 'set_device',
    device: 'cuda:1',
    new_tensors: true
  });
  assert.deepEqual(kernels.state?.device, device);
});

test('a wish that is refused leaves its reason, until one is granted', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  kernel.answer = ok();
  await show(kernels, kernel, 'idle');
  kernel.answer = { status: 'error', reason: 'There is no cuda:9.', state: null };
  await kernels.choose('cuda:9', true);
  assert.deepEqual([kind(kernels), kernels.view.refusal], ['ready', 'There is no cuda:9.']);
  kernel.answer = ok();
  await kernels.watch(true);
  assert.equal(kernels.view.refusal, null);
});

test('loading it makes it answer', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  await show(kernels, kernel, 'idle');
  kernel.answer = ok();
  await kernels.load();
  assert.equal(kind(kernels), 'ready');
});

test('one that is loaded but, though idle, cannot be asked is of another version', async () => {
  const { kernels, timers } = made();
  const kernel = new FakeKernel();
  kernel.loading = { outcome: 'loaded', version: '0.0.9' };
  await show(kernels, kernel, 'idle');
  await kernels.load();
  assert.equal(kind(kernels), 'loading');
  await timers.pass(POLL_MS);
  assert.deepEqual(kernels.view.condition, { kind: 'other-version', version: '0.0.9' });
});

test('one that a cell holds up just after it was loaded is asked again after the cell', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  await show(kernels, kernel, 'busy');
  await kernels.load();
  assert.equal(kind(kernels), 'unanswered');
  kernel.answer = ok();
  await show(kernels, kernel, 'idle');
  assert.equal(kind(kernels), 'ready');
});

test('one that is idle and answers no more has gpuwidget no longer loaded', async () => {
  const { kernels, timers } = made();
  const kernel = new FakeKernel();
  kernel.answer = ok();
  await show(kernels, kernel, 'idle');
  kernel.answer = null;
  await timers.pass(POLL_MS);
  assert.equal(kind(kernels), 'ready');
  await timers.pass(POLL_MS);
  assert.deepEqual([kind(kernels), kernels.view.silentFor], ['not-loaded', null]);
  const questions = kernel.questions.length;
  await timers.pass(10 * POLL_MS);
  assert.equal(kernel.questions.length, questions);
});

test('a kernel that starts anew by somebody else’s doing is told as restarted', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  kernel.answer = ok();
  await show(kernels, kernel, 'idle');
  kernel.answer = null;
  await show(kernels, kernel, 'starting');
  await show(kernels, kernel, 'idle');
  assert.deepEqual([kind(kernels), kernels.view.restarted], ['not-loaded', true]);
});

test('where the page shows each question as work, only a cell’s end and a wish are a reason to ask', async () => {
  const { kernels, timers } = made();
  const kernel = new FakeKernel();
  kernel.answer = ok();
  await show(kernels, kernel, 'idle');
  kernels.spare();
  await timers.pass(10 * POLL_MS);
  assert.deepEqual([kernel.questions.length, timers.running], [1, 0]);
  await show(kernels, kernel, 'busy');
  await timers.pass(10 * POLL_MS);
  await show(kernels, kernel, 'idle');
  assert.equal(kernel.questions.length, 2);
});

test('one that is busy and silent while another notebook comes to the front is not taken for one without', async () => {
  const { kernels } = made();
  const [one, two] = [new FakeKernel(), new FakeKernel()];
  const answer = one.hold();
  await show(kernels, one, 'busy');
  await show(kernels, two, 'idle');
  answer(null);
  await settled();
  await show(kernels, one, 'busy');
  assert.equal(kind(kernels), 'unanswered');
});

test('one that goes away while it is asked is asked again when it is back', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  kernel.gone = true;
  await show(kernels, kernel, 'idle');
  assert.equal(kind(kernels), 'not-loaded');
  kernel.gone = false;
  kernel.answer = ok();
  kernels.again();
  await settled();
  assert.equal(kind(kernels), 'ready');
});

test('a wish shows until its answer comes', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  kernel.answer = ok();
  await show(kernels, kernel, 'idle');
  const answer = kernel.hold();
  const wish = kernels.choose('cuda:1', true);
  await settled();
  assert.deepEqual(kernels.view.wished, {
    schema: 1,
    ask: 'set_device',
    device: 'cuda:1',
    new_tensors: true
  });
  answer(ok());
  await wish;
  assert.equal(kernels.view.wished, null);
});

test('toggling asks first what holds', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  await show(kernels, kernel, 'idle');
  kernel.answer = ok({ watching: true });
  await kernels.toggleWatch();
  assert.deepEqual(kernel.questions.at(-1), { schema: 1, ask: 'watch', on: false });
});

test('a refusal is over once something else holds', async () => {
  const { kernels, timers } = made();
  const kernel = new FakeKernel();
  kernel.answer = ok();
  await show(kernels, kernel, 'idle');
  kernel.answer = { status: 'error', reason: 'There is no cuda:9.', state: null };
  await kernels.choose('cuda:9', true);
  kernel.answer = ok();
  await timers.pass(POLL_MS);
  assert.equal(kernels.view.refusal, 'There is no cuda:9.');
  const device = { chosen: 'cpu', new_tensors: true, pending: false, present: 'cpu', note: null };
  kernel.answer = ok({ device });
  await timers.pass(POLL_MS);
  assert.equal(kernels.view.refusal, null);
});

test('answers of another shape are not read', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  kernel.answer = ok({ schema: 2, version: '9.0' });
  await show(kernels, kernel, 'idle');
  assert.deepEqual(kernels.view.condition, { kind: 'other-version', version: '9.0' });
  assert.equal(kernels.state, null);
});

for (const loading of [
  { outcome: 'not-installed' },
  { outcome: 'other-package' },
  { outcome: 'failed', reason: 'ImportError: no' }
] as const) {
  test(`loading that ends as ${loading.outcome} says so`, async () => {
    const { kernels } = made();
    const kernel = new FakeKernel();
    kernel.loading = loading;
    await show(kernels, kernel, 'idle');
    await kernels.load();
    assert.equal(kind(kernels), loading.outcome);
  });
}

test('what the kernel does is said before anything else', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  for (const phase of ['starting', 'restarting', 'dead', 'unreachable'] as const) {
    await show(kernels, kernel, phase);
    assert.equal(kind(kernels), phase);
  }
  await show(kernels, null, null);
  assert.equal(kind(kernels), 'no-kernel');
  assert.deepEqual(kernel.questions, []);
});

test('two notebooks are told apart', async () => {
  const { kernels } = made();
  const [one, two] = [new FakeKernel(), new FakeKernel()];
  one.answer = ok({ watching: true });
  await show(kernels, one, 'idle');
  await show(kernels, two, 'idle');
  assert.equal(kind(kernels), 'not-loaded');
  await show(kernels, one, 'idle');
  assert.equal(kernels.state?.watching, true);
});

test('gpuwidget loaded by a cell while a question is out is found all the same', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  const first = kernel.hold();
  await show(kernels, kernel, 'idle');
  kernels.again();
  kernel.answer = ok();
  first(null);
  await settled();
  assert.deepEqual([kind(kernels), kernel.questions.length], ['ready', 2]);
});

test('a glance asks a kernel without gpuwidget nothing, and one whose notebook speaks of it once', async () => {
  const { kernels, timers } = made();
  kernels.stop();
  kernels.glance(true);
  const silent = new FakeKernel();
  await show(kernels, silent, 'idle');
  await timers.pass(10 * GLANCE_MS);
  assert.deepEqual(silent.questions, []);
  const kernel = new FakeKernel();
  kernel.answer = ok();
  kernels.mentioned(kernel);
  await show(kernels, kernel, 'idle');
  await timers.pass(10 * GLANCE_MS);
  assert.deepEqual([kernel.questions.length, kind(kernels), timers.running], [1, 'ready', 0]);
});

test('a glance asks after a cell, and seldom while one runs', async () => {
  const { kernels, timers } = made();
  kernels.stop();
  kernels.glance(true);
  const kernel = new FakeKernel();
  kernel.answer = ok();
  kernels.mentioned(kernel);
  await show(kernels, kernel, 'idle');
  await show(kernels, kernel, 'busy');
  await timers.pass(2 * GLANCE_MS);
  assert.equal(kernel.questions.length, 3);
  await show(kernels, kernel, 'idle');
  await timers.pass(10 * GLANCE_MS);
  assert.deepEqual([kernel.questions.length, timers.running], [4, 0]);
});

test('where each question shows as work of the kernel, a glance asks after a cell only', async () => {
  const { kernels, timers } = made();
  kernels.stop();
  kernels.glance(true);
  kernels.spare();
  const kernel = new FakeKernel();
  kernel.answer = ok();
  kernels.mentioned(kernel);
  await show(kernels, kernel, 'idle');
  await show(kernels, kernel, 'busy');
  await timers.pass(10 * GLANCE_MS);
  assert.deepEqual([kernel.questions.length, kernels.spares], [1, true]);
  await show(kernels, kernel, 'idle');
  assert.equal(kernel.questions.length, 2);
});

test('who no longer glances asks nothing, and the panel closed leaves a glance its own rate', async () => {
  const { kernels, timers } = made();
  kernels.glance(true);
  const kernel = new FakeKernel();
  kernel.answer = ok();
  await show(kernels, kernel, 'busy');
  kernels.stop();
  const asked = kernel.questions.length;
  await timers.pass(GLANCE_MS);
  assert.equal(kernel.questions.length, asked + 1);
  kernels.glance(false);
  await timers.pass(10 * GLANCE_MS);
  assert.deepEqual([kernel.questions.length, timers.running], [asked + 1, 0]);
});

test('a switch is asked for by its name, and its refusal is told as such', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  kernel.answer = ok();
  await show(kernels, kernel, 'idle');
  kernel.answer = { status: 'error', reason: 'torch refused it.', state: kernelState() };
  await kernels.setSwitch('cudnn.benchmark', 'on');
  assert.deepEqual(kernel.questions.at(-1), {
    schema: 1,
    ask: 'set_switch',
    name: 'cudnn.benchmark',
    value: 'on'
  });
  assert.deepEqual([kernels.view.refusal, kernels.view.refused], ['torch refused it.', 'set_switch']);
});

test('a refusal is over once a switch is another', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  kernel.answer = ok({ switches: [torchSwitch()] });
  await show(kernels, kernel, 'idle');
  kernel.answer = { status: 'error', reason: 'torch refused it.', state: null };
  await kernels.setSwitch('cudnn.benchmark', 'on');
  kernel.answer = ok({ switches: [torchSwitch({ value: 'on' })] });
  kernels.again();
  await settled();
  assert.deepEqual([kernels.view.refusal, kernels.view.refused], [null, null]);
});

test('a kernel is examined when somebody asks, with time enough; one that went away gives no answer', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  kernel.answer = ok();
  await show(kernels, kernel, 'idle');
  assert.deepEqual(await kernels.examine(), kernel.answer);
  assert.deepEqual(kernel.questions.at(-1), { schema: 1, ask: 'doctor' });
  kernel.gone = true;
  assert.equal(await kernels.examine(), null);
  await show(kernels, null, null);
  assert.equal(await kernels.examine(), null);
});
