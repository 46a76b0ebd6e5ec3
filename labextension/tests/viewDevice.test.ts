import './fakes_dom';

import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { ActiveKernel } from '../src/model/kernel/activeKernel';
import type { Phase } from '../src/model/kernel/kernelActivity';
import { PanelState } from '../src/model/panelState';
import { DeviceSection } from '../src/views/panel/deviceSection';
import type { DeviceChoice, KernelState } from '../src/wire/wire';
import { FakeClock, FakeKernel, GIB, kernelState, ok, settled } from './fakes';
import { choose, find, press, textOf, texts } from './fakes_dom';
import { mountSection, panelContext, render } from './fakes_panel';

function choice(index: number, free: number | null): DeviceChoice {
  return {
    device: `cuda:${String(index)}`,
    uuid: `GPU-${String(index)}`,
    index,
    name: 'NVIDIA H200',
    compute_capability: '9.0',
    memory_total: 140 * GIB,
    memory_free: free === null ? null : free * GIB,
    unified_memory: false,
    holders: [],
    candidates: []
  };
}

const CHOICES = [choice(0, 20), choice(1, 120)];

function device(chosen: string | null, changes: Partial<KernelState['device']> = {}): KernelState['device'] {
  return { chosen, new_tensors: true, pending: false, present: chosen ?? 'cuda:0', note: null, ...changes };
}

/** The section for a notebook's kernel, as the user sees it. */
class Shown {
  readonly clock = new FakeClock();
  readonly kernels = new ActiveKernel(this.clock);
  readonly kernel = new FakeKernel();
  readonly panelState = new PanelState(null);
  readonly messages: string[] = [];
  readonly section = new DeviceSection(
    panelContext({
      monitor: { ...panelContext({}).monitor, kernels: this.kernels },
      panelState: this.panelState,
      clock: this.clock,
      holders: { message: { set: (sentence: string) => this.messages.push(sentence) } }
    })
  );
  readonly select = find<HTMLSelectElement>(this.section.node, 'select');

  constructor(changes: Partial<KernelState> | null = {}) {
    this.kernel.reply = changes === null ? null : ok({ choices: CHOICES, device: device(null), ...changes });
    this.kernels.setPanelVisible(true);
    mountSection(this.section);
  }

  async show(phase: Phase = 'idle'): Promise<void> {
    this.kernel.activity.set(phase);
    this.kernels.setActive({ name: 'train.ipynb', kernel: this.kernel });
    await settled();
    this.update();
  }

  update(): void {
    render(this.section);
  }

  part(name: string): HTMLElement {
    return find(this.section.node, `.jp-gpuwidget-device-${name}`);
  }

  /** What the page has asked the kernel to change. */
  get changes(): unknown[] {
    return this.kernel.requests.filter(({ ask }) => ask !== 'state');
  }
}

test('the dropdown offers each device with its free memory, and the GPU with the most', async () => {
  const shown = new Shown();
  await shown.show();
  assert.deepEqual(texts(shown.select, 'option'), [
    'PyTorch default (cuda:0)',
    'cuda:0 · H200 · 20 GiB free',
    'cuda:1 · H200 · 120 GiB free',
    'Most free memory (now cuda:1)',
    '☑ Also for new tensors (+1–3 µs per torch call)'
  ]);
  assert.deepEqual([shown.select.disabled, shown.select.value], [false, '']);
});

test('a choice stays selected until the kernel has replied, and a rejection restores the device with its reason', async () => {
  const shown = new Shown();
  await shown.show();
  const reply = shown.kernel.hold();
  choose(shown.select, 'cuda:1');
  await settled();
  shown.update();
  assert.deepEqual(
    [shown.select.value, textOf(shown.part('notebook'))],
    ['cuda:1', 'next cell runs on cuda:1']
  );
  const state = kernelState({ choices: CHOICES, device: device(null) });
  reply({ status: 'error', reason: 'There is no cuda:1.', state });
  await settled();
  shown.update();
  assert.deepEqual([shown.select.value, textOf(shown.part('notes'))], ['', 'There is no cuda:1.']);
});

test('the GPU with the most free memory is chosen by its name, since another one may have more later', async () => {
  const shown = new Shown();
  await shown.show();
  shown.kernel.reply = ok({ choices: CHOICES, device: device('cuda:1') });
  choose(shown.select, 'most-free');
  await settled();
  assert.deepEqual(shown.changes, [{ ask: 'set_device', device: 'cuda:1', new_tensors: true }]);
  assert.equal(shown.select.value, 'cuda:1');
  assert.equal(shown.messages.length, 1);
  assert.match(shown.messages[0] ?? '', /cuda:1/);
});

test('the option for new tensors changes no device unless one is chosen', async () => {
  const shown = new Shown();
  await shown.show();
  choose(shown.select, 'new-tensors');
  await settled();
  shown.update();
  assert.deepEqual([shown.changes, shown.panelState.newTensors, shown.select.value], [[], false, '']);
  assert.equal(texts(shown.select, 'option').at(-1), '☐ Also for new tensors (+1–3 µs per torch call)');
  choose(shown.select, 'cuda:0');
  await settled();
  assert.deepEqual(shown.changes, [{ ask: 'set_device', device: 'cuda:0', new_tensors: false }]);
});

test('an open list stays open: options are updated in place', async () => {
  const shown = new Shown();
  await shown.show();
  const before = [...shown.select.options];
  shown.kernel.reply = ok({ choices: [choice(0, 90), choice(1, 10)], device: device(null) });
  await shown.clock.pass(3000);
  shown.update();
  assert.deepEqual([...shown.select.options], before);
  assert.equal(before[1]?.text, 'cuda:0 · H200 · 90 GiB free');
});

test('arrow keys and letters open the list instead of choosing a device', async () => {
  const shown = new Shown();
  await shown.show();
  let opened = 0;
  shown.select.showPicker = () => opened++;
  shown.select.focus();
  const left = ['ArrowDown', 'End', 'c', 'Tab', 'Enter', ' '].map(press);
  assert.deepEqual([left, opened], [[false, false, false, true, true, true], 3]);
  assert.deepEqual(shown.changes, []);
});

test('while a cell runs, the section says busy, but does not announce it', async () => {
  const shown = new Shown();
  await shown.show('busy');
  assert.equal(textOf(shown.part('busy')), 'busy');
  assert.equal(
    shown.part('busy').title,
    'The kernel is running a cell. A choice takes effect in the next cell'
  );
  assert.equal(textOf(shown.part('announcement')), '');
  await shown.show('idle');
  assert.deepEqual([textOf(shown.part('busy')), shown.part('busy').title], ['', '']);
});

test('what the next cell runs on is announced for two seconds, or until a running cell has ended', async () => {
  const shown = new Shown();
  await shown.show();
  shown.kernel.reply = ok({ choices: CHOICES, device: device('cuda:1') });
  choose(shown.select, 'cuda:1');
  await settled();
  shown.update();
  assert.equal(textOf(shown.part('announcement')), 'next cell runs on cuda:1');
  await shown.clock.pass(2000);
  assert.deepEqual([textOf(shown.part('announcement')), textOf(shown.part('notebook'))], ['', 'train.ipynb']);
  shown.kernel.reply = ok({ choices: CHOICES, device: device('cuda:1', { pending: true }) });
  await shown.show('busy');
  await shown.clock.pass(6000);
  shown.update();
  assert.equal(textOf(shown.part('notebook')), 'next cell runs on cuda:1');
});

test('two quick clicks on Watch cells undo each other', async () => {
  const shown = new Shown();
  await shown.show();
  const replies = [shown.kernel.hold(), shown.kernel.hold()];
  shown.part('watch').click();
  shown.part('watch').click();
  await settled();
  assert.deepEqual(shown.changes, [
    { ask: 'watch', on: true },
    { ask: 'watch', on: false }
  ]);
  replies.forEach((reply, index) => {
    reply(ok({ choices: CHOICES, watching: index === 0 }));
  });
  await settled();
  shown.update();
  assert.equal(shown.part('watch').getAttribute('aria-pressed'), 'false');
});

test('without gpuwidget in the kernel, the dropdown is disabled with the reason, and the button loads it', async () => {
  const shown = new Shown(null);
  await shown.show();
  const reason = 'gpuwidget is not loaded in this kernel.';
  assert.deepEqual([shown.select.disabled, shown.select.title], [true, reason]);
  const notice = find(shown.section.node, '.jp-gpuwidget-notice');
  assert.equal(textOf(notice), `${reason} | Load gpuwidget`);
  shown.section.focus(document.body);
  assert.equal(textOf(document.activeElement ?? notice), 'Load gpuwidget');
  shown.kernel.reply = ok({ choices: CHOICES, device: device(null) });
  find<HTMLButtonElement>(notice, 'button').click();
  await settled();
  shown.update();
  assert.deepEqual([shown.select.disabled, notice.hidden], [false, true]);
});

test('a kernel that is soon ready says so in the dropdown, and nothing moves', async () => {
  const shown = new Shown();
  await shown.show('restarting');
  const notice = find(shown.section.node, '.jp-gpuwidget-notice');
  assert.deepEqual(
    [texts(shown.select, 'option'), shown.select.disabled, notice.hidden],
    [['The kernel is restarting.'], true, true]
  );
});

test('a kernel that has stopped answering is silent, and its age is not announced every second', async () => {
  const shown = new Shown();
  await shown.show('busy');
  shown.kernel.reply = null;
  await shown.clock.pass(9000);
  shown.update();
  assert.equal(textOf(shown.part('notes')), 'The kernel has not answered for 9 s: a long call blocks it.');
  assert.equal(shown.part('notes').getAttribute('aria-live'), 'off');
});
