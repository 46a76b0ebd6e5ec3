import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import './lab_stubs';
import { ActiveKernel } from '../src/model/kernel/activeKernel';
import type { KernelView } from '../src/model/kernel/kernels';
import { disabledReason, switchesLog, switchesSummary } from '../src/views/panel/switchesSection';
import { FakeKernel, FakeClock, ok, settled, torchSwitch, trans } from './fakes';
import type { KernelState } from '../src/wire/wire';

const ON = 'torch.backends.cudnn.benchmark = True';

/** Return the view of a kernel with this state. */
async function view(state: Partial<KernelState>): Promise<KernelView> {
  const kernels = new ActiveKernel(new FakeClock());
  const kernel = new FakeKernel();
  kernel.reply = ok(state);
  kernels.setPanelVisible(true);
  kernels.setActive({ name: 'train.ipynb', kernel });
  await settled();
  return kernels.view;
}

test('with all settings at their defaults nothing was run', async () => {
  const known = await view({ switches: [torchSwitch()] });
  assert.equal(switchesSummary(trans, known), 'all default');
  assert.equal(disabledReason(trans, known), '');
  assert.equal(switchesLog(trans, known, null), 'Changes appear here as the Python code that was run.');
});

test('the statements that were run are listed, the latest first', async () => {
  const known = await view({
    switches: [
      torchSwitch({ name: 'cudnn.enabled', default: 'on', value: 'on', statement: 'one = True\ntwo = True' }),
      torchSwitch({ value: 'on', statement: ON })
    ]
  });
  assert.equal(switchesSummary(trans, known), '1 changed');
  assert.equal(switchesLog(trans, known, 'cudnn.benchmark'), `Ran: ${ON}\nRan: one = True; two = True`);
});

test('a pending setting is listed as pending', async () => {
  const known = await view({ switches: [torchSwitch({ pending: 'on', statement: ON })] });
  assert.equal(switchesSummary(trans, known), '1 change in the next cell');
  assert.equal(switchesLog(trans, known, null), `Takes effect in the next cell: ${ON}`);
});

test('the reason of an unknown or rejected value is listed', async () => {
  const apart = 'TF32 is on for convolutions and off for recurrent layers.';
  const known = await view({ switches: [torchSwitch({ value: null, note: apart })] });
  assert.equal(switchesLog(trans, known, null), `cuDNN benchmark: ${apart}`);
  const failed = await view({ switches: [torchSwitch({ note: 'torch refused it.' })] });
  assert.equal(switchesLog(trans, failed, 'cudnn.benchmark'), 'cuDNN benchmark: torch refused it.');
});

test('without torch the log explains what to do', async () => {
  const without = await view({
    torch: null,
    switches: [torchSwitch({ value: null, note: 'torch is not imported yet.' })]
  });
  assert.equal(switchesSummary(trans, without), 'torch is not imported');
  assert.equal(
    disabledReason(trans, without),
    'torch is not imported in this kernel: import it in a cell first.'
  );
  assert.equal(switchesLog(trans, without, null), 'Import torch in a cell to use the switches.');
});

test('the log does not repeat why the kernel does not answer or is not ready', async () => {
  const known = await view({ switches: [torchSwitch({ value: 'on', statement: ON })] });
  const silent = { ...known, silentFor: 12 };
  assert.equal(disabledReason(trans, silent), 'The kernel does not answer: a long call blocks it.');
  assert.equal(switchesLog(trans, silent, null), `Ran: ${ON}`);
  const none = new ActiveKernel(new FakeClock()).view;
  assert.equal(switchesSummary(trans, none), '');
  assert.equal(disabledReason(trans, none), 'Open a notebook to choose its default device.');
  assert.equal(
    switchesLog(trans, none, null),
    'The switches are available once gpuwidget is loaded in the kernel.'
  );
});

test('a rejection comes first', async () => {
  const known = await view({ switches: [torchSwitch({ value: 'on', statement: ON })] });
  const refused = { ...known, rejection: { reason: 'torch refused it.', ask: 'set_switch' as const } };
  assert.equal(switchesLog(trans, refused, null), `torch refused it.\nRan: ${ON}`);
  assert.equal(
    switchesLog(trans, { ...known, rejection: { ...refused.rejection, ask: 'set_device' as const } }, null),
    `Ran: ${ON}`
  );
});
