import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import type { LabIcon } from '@jupyterlab/ui-components';

import type { ActionTarget } from '../src/model/memory/holders';
import { holderOf, RunningHolders } from '../src/views/memory/runningHolders';
import { StreamModel } from '../src/model/stream/streamModel';
import type { IMonitor } from '../src/tokens';
import { gpuUsage, holding, liveData, reading, sample, serverKernel, staleData, trans, usage } from './fakes';

function setUp(): {
  section: RunningHolders;
  model: StreamModel;
  monitor: { data: IMonitor['data'] };
  actions: [string, ActionTarget | string][];
} {
  const actions: [string, ActionTarget | string][] = [];
  const model = new StreamModel();
  model.take({ type: 'sample', sample: sample(1, [reading(0), reading(1)]) });
  model.take(
    usage(
      [serverKernel('train'), serverKernel('eval', { kind: 'console', name: 'Console 1' })],
      [
        gpuUsage(0, [
          holding(3, { kernel: 'train' }),
          holding(9, { pid: 7 }),
          holding(0, { kernel: 'eval' })
        ]),
        gpuUsage(1, [holding(18, { kernel: 'train' }), holding(20, { terminal: '1' })])
      ]
    )
  );
  const icon = { name: 'icon' } as unknown as LabIcon;
  const handlers = {
    goTo: (target: ActionTarget) => {
      actions.push(['goTo', target]);
    },
    confirmShutDown: (kernel: string) => {
      actions.push(['confirmShutDown', kernel]);
    },
    shutDownNow: (kernel: string) => {
      actions.push(['shutDownNow', kernel]);
    }
  };
  const monitor = { data: liveData(model) };
  const section = new RunningHolders(
    trans,
    monitor,
    handlers,
    () => icon,
    () => undefined
  );
  return { section, model, monitor, actions };
}

test('kernels and terminals that hold memory are listed with it, the largest first', () => {
  const items = setUp().section.running();
  assert.deepEqual(
    items.map(item => [item.label(), item.detail?.(), item.shutdown !== undefined]),
    [
      ['train.ipynb', '21.0 GiB · GPUs 0, 1', true],
      ['terminal 1', '20.0 GiB · GPU 1', false]
    ]
  );
});

test('the tooltip of an item has the memory on each GPU', () => {
  const [train] = setUp().section.running();
  assert.equal(
    train?.labelTitle?.(),
    'train.ipynb · kernel python3 (train)\n3.0 GiB on GPU 0\n18.0 GiB on GPU 1'
  );
});

test('an item opens its holder, and its button shuts the kernel down; all are shut down after one question', () => {
  const { section, actions } = setUp();
  const [train, terminal] = section.running();
  train?.open?.();
  train?.shutdown?.();
  terminal?.open?.();
  section.shutdownAll();
  assert.deepEqual(actions, [
    ['goTo', { kernel: 'train', terminal: null }],
    ['confirmShutDown', 'train'],
    ['goTo', { kernel: null, terminal: '1' }],
    ['shutDownNow', 'train']
  ]);
});

test('the list changes only if its texts change', () => {
  const { section, model } = setUp();
  let changes = 0;
  section.runningChanged.connect(() => changes++);
  section.update();
  section.update();
  assert.equal(changes, 1);
  model.take(usage([], []));
  section.update();
  assert.equal(changes, 2);
});

test('the context of an item names its kernel or terminal', () => {
  const contexts = setUp()
    .section.running()
    .map(({ context }) => context);
  assert.deepEqual(contexts, ['gpuwidget:kernel:train', 'gpuwidget:terminal:1']);
  assert.deepEqual(
    [...contexts, 'running-kernel'].map(context =>
      holderOf({ dataset: { context } } as unknown as HTMLElement)
    ),
    [{ kernel: 'train', terminal: null }, { kernel: null, terminal: '1' }, null]
  );
});

test('holders are listed, and shut down together, only while they are known', () => {
  const { section, model, monitor, actions } = setUp();
  monitor.data = staleData(model);
  section.update();
  section.shutdownAll();
  assert.deepEqual([section.running(), actions], [[], []]);
  monitor.data = liveData(model);
  assert.equal(section.running().length, 2);
});
