import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { Kernels, type KernelView } from '../src/kernel/kernels';
import { switchLines, switchReason, switchSummary } from '../src/panel/switchWords';
import { FakeKernel, FakeClock, ok, settled, torchSwitch, trans } from './fakes';
import type { KernelState } from '../src/wire';

const ON = 'torch.backends.cudnn.benchmark = True';

/** What is known of a kernel that tells `state`. */
async function view(state: Partial<KernelState>): Promise<KernelView> {
  const kernels = new Kernels(new FakeClock());
  const kernel = new FakeKernel();
  kernel.answer = ok(state);
  kernels.start();
  kernels.show({ notebook: 'train.ipynb', kernel, phase: 'idle' });
  await settled();
  return kernels.view;
}

test('all at their defaults, nothing was run', async () => {
  const known = await view({ switches: [torchSwitch()] });
  assert.equal(switchSummary(trans, known), "torch's defaults");
  assert.equal(switchReason(trans, known), '');
  assert.equal(switchLines(trans, known, null), 'What is set here is told here, as the Python that was run.');
});

test('what was run is told as it was run, the latest first', async () => {
  const known = await view({
    switches: [
      torchSwitch({ name: 'cudnn.enabled', default: 'on', value: 'on', statement: 'one = True\ntwo = True' }),
      torchSwitch({ value: 'on', statement: ON })
    ]
  });
  assert.equal(switchSummary(trans, known), '1 changed');
  assert.equal(switchLines(trans, known, 'cudnn.benchmark'), `ran: ${ON}\nran: one = True; two = True`);
});

test('what waits for the next cell is told as waiting', async () => {
  const known = await view({ switches: [torchSwitch({ pending: 'on', statement: ON })] });
  assert.equal(switchSummary(trans, known), '1 from the next cell');
  assert.equal(switchLines(trans, known, null), `from the next cell: ${ON}`);
});

test('why a value is not known, or was not set, is told', async () => {
  const apart = 'TF32 is on for convolutions and off for recurrent layers.';
  const known = await view({ switches: [torchSwitch({ value: null, note: apart })] });
  assert.equal(switchLines(trans, known, null), `cuDNN benchmark: ${apart}`);
  const failed = await view({ switches: [torchSwitch({ note: 'torch refused it.' })] });
  assert.equal(switchLines(trans, failed, 'cudnn.benchmark'), 'cuDNN benchmark: torch refused it.');
});

test('without torch, or without an answer, the reason is told and nothing else', async () => {
  const without = await view({
    torch: null,
    switches: [torchSwitch({ value: null, note: 'torch is not imported yet.' })]
  });
  assert.equal(switchSummary(trans, without), 'torch is not imported');
  assert.equal(
    switchReason(trans, without),
    'torch is not imported in this kernel: import it in a cell first.'
  );
  assert.equal(switchLines(trans, without, null), '');
  const silent = { ...(await view({ switches: [torchSwitch()] })), silentFor: 12 };
  assert.equal(switchReason(trans, silent), 'The kernel does not answer: a long call holds it.');
  const none = new Kernels(new FakeClock()).view;
  assert.equal(switchSummary(trans, none), '');
  assert.equal(switchReason(trans, none), 'Open a notebook to see its switches.');
});

test('a refusal comes first', async () => {
  const known = await view({ switches: [torchSwitch({ value: 'on', statement: ON })] });
  const refused = { ...known, refusal: 'torch refused it.', refused: 'set_switch' as const };
  assert.equal(switchLines(trans, refused, null), `torch refused it.\nran: ${ON}`);
  assert.equal(switchLines(trans, { ...refused, refused: 'set_device' as const }, null), `ran: ${ON}`);
});
