import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import type { LoadResult, RequestContent } from '../src/model/kernel/kernel';
import { ActiveKernel, POLL_MS, STATUS_POLL_MS } from '../src/model/kernel/activeKernel';
import type { Phase } from '../src/model/kernel/kernelActivity';
import { pendingRequest } from '../src/model/kernel/kernels';
import { FakeKernel, FakeClock, kernelState, ok, settled, torchSwitch } from './fakes';

function made(): { kernels: ActiveKernel; clock: FakeClock } {
  const clock = new FakeClock();
  const kernels = new ActiveKernel(clock);
  kernels.setPanelVisible(true);
  return { kernels, clock };
}

async function show(kernels: ActiveKernel, kernel: FakeKernel, phase: Phase): Promise<void> {
  kernel.activity.set(phase);
  kernels.setActive({ name: 'train.ipynb', kernel });
  await settled();
}

/** Show a notebook without a kernel. */
function showNone(kernels: ActiveKernel): void {
  kernels.setActive({ name: 'train.ipynb', kernel: null, phase: null });
}

function setDevice(kernels: ActiveKernel, device: string): Promise<void> {
  return kernels.request({ ask: 'set_device', device, new_tensors: true });
}

function setWatching(kernels: ActiveKernel, on: boolean): Promise<void> {
  return kernels.request({ ask: 'watch', on });
}

function setSwitch(kernels: ActiveKernel, name: string, value: string): Promise<void> {
  return kernels.request({ ask: 'set_switch', name, value });
}

function kind(kernels: ActiveKernel): string {
  return kernels.view.condition.kind;
}

test('without a notebook nothing is requested', () => {
  const { kernels } = made();
  assert.equal(kind(kernels), 'no-notebook');
});

test('the kernel of the active notebook is queried', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  kernel.reply = ok({ watching: true });
  await show(kernels, kernel, 'idle');
  assert.equal(kind(kernels), 'ready');
  assert.equal(kernels.state?.watching, true);
  assert.deepEqual(kernel.requests, [{ ask: 'state' }]);
});

test('a kernel of another language receives no request', async () => {
  const { kernels, clock } = made();
  const kernel = new FakeKernel('R');
  await show(kernels, kernel, 'idle');
  await show(kernels, kernel, 'busy');
  await show(kernels, kernel, 'idle');
  await clock.pass(10 * POLL_MS);
  assert.deepEqual(kernels.view.condition, { kind: 'not-python', language: 'R' });
  assert.deepEqual(kernel.requests, []);
});

test('a kernel with gpuwidget is polled until the panel is hidden', async () => {
  const { kernels, clock } = made();
  const kernel = new FakeKernel();
  kernel.reply = ok();
  await show(kernels, kernel, 'idle');
  await clock.pass(2 * POLL_MS);
  assert.equal(kernel.requests.length, 3);
  kernels.setPanelVisible(false);
  await clock.pass(10 * POLL_MS);
  assert.deepEqual([kernel.requests.length, clock.running], [3, 0]);
});

test('a kernel without gpuwidget is queried only once', async () => {
  const { kernels, clock } = made();
  const kernel = new FakeKernel();
  await show(kernels, kernel, 'idle');
  await clock.pass(10 * POLL_MS);
  await show(kernels, kernel, 'busy');
  await show(kernels, kernel, 'idle');
  assert.deepEqual([kind(kernels), kernel.requests.length], ['not-loaded', 1]);
});

test('a busy kernel that does not reply is queried again after the cell', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  await show(kernels, kernel, 'busy');
  assert.equal(kind(kernels), 'unanswered');
  kernel.reply = ok();
  await show(kernels, kernel, 'idle');
  assert.equal(kind(kernels), 'ready');
});

test('a kernel that was busy for a moment is being checked until it is known that gpuwidget is not loaded', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  const first = kernel.hold();
  const second = kernel.hold();
  await show(kernels, kernel, 'busy');
  await show(kernels, kernel, 'idle');
  assert.equal(kind(kernels), 'querying');
  first(null);
  await settled();
  assert.deepEqual([kind(kernels), kernel.requests.length], ['querying', 2]);
  second(null);
  await settled();
  assert.equal(kind(kernels), 'not-loaded');
});

test('a kernel that does not reply after the cell is being checked until it is known why', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  await show(kernels, kernel, 'busy');
  assert.equal(kind(kernels), 'unanswered');
  const reply = kernel.hold();
  await show(kernels, kernel, 'idle');
  assert.equal(kind(kernels), 'querying');
  reply(null);
  await settled();
  assert.equal(kind(kernels), 'not-loaded');
});

test('a kernel that was busy at the query after loading is queried again once it is idle', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  await show(kernels, kernel, 'busy');
  const reply = kernel.hold();
  const loaded = kernels.load();
  await settled();
  await show(kernels, kernel, 'idle');
  assert.equal(kind(kernels), 'loading');
  kernel.reply = ok();
  reply(null);
  await loaded;
  await settled();
  assert.equal(kind(kernels), 'ready');
});

test('a kernel that stops replying while busy keeps its last state, with its age', async () => {
  const { kernels, clock } = made();
  const kernel = new FakeKernel();
  kernel.reply = ok();
  await show(kernels, kernel, 'busy');
  kernel.reply = null;
  await clock.pass(4 * POLL_MS);
  assert.deepEqual([kind(kernels), kernels.view.silentFor], ['ready', (4 * POLL_MS) / 1000]);
});

test('a restart discards the state of the old process', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  kernel.reply = ok();
  await show(kernels, kernel, 'idle');
  kernel.reply = null;
  kernel.activity.changed.emit({ kind: 'process-ended' });
  await show(kernels, kernel, 'restarting');
  assert.deepEqual([kind(kernels), kernels.state], ['restarting', null]);
  await show(kernels, kernel, 'idle');
  assert.deepEqual([kind(kernels), kernels.view.restarted], ['not-loaded', true]);
});

test('choosing a device sends a request and shows the state of its reply', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  kernel.reply = ok();
  await show(kernels, kernel, 'idle');
  const device = { chosen: 'cuda:1', new_tensors: true, pending: false, present: 'cuda:1', note: null };
  kernel.reply = ok({ device });
  await setDevice(kernels, 'cuda:1');
  assert.deepEqual(kernel.requests.at(-1), {
    ask: 'set_device',
    device: 'cuda:1',
    new_tensors: true
  });
  assert.deepEqual(kernels.state?.device, device);
});

test('the reason of a rejected request is shown until another one is accepted', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  kernel.reply = ok();
  await show(kernels, kernel, 'idle');
  kernel.reply = { status: 'error', reason: 'There is no cuda:9.', state: null };
  await setDevice(kernels, 'cuda:9');
  assert.deepEqual([kind(kernels), kernels.view.rejection?.reason], ['ready', 'There is no cuda:9.']);
  kernel.reply = ok();
  await setWatching(kernels, true);
  assert.equal(kernels.view.rejection, null);
});

test('loading gpuwidget makes the kernel reply', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  await show(kernels, kernel, 'idle');
  kernel.reply = ok();
  await kernels.load();
  assert.equal(kind(kernels), 'ready');
});

test('an idle kernel that does not reply after loading has another version', async () => {
  const { kernels, clock } = made();
  const kernel = new FakeKernel();
  kernel.loadResult = { outcome: 'loaded', version: '0.0.9' };
  await show(kernels, kernel, 'idle');
  await kernels.load();
  assert.equal(kind(kernels), 'loading');
  await clock.pass(POLL_MS);
  assert.deepEqual(kernels.view.condition, { kind: 'other-version', version: '0.0.9' });
});

test('while gpuwidget is being loaded, other tabs, cells and clicks neither change that nor load it again', async () => {
  const { kernels, clock } = made();
  const kernel = new FakeKernel();
  await show(kernels, kernel, 'busy');
  const loads: ((result: LoadResult) => void)[] = [];
  kernel.load = () => new Promise(resolve => loads.push(resolve));
  const loaded = [kernels.load(), kernels.load()];
  await show(kernels, new FakeKernel('python', 'kernel-2'), 'idle');
  await show(kernels, kernel, 'busy');
  const requests = kernel.requests.length;
  await clock.pass(10 * POLL_MS);
  assert.deepEqual([kind(kernels), loads.length, kernel.requests.length], ['loading', 1, requests]);
  await setWatching(kernels, true);
  await show(kernels, kernel, 'idle');
  await setWatching(kernels, true);
  await setWatching(kernels, true);
  assert.equal(kind(kernels), 'loading');
  kernel.reply = ok();
  loads[0]?.({ outcome: 'loaded', version: '0.1.0' });
  await Promise.all(loaded);
  assert.equal(kind(kernels), 'ready');
});

test('a kernel that is busy after loading is queried again after the cell', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  await show(kernels, kernel, 'busy');
  await kernels.load();
  assert.equal(kind(kernels), 'unanswered');
  kernel.reply = ok();
  await show(kernels, kernel, 'idle');
  assert.equal(kind(kernels), 'ready');
});

test('an idle kernel that leaves two queries unanswered has no gpuwidget any more', async () => {
  const { kernels, clock } = made();
  const kernel = new FakeKernel();
  kernel.reply = ok();
  await show(kernels, kernel, 'idle');
  kernel.reply = null;
  await clock.pass(POLL_MS);
  assert.equal(kind(kernels), 'ready');
  await clock.pass(POLL_MS);
  assert.deepEqual([kind(kernels), kernels.view.silentFor], ['not-loaded', null]);
  const requests = kernel.requests.length;
  await clock.pass(10 * POLL_MS);
  assert.equal(kernel.requests.length, requests);
});

test('without polling only the end of a cell and a request lead to a query', async () => {
  const { kernels, clock } = made();
  const kernel = new FakeKernel();
  kernel.reply = ok();
  await show(kernels, kernel, 'idle');
  kernel.activity.showsRequests = true;
  await clock.pass(10 * POLL_MS);
  assert.deepEqual([kernel.requests.length, clock.running], [1, 0]);
  await show(kernels, kernel, 'busy');
  await clock.pass(10 * POLL_MS);
  await show(kernels, kernel, 'idle');
  assert.equal(kernel.requests.length, 2);
});

test('a busy kernel without a reply is still unanswered after another notebook was active', async () => {
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

test('a kernel that goes away during a query is queried again when it is back', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  kernel.gone = true;
  await show(kernels, kernel, 'idle');
  assert.equal(kind(kernels), 'not-loaded');
  kernel.gone = false;
  kernel.reply = ok();
  kernels.refresh();
  await settled();
  assert.equal(kind(kernels), 'ready');
});

test('a requested device is shown until the reply arrives', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  kernel.reply = ok();
  await show(kernels, kernel, 'idle');
  const answer = kernel.hold();
  const wish = setDevice(kernels, 'cuda:1');
  await settled();
  assert.equal(pendingRequest(kernels.view, 'set_device')?.device, 'cuda:1');
  answer(ok());
  await wish;
  assert.equal(pendingRequest(kernels.view, 'set_device')?.device, undefined);
});

test('toggling queries the state first', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  await show(kernels, kernel, 'idle');
  kernel.reply = ok({ watching: true });
  await kernels.toggleWatching();
  assert.deepEqual(kernel.requests.at(-1), { ask: 'watch', on: false });
});

test('a rejection is outdated when the device changes', async () => {
  const { kernels, clock } = made();
  const kernel = new FakeKernel();
  kernel.reply = ok();
  await show(kernels, kernel, 'idle');
  kernel.reply = { status: 'error', reason: 'There is no cuda:9.', state: null };
  await setDevice(kernels, 'cuda:9');
  kernel.reply = ok();
  await clock.pass(POLL_MS);
  assert.equal(kernels.view.rejection?.reason, 'There is no cuda:9.');
  const device = { chosen: 'cpu', new_tensors: true, pending: false, present: 'cpu', note: null };
  kernel.reply = ok({ device });
  await clock.pass(POLL_MS);
  assert.equal(kernels.view.rejection, null);
});

test('a reply of another schema is reported as another version', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  kernel.reply = ok({ schema: 2, version: '9.0' });
  await show(kernels, kernel, 'idle');
  assert.deepEqual(kernels.view.condition, { kind: 'other-version', version: '9.0' });
  assert.equal(kernels.state, null);
});

for (const loading of [
  { outcome: 'not-installed' },
  { outcome: 'other-package' },
  { outcome: 'refused', path: '/home/ada/gpuwidget' },
  { outcome: 'failed', reason: 'ImportError: no' }
] as const) {
  test(`loading that ends as ${loading.outcome} is reported`, async () => {
    const { kernels } = made();
    const kernel = new FakeKernel();
    kernel.loadResult = loading;
    await show(kernels, kernel, 'idle');
    await kernels.load();
    assert.equal(kind(kernels), loading.outcome);
  });
}

test('the phase of the kernel takes precedence over everything else', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  for (const phase of ['starting', 'restarting', 'dead', 'unreachable'] as const) {
    await show(kernels, kernel, phase);
    assert.equal(kind(kernels), phase);
  }
  showNone(kernels);
  assert.equal(kind(kernels), 'no-kernel');
  assert.deepEqual(kernel.requests, []);
});

test('each notebook has a separate state', async () => {
  const { kernels } = made();
  const [one, two] = [new FakeKernel(), new FakeKernel()];
  one.reply = ok({ watching: true });
  await show(kernels, one, 'idle');
  await show(kernels, two, 'idle');
  assert.equal(kind(kernels), 'not-loaded');
  await show(kernels, one, 'idle');
  assert.equal(kernels.state?.watching, true);
});

test('gpuwidget loaded by a cell during a query is found by the next one', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  const first = kernel.hold();
  await show(kernels, kernel, 'idle');
  kernels.refresh();
  kernel.reply = ok();
  first(null);
  await settled();
  assert.deepEqual([kind(kernels), kernel.requests.length], ['ready', 2]);
});

test('the status item queries a kernel only if its notebook mentions gpuwidget, and an idle one only once', async () => {
  const { kernels, clock } = made();
  kernels.setPanelVisible(false);
  kernels.setStatusVisible(true);
  const silent = new FakeKernel();
  await show(kernels, silent, 'idle');
  await clock.pass(10 * STATUS_POLL_MS);
  assert.deepEqual(silent.requests, []);
  const kernel = new FakeKernel();
  kernel.reply = ok();
  kernels.setMentionsGpuwidget(kernel);
  await show(kernels, kernel, 'idle');
  await clock.pass(10 * STATUS_POLL_MS);
  assert.deepEqual([kernel.requests.length, kind(kernels), clock.running], [1, 'ready', 0]);
});

test('the status item queries after each cell, and seldom while one runs', async () => {
  const { kernels, clock } = made();
  kernels.setPanelVisible(false);
  kernels.setStatusVisible(true);
  const kernel = new FakeKernel();
  kernel.reply = ok();
  kernels.setMentionsGpuwidget(kernel);
  await show(kernels, kernel, 'idle');
  await show(kernels, kernel, 'busy');
  await clock.pass(2 * STATUS_POLL_MS);
  assert.equal(kernel.requests.length, 3);
  await show(kernels, kernel, 'idle');
  await clock.pass(10 * STATUS_POLL_MS);
  assert.deepEqual([kernel.requests.length, clock.running], [4, 0]);
});

test('without polling the status item queries only after a cell', async () => {
  const { kernels, clock } = made();
  kernels.setPanelVisible(false);
  kernels.setStatusVisible(true);
  const kernel = new FakeKernel();
  kernel.activity.showsRequests = true;
  kernel.reply = ok();
  kernels.setMentionsGpuwidget(kernel);
  await show(kernels, kernel, 'idle');
  await show(kernels, kernel, 'busy');
  await clock.pass(10 * STATUS_POLL_MS);
  assert.deepEqual([kernel.requests.length, kernels.pollingDisabled], [1, true]);
  await show(kernels, kernel, 'idle');
  assert.equal(kernel.requests.length, 2);
});

test('a hidden status item queries nothing, and a hidden panel leaves the status item its own interval', async () => {
  const { kernels, clock } = made();
  kernels.setStatusVisible(true);
  const kernel = new FakeKernel();
  kernel.reply = ok();
  await show(kernels, kernel, 'busy');
  kernels.setPanelVisible(false);
  const asked = kernel.requests.length;
  await clock.pass(STATUS_POLL_MS);
  assert.equal(kernel.requests.length, asked + 1);
  kernels.setStatusVisible(false);
  await clock.pass(10 * STATUS_POLL_MS);
  assert.deepEqual([kernel.requests.length, clock.running], [asked + 1, 0]);
});

test('a switch is requested by its name, and a rejection names the request', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  kernel.reply = ok();
  await show(kernels, kernel, 'idle');
  kernel.reply = { status: 'error', reason: 'torch refused it.', state: kernelState() };
  await setSwitch(kernels, 'cudnn.benchmark', 'on');
  assert.deepEqual(kernel.requests.at(-1), {
    ask: 'set_switch',
    name: 'cudnn.benchmark',
    value: 'on'
  });
  assert.deepEqual(
    [kernels.view.rejection?.reason, kernels.view.rejection?.ask],
    ['torch refused it.', 'set_switch']
  );
});

test('a rejection is outdated when a switch changes', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  kernel.reply = ok({ switches: [torchSwitch()] });
  await show(kernels, kernel, 'idle');
  kernel.reply = { status: 'error', reason: 'torch refused it.', state: null };
  await setSwitch(kernels, 'cudnn.benchmark', 'on');
  kernel.reply = ok({ switches: [torchSwitch({ value: 'on' })] });
  kernels.refresh();
  await settled();
  assert.equal(kernels.view.rejection, null);
});

test('a state of another version, which has no switches, is reported as another version', async () => {
  const { kernels } = made();
  const kernel = new FakeKernel();
  kernel.reply = { status: 'ok', done: null, state: { schema: 2, version: '9.0' } };
  await show(kernels, kernel, 'idle');
  assert.deepEqual(kernels.view.condition, { kind: 'other-version', version: '9.0' });
});

test('replies of another shape are reported as another version, at first and later', async () => {
  for (const reply of [
    { ...ok(), state: { ...kernelState(), gpus: null } },
    { status: 'later' },
    'reply',
    {}
  ]) {
    const { kernels } = made();
    const kernel = new FakeKernel();
    kernel.reply = reply;
    await show(kernels, kernel, 'idle');
    assert.equal(kind(kernels), 'other-version');
    kernel.reply = ok();
    kernels.refresh();
    await settled();
    assert.equal(kind(kernels), 'ready');
    kernel.reply = reply;
    kernels.refresh();
    await settled();
    assert.deepEqual([kind(kernels), kernels.state], ['other-version', null]);
  }
});

/** Return the values of all watch requests that the kernel received, in order. */
function watched(kernel: FakeKernel): boolean[] {
  return kernel.requests.flatMap(request => (request.ask === 'watch' ? [request.on] : []));
}

/**
 * A kernel that turns the watching of cells on or off as requested. It holds its replies until `release` is
 * called.
 */
class WatchingKernel extends FakeKernel {
  private watching = false;
  private waiting: (() => void)[] = [];

  override async request(content: RequestContent): ReturnType<FakeKernel['request']> {
    await new Promise<void>(resolve => this.waiting.push(resolve));
    this.watching = content.ask === 'watch' ? content.on : this.watching;
    this.reply = ok({ watching: this.watching });
    return super.request(content);
  }

  /** Reply to all pending requests, and to the requests that result from the replies. */
  async release(): Promise<void> {
    while (this.waiting.length > 0) {
      this.waiting.splice(0).forEach(resolve => {
        resolve();
      });
      await settled();
    }
  }
}

test('toggling before the first reply turns watching on', async () => {
  const { kernels } = made();
  const kernel = new WatchingKernel();
  await show(kernels, kernel, 'idle');
  const toggle = kernels.toggleWatching();
  await settled();
  await kernel.release();
  await toggle;
  assert.deepEqual([watched(kernel), kernels.watching], [[true], true]);
});

test('toggling twice in quick succession turns watching on and off', async () => {
  const { kernels } = made();
  const kernel = new WatchingKernel();
  await show(kernels, kernel, 'idle');
  const toggles = [kernels.toggleWatching(), kernels.toggleWatching()];
  await settled();
  await kernel.release();
  await Promise.all(toggles);
  assert.deepEqual([watched(kernel), kernels.watching], [[true, false], false]);
});

test('two quick clicks on the button request on and then off, and it shows the latest request', async () => {
  const { kernels } = made();
  const kernel = new WatchingKernel();
  await show(kernels, kernel, 'idle');
  await settled();
  await kernel.release();
  for (const expected of [true, false]) {
    void setWatching(kernels, !kernels.watching);
    assert.equal(kernels.watching, expected);
  }
  await settled();
  await kernel.release();
  assert.deepEqual([watched(kernel), kernels.watching], [[true, false], false]);
});

test('a choice of a device in between does not change what a click on the button requests', async () => {
  const { kernels } = made();
  const kernel = new WatchingKernel();
  await show(kernels, kernel, 'idle');
  await settled();
  await kernel.release();
  void setWatching(kernels, !kernels.watching);
  void setDevice(kernels, 'cpu');
  void setWatching(kernels, !kernels.watching);
  await settled();
  await kernel.release();
  assert.deepEqual(watched(kernel), [true, false]);
});
