import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import type { Kernel, KernelMessage } from '@jupyterlab/services';

import { ConnectedKernel, loadResult } from '../src/model/kernel/kernel';
import { KERNEL_SCHEMA } from '../src/wire/wire';
import { FakeClock } from './fakes';

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
  const connection = {
    requestExecute: () => ({ done: Promise.resolve({ content: replies.shift() ?? { status: 'aborted' } }) })
  } as unknown as Kernel.IKernelConnection;
  const kernel = new ConnectedKernel(connection, 'en');
  assert.deepEqual(await kernel.load(), { outcome: 'loaded', version: null });
  assert.deepEqual(await kernel.load(), { outcome: 'failed', reason: 'aborted' });
});

test('every request has the version of the protocol and the language of the page', () => {
  const sent: KernelMessage.IMessage[] = [];
  const connection = {
    clientId: 'this page',
    username: 'ada',
    sendControlMessage: (message: KernelMessage.IMessage) => {
      sent.push(message);
      return { done: new Promise(() => undefined), dispose: () => undefined };
    }
  } as unknown as Kernel.IKernelConnection;
  globalThis.window = globalThis as unknown as typeof window;
  new FakeClock(); // The timeout of the request never ends.
  void new ConnectedKernel(connection, 'de').request({ ask: 'watch', on: true });
  assert.deepEqual(
    sent.map(({ channel, content }) => [channel, content]),
    [['control', { schema: KERNEL_SCHEMA, ask: 'watch', on: true, locale: 'de' }]]
  );
});
