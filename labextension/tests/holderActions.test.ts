import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import './lab_stubs';
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { ServerConnection } from '@jupyterlab/services';

import { disabledFreeCacheLabel, HolderActions } from '../src/views/memory/holderActions';
import type { KernelView } from '../src/model/kernel/kernels';
import { ActionResult, StatusMessage } from '../src/model/memory/statusMessage';
import { currentState, StreamModel } from '../src/model/stream/streamModel';
import type { IMonitor } from '../src/tokens';
import {
  FakeClock,
  gpuUsage,
  holding,
  kernelGpu,
  kernelState,
  liveData,
  reading,
  sample,
  serverKernel,
  staleData,
  trans,
  usage
} from './fakes';

/** Return the actions on the kernels of a server that has those with the ids `running`. */
function setUp(running: readonly string[]): {
  actions: HolderActions;
  model: StreamModel;
  monitor: { data: IMonitor['data'] };
  message: StatusMessage;
  ended: string[];
} {
  const ended: string[] = [];
  const model = new StreamModel();
  model.take({ type: 'sample', sample: sample(1, [reading(0)]) });
  model.take(usage([serverKernel('train')], [gpuUsage(0, [holding(3, { kernel: 'train' })])]));
  const answer = (id: string): Response =>
    running.includes(id)
      ? new Response(JSON.stringify({ id, name: 'python3' }))
      : new Response('{}', { status: 404 });
  const serverSettings = ServerConnection.makeSettings({
    baseUrl: 'http://localhost/',
    fetch: request =>
      Promise.resolve(answer(new URL((request as Request).url).pathname.split('/').at(-1) ?? ''))
  });
  const services = {
    serverSettings,
    // As in Jupyter's own interface, a kernel that the server does not have is no error.
    kernels: {
      shutdown: (id: string) => {
        ended.push(id);
        return Promise.resolve();
      }
    },
    sessions: { running: () => [] }
  };
  const message = new StatusMessage(new FakeClock());
  const app = { serviceManager: services } as unknown as JupyterFrontEnd;
  const monitor = { data: liveData(model) };
  const actions = new HolderActions(app, monitor, message, trans, 'en');
  return { actions, model, monitor, message, ended };
}

test('the message about a kernel that was shut down says what it held', async () => {
  const { actions, message, ended } = setUp(['train']);
  await actions.shutDownNow('train');
  assert.deepEqual(
    [message.text, ended],
    ['The kernel of train.ipynb was shut down. It held 3.0 GiB on GPU 0.', ['train']]
  );
});

test('what a kernel holds is unknown without current data, and its name is still known', async () => {
  const { actions, model, monitor, message } = setUp(['train']);
  monitor.data = staleData(model);
  await actions.shutDownNow('train');
  assert.equal(message.text, 'The kernel of train.ipynb was shut down.');
});

test('a kernel that no longer existed was not shut down', async () => {
  const { actions, message, ended } = setUp([]);
  await actions.shutDownNow('train');
  assert.deepEqual([message.text, ended], ['The kernel of train.ipynb had already ended.', []]);
});

test('torch’s cache can’t be freed where torch or gpuwidget is not loaded, and the menu says so', () => {
  const label = (condition: KernelView['condition'], kernel: string | null = 'mine'): string | null =>
    disabledFreeCacheLabel(trans, { view: { kernel: { id: 'mine' }, condition } as KernelView }, kernel);
  const state = kernelState();
  const ready = (changes: Partial<typeof state>): string | null =>
    label({ kind: 'ready', state: { ...state, ...changes } });
  assert.equal(ready({ torch: '2.9', cuda_initialized: true }), null);
  assert.equal(
    ready({ torch: '2.9', cuda_initialized: false }),
    'Free PyTorch Cache (PyTorch has not used a GPU)'
  );
  assert.equal(ready({ torch: null }), 'Free PyTorch Cache (torch is not imported)');
  assert.equal(label({ kind: 'not-python', language: 'R' }), 'Free PyTorch Cache (not a Python kernel)');
  assert.equal(label({ kind: 'not-loaded' }, null), 'Free PyTorch Cache (gpuwidget is not loaded)');
  assert.equal(label({ kind: 'dead' }), 'Free PyTorch Cache (the kernel has died)');
  assert.equal(label({ kind: 'restarting' }), 'Free PyTorch Cache (the kernel is starting)');
  assert.equal(label({ kind: 'unreachable' }), 'Free PyTorch Cache (the kernel cannot be reached)');
  assert.equal(label({ kind: 'not-installed' }), 'Free PyTorch Cache (not available in this kernel)');
  // It is unknown what another kernel has loaded.
  assert.equal(label({ kind: 'not-loaded' }, 'another'), null);
  assert.equal(label({ kind: 'querying' }), null);
});

test('the result of an action is at one line, which keeps it when it is updated again', () => {
  const result = new ActionResult('mine', 'done');
  const [other, first, second] = [{}, {}, {}];
  const texts = (): string[] => [
    result.at(other, 'another'),
    result.at(first, 'mine'),
    result.at(second, 'mine')
  ];
  assert.deepEqual(texts(), ['', 'done', '']);
  assert.deepEqual(texts(), ['', 'done', '']);
  assert.equal(result.shown, true);
});

test('the memory figures of a kernel that does not reply are unknown', () => {
  const state = kernelState({ gpus: [kernelGpu(0, { process_memory: 5 })] });
  const memory = (silentFor: number | null): (number | null)[] | undefined =>
    currentState({ state, view: { silentFor } })?.gpus.map(gpu => gpu.process_memory);
  assert.deepEqual([memory(null), memory(30)], [[5], [null]]);
});
