import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { ActiveKernel } from '../src/model/kernel/activeKernel';
import type { KernelView } from '../src/model/kernel/kernels';
import { ActiveNotebookTracker } from '../src/model/kernel/activeNotebook';
import { KernelActivities } from '../src/model/kernel/kernelActivity';
import type { MemoryOwnership } from '../src/wire/wire';
import { FakeClock, serverKernel, settled, usage } from './fakes';
import { CELL, FakeConnection, FakeNotebook, FakeNotebooks } from './fakes_notebook';

/** A page that shows the first of two notebooks. */
class Page {
  readonly notebooks = [new FakeNotebook('one'), new FakeNotebook('two')] as const;
  private readonly kernels = new ActiveKernel(new FakeClock());
  private readonly open = new FakeNotebooks(this.notebooks);
  private readonly activities = new KernelActivities(new FakeClock());

  constructor() {
    globalThis.window = globalThis as unknown as typeof window;
    this.kernels.setPanelVisible(true);
    new ActiveNotebookTracker(this.open.real, this.kernels, this.activities, 'en');
  }

  /** The connection of the first notebook. */
  get connection(): FakeConnection {
    return this.notebooks[0].connection;
  }

  async show(index: 0 | 1): Promise<void> {
    this.open.show(this.notebooks[index]);
    await this.settle();
  }

  receive(message: MemoryOwnership): void {
    this.activities.receive(message);
  }

  async settle(): Promise<void> {
    await settled();
    await settled();
  }

  get view(): KernelView {
    return this.kernels.view;
  }

  /** What the page shows about the kernel: its condition, and whether it is busy and was restarted. */
  get shown(): [string, boolean, boolean] {
    const { condition, busy, restarted } = this.view;
    return [condition.kind, busy, restarted];
  }
}

const BUSY = usage([serverKernel('one', { state: 'busy' })], []);
const IDLE = usage([serverKernel('one', { state: 'idle' })], []);

test('after a reload during a running cell, a tab switch does not make the kernel look restarted', async () => {
  const page = new Page();
  page.receive(BUSY);
  await page.settle();
  assert.deepEqual(page.shown, ['ready', true, false]);
  await page.show(1);
  await page.show(0);
  assert.deepEqual(page.shown, ['ready', true, false]);
  page.receive(IDLE);
  page.receive(BUSY);
  await page.settle();
  assert.deepEqual([page.view.condition.kind, page.view.restarted], ['ready', false]);
});

test('a cell that was started before the page was loaded ends with the message about its end', async () => {
  const page = new Page();
  page.receive(BUSY);
  await page.settle();
  assert.deepEqual(page.shown, ['ready', true, false]);
  page.connection.publish('idle', CELL);
  await page.settle();
  assert.deepEqual(page.shown, ['ready', false, false]);
  page.receive(BUSY); // The server sends this seldom, so it may be outdated.
  assert.deepEqual(page.shown, ['ready', false, false]);
});

test('the server tells that a kernel is busy, also for a notebook that becomes active later', async () => {
  const page = new Page();
  page.receive(usage([serverKernel('two', { state: 'busy' })], []));
  page.notebooks[1].connection.change('unknown');
  await page.show(1);
  assert.deepEqual(page.shown, ['ready', true, false]);
});

test('a kernel without a connection is unreachable, and busy again once the connection is back', async () => {
  const page = new Page();
  page.connection.begin();
  await page.settle();
  assert.deepEqual(page.shown, ['ready', true, false]);
  page.connection.connect('connecting');
  assert.deepEqual(page.shown, ['unreachable', false, false]);
  page.connection.connect('connected');
  assert.deepEqual(page.shown, ['ready', true, false]);
  const info = { msg_id: 'info', msg_type: 'kernel_info_request', session: CELL.session };
  page.connection.publish('busy', info); // The cell has ended meanwhile.
  page.connection.publish('idle', info);
  await page.settle();
  assert.deepEqual(page.shown, ['ready', false, false]);
});

test('before the first connection and during a restart, a kernel is not unreachable', async () => {
  const page = new Page();
  page.connection.connect('connecting');
  assert.equal(page.view.condition.kind, 'starting');
  page.connection.connect('connected');
  page.connection.publish('idle');
  await page.settle();
  page.connection.change('restarting');
  page.connection.connect('connecting');
  assert.equal(page.view.condition.kind, 'restarting');
});

test('another kernel of the notebook has nothing of the previous one', async () => {
  const page = new Page();
  page.connection.begin();
  await page.settle();
  page.notebooks[0].replace('starting');
  assert.equal(page.view.condition.kind, 'starting');
  page.notebooks[0].replace('');
  page.notebooks[0].setKernel(new FakeConnection('another'));
  assert.deepEqual([page.view.kernel?.id, ...page.shown], ['another', 'starting', false, false]);
  page.connection.publish('idle');
  await page.settle();
  assert.deepEqual(page.shown, ['ready', false, false]);
});

test('a kernel that is being shut down is not queried any more', async () => {
  const page = new Page();
  page.connection.publish('idle');
  await page.settle();
  page.notebooks[0].replace('terminating');
  assert.equal(page.view.condition.kind, 'dead');
  page.notebooks[0].replace('');
  page.notebooks[0].setKernel(null);
  assert.equal(page.view.condition.kind, 'no-kernel');
});

test('a dead kernel runs nothing and stays dead', async () => {
  const page = new Page();
  page.connection.begin();
  await page.settle();
  page.connection.change('dead');
  page.connection.dispose();
  await page.show(1);
  await page.show(0);
  assert.deepEqual(page.shown, ['dead', false, true]);
});

test('a cell that mentions gpuwidget causes a query when it has ended, no matter which page has started it', async () => {
  for (const [code, kind] of [
    ['%load_ext gpuwidget', 'ready'],
    ['import torch', 'not-loaded']
  ] as const) {
    const page = new Page();
    const { connection } = page;
    connection.answers = false;
    connection.publish('idle');
    await page.settle();
    assert.equal(page.view.condition.kind, 'not-loaded');
    connection.answers = true;
    connection.begin({ ...CELL, msg_id: 'of another page' }, 1, 0, code);
    await page.settle();
    assert.equal(page.view.condition.kind, 'not-loaded');
    connection.publish('idle', { ...CELL, msg_id: 'of another page' });
    await page.settle();
    assert.equal(page.view.condition.kind, kind);
  }
});

for (const another of [false, true]) {
  const where = another ? ' while another notebook is active' : '';
  test(`a kernel whose process another client has replaced${where} is reported as restarted`, async () => {
    const page = new Page();
    const { connection } = page;
    connection.publish('busy', CELL);
    connection.publish('idle', CELL);
    await page.settle();
    assert.deepEqual([page.view.condition.kind, page.view.restarted], ['ready', false]);
    if (another) {
      await page.show(1);
    }
    connection.answers = false;
    connection.publish('starting', {}, 'process 2');
    connection.publishUntracked('idle', CELL, 'process 2');
    await page.show(0);
    assert.deepEqual([page.view.condition.kind, page.view.restarted], ['not-loaded', true]);
  });

  test(`a kernel that JupyterLab restarts${where} is reported as restarted`, async () => {
    const page = new Page();
    const { connection } = page;
    connection.publish('busy', CELL);
    connection.publish('idle', CELL);
    await page.settle();
    if (another) {
      await page.show(1);
    }
    connection.answers = false;
    connection.change('restarting');
    connection.change('idle');
    connection.publish('idle', {}, 'process 2');
    await page.show(0);
    assert.deepEqual([page.view.condition.kind, page.view.restarted], ['not-loaded', true]);
  });
}
