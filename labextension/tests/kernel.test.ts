import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import type { KernelMessage } from '@jupyterlab/services';

import { ConnectedKernel, loadResult } from '../src/model/kernel/kernel';
import { KERNEL_SCHEMA } from '../src/wire/wire';
import { FakeClock } from './fakes';
import { FakeConnection } from './fakes_notebook';

function result(outcome: string, detail = ''): ReturnType<typeof loadResult> {
  const text = `'${outcome} ${Buffer.from(detail).toString('hex')}'`;
  return loadResult({ status: 'ok', data: { 'text/plain': text } });
}

test('the outcome of loading has its version or path, whatever characters it contains', () => {
  assert.deepEqual(result('loaded', '0.1.0'), { outcome: 'loaded', version: '0.1.0' });
  assert.deepEqual(result('loaded'), { outcome: 'loaded', version: null });
  const path = '/home/ada\'s "notes"\\n/日本/gpuwidget.py';
  assert.deepEqual(result('refused', path), { outcome: 'refused', path });
  assert.deepEqual(result('not-installed'), { outcome: 'not-installed' });
  assert.deepEqual(result('other-package'), { outcome: 'other-package' });
});

test('an exception and an unexpected value are failures with their text', () => {
  assert.deepEqual(loadResult({ status: 'error', ename: 'ImportError', evalue: 'no' }), {
    outcome: 'failed',
    reason: 'ImportError: no'
  });
  for (const text of ['None', "'gone 00'", "'loaded xyz'", "'refused'"]) {
    const value = { status: 'ok', data: { 'text/plain': text } } as const;
    assert.deepEqual(loadResult(value), { outcome: 'failed', reason: text });
  }
});

test('gpuwidget is loaded although failing cells abort what is queued behind them', async () => {
  const loaded = { load: { status: 'ok', data: { 'text/plain': "'loaded '" } } };
  const replies = [{ status: 'aborted' }, { status: 'aborted' }, { status: 'ok', user_expressions: loaded }];
  const connection = Object.assign(new FakeConnection(), {
    requestExecute: () => ({ done: Promise.resolve({ content: replies.shift() ?? { status: 'aborted' } }) })
  });
  const kernel = new ConnectedKernel(connection.real, 'en');
  assert.deepEqual(await kernel.load(), { outcome: 'loaded', version: null });
  assert.deepEqual(await kernel.load(), { outcome: 'failed', reason: 'aborted' });
});

test('in a page that has just connected, the time for the reply starts when JupyterLab sends its queue', async () => {
  globalThis.window = globalThis as unknown as typeof window;
  const timesOf = async (info: Promise<unknown>): Promise<unknown> => {
    const clock = new FakeClock();
    const silent = { done: new Promise(() => undefined), dispose: () => undefined };
    const connection = Object.assign(new FakeConnection(), { info, sendControlMessage: () => silent });
    const kernel = new ConnectedKernel(connection.real, 'en');
    const times: number[] = [];
    for (let request = 0; request < 2; request++) {
      const start = clock.now();
      const reply = kernel.request({ ask: 'state' }).then(() => times.push(clock.now() - start));
      await clock.pass(10_000);
      await reply;
    }
    assert.equal(clock.running, 0);
    return times;
  };
  const busy = new Promise(() => undefined);
  assert.deepEqual(await timesOf(busy), [5000, 2000]);
  assert.deepEqual(await timesOf(Promise.resolve()), [2000, 2000]);
  assert.deepEqual(await timesOf(Promise.reject(new Error('no info'))), [2000, 2000]);
});

test('a reply that arrives before the queue counts as sent leaves no timer', async () => {
  const clock = new FakeClock();
  globalThis.window = globalThis as unknown as typeof window;
  const future = {
    isDisposed: false,
    done: new Promise(() => undefined),
    onReply: null as ((reply: unknown) => void) | null,
    dispose: () => {
      future.isDisposed = true;
    }
  };
  const connection = Object.assign(new FakeConnection(), {
    info: new Promise(() => undefined),
    sendControlMessage: () => future
  });
  const reply = new ConnectedKernel(connection.real, 'en').request({ ask: 'state' });
  future.onReply?.({ header: { msg_type: 'other' }, content: {} });
  assert.equal(await reply, null);
  await clock.pass(3000);
  assert.equal(clock.running, 0);
});

test('every request has the version of the protocol and the language of the page', () => {
  const sent: KernelMessage.IMessage[] = [];
  const connection = Object.assign(new FakeConnection(), {
    sendControlMessage: (message: KernelMessage.IMessage) => {
      sent.push(message);
      return { done: new Promise(() => undefined), dispose: () => undefined };
    }
  });
  globalThis.window = globalThis as unknown as typeof window;
  new FakeClock(); // The timeout of the request never ends.
  void new ConnectedKernel(connection.real, 'de').request({ ask: 'watch', on: true });
  assert.deepEqual(
    sent.map(({ channel, content }) => [channel, content]),
    [['control', { schema: KERNEL_SCHEMA, ask: 'watch', on: true, locale: 'de' }]]
  );
});
