import './fakes_dom';

import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { Signal } from '@lumino/signaling';

import { PanelState } from '../src/model/panelState';
import { StatusMessage } from '../src/model/memory/statusMessage';
import { StreamModel } from '../src/model/stream/streamModel';
import type { DeviceSection } from '../src/views/panel/deviceSection';
import { GpuSection } from '../src/views/panel/gpuSection';
import type { HintSection } from '../src/views/panel/hintSection';
import type { MessageSection } from '../src/views/panel/messageSection';
import {
  FakeClock,
  GIB,
  gpu,
  gpuUsage,
  holding,
  kernelGpu,
  kernelState,
  reading,
  sample,
  serverKernel,
  usage
} from './fakes';
import { find, textOf, texts, updated } from './fakes_dom';
import { mountSection, panelContext, render } from './fakes_panel';
import type { KernelState, MemoryOwnership, Sample } from '../src/wire/wire';

/** The list of GPUs as the user sees it. */
class ShownList {
  readonly model = new StreamModel();
  readonly panelState = new PanelState(null);
  readonly message = new StatusMessage(new FakeClock());
  readonly chosen: string[] = [];
  /** The holders whose menus or tabs the user has opened. */
  readonly opened: unknown[] = [];
  readonly shownParts = { holders: true, bands: true };
  private readonly context = panelContext({});
  private readonly kernels = {
    state: null as KernelState | null,
    view: { kernel: { id: 'mine' }, silentFor: null }
  };
  private readonly kernelsChanged = new Signal<unknown, void>(this.kernels);
  private readonly device = {
    device: null as string | null,
    choose: (device: string) => this.chosen.push(device)
  };
  private readonly messageSection = { setAtHolder: () => undefined };
  readonly list = new GpuSection(
    panelContext({
      monitor: {
        ...this.context.monitor,
        model: this.model,
        kernels: Object.assign(this.kernels, { changed: this.kernelsChanged })
      },
      cells: { changed: this.context.monitor.changed, bands: () => [] },
      holders: {
        message: this.message,
        openMenu: (target: unknown, button: unknown) => this.opened.push(['menu', target, button]),
        goTo: (target: unknown) => this.opened.push(['tab', target])
      },
      settings: { ...this.context.settings, current: { show: this.shownParts } },
      panelState: this.panelState
    }),
    this.device as unknown as DeviceSection,
    { hints: [] } as unknown as HintSection,
    this.messageSection as unknown as MessageSection
  );

  constructor() {
    mountSection(this.list);
  }

  /** Show these messages of the server, this state of the kernel and this default device. */
  async show(
    newest: Sample,
    owned: MemoryOwnership | null = null,
    state: KernelState | null = null,
    device: string | null = null
  ): Promise<void> {
    this.model.take({ type: 'sample', sample: newest });
    if (owned !== null) {
      this.model.take(owned);
    }
    this.kernels.state = state;
    this.device.device = device;
    this.kernelsChanged.emit();
    render(this.list);
    await updated();
  }

  /** Let the user request a default device, to which the kernel has not replied yet. */
  async requestDevice(device: string): Promise<void> {
    this.device.device = device;
    this.kernelsChanged.emit();
    await updated();
  }

  card(index: number): HTMLElement {
    return find(this.list.node, `[data-gpu-uuid=GPU-${String(index)}]`);
  }

  part(index: number, name: string): HTMLElement {
    return find(this.card(index), `.jp-gpuwidget-${name}`);
  }
}

test('a GPU that is lost has no figures from before, and says since when and why', async () => {
  const shown = new ShownList();
  await shown.show(sample(1000));
  assert.equal(textOf(shown.part(0, 'gpu-utilization')), '50 %');
  const missing = Object.fromEntries(
    ['utilization', 'memory_used', 'power_w', 'temperature_c', 'sm_clock_mhz'].map(name => [
      name,
      'GPU is lost'
    ])
  );
  const values = Object.fromEntries(Object.keys(missing).map(name => [name, null]));
  await shown.show(sample(1020, [reading(0, { ...values, lost_since: 1010, missing })]));
  const card = shown.card(0);
  assert.deepEqual(
    [card.dataset.away, textOf(shown.part(0, 'gpu-unavailable')), shown.part(0, 'gpu-utilization').title],
    ['lost', 'lost', 'GPU is lost']
  );
  assert.match(textOf(shown.part(0, 'gpu-state')), /^Lost since \d\d:\d\d:\d\d: GPU is lost\.$/);
  assert.equal(textOf(shown.part(0, 'gpu-utilization')), 'n/a');
  assert.match(textOf(shown.part(0, 'gpu-memory')), /^Memory: n\/a/);
  assert.doesNotMatch(textOf(card), /50 %|35/);
});

test('values that a driver does not report are n/a with the reason, and never 0', async () => {
  const shown = new ShownList();
  const missing = { power_w: 'not supported', memory_used: 'not permitted' };
  await shown.show(sample(1000, [reading(0, { power_w: null, memory_used: null, missing })]));
  assert.match(textOf(shown.part(0, 'gpu-power')), /^n\/a/);
  assert.equal(shown.part(0, 'gpu-power').title, 'not supported');
  assert.equal(textOf(shown.part(0, 'gpu-memory')), 'Memory: n/a');
  assert.equal(find(shown.part(0, 'gpu-memory'), ':first-child').title, 'not permitted');
  assert.equal(textOf(shown.part(0, 'gpu-reasons')), 'Memory: not permitted\nPower: not supported');
});

test('heat is a warning, and the power cap, which full load reaches, is none', async () => {
  const shown = new ShownList();
  await shown.show(sample(1000, [reading(0, { throttle: ['power cap'] })]));
  assert.deepEqual(
    [textOf(shown.part(0, 'gpu-state')), shown.part(0, 'gpu-state').dataset.warm],
    ['Throttled (power cap)', undefined]
  );
  assert.equal(textOf(shown.part(0, 'gpu-warning')), '');
  await shown.show(sample(1001, [reading(0, { throttle: ['idle', 'power cap', 'too hot (hardware)'] })]));
  assert.deepEqual(
    [textOf(shown.part(0, 'gpu-state')), shown.part(0, 'gpu-state').dataset.warm],
    ['▲ Throttled (too hot (hardware), power cap)', 'true']
  );
  assert.equal(shown.part(0, 'gpu-warning').getAttribute('aria-label'), 'too hot (hardware)');
});

test('a click on a GPU’s row collapses the card, a click on its chip chooses the device, and both last', async () => {
  const shown = new ShownList();
  const state = kernelState({ gpus: [kernelGpu(0)] });
  await shown.show(sample(1000), null, state);
  const row = find<HTMLButtonElement>(shown.card(0), '.jp-gpuwidget-gpu-row');
  assert.deepEqual([shown.card(0).dataset.open, row.getAttribute('aria-expanded')], ['true', 'true']);
  row.click();
  assert.deepEqual([shown.card(0).dataset.open, row.getAttribute('aria-expanded')], ['false', 'false']);
  find<HTMLButtonElement>(shown.card(0), '.jp-gpuwidget-gpu-chip').click();
  assert.deepEqual([shown.chosen, shown.card(0).dataset.open], [['cuda:0'], 'false']);
  await shown.show(sample(1001), null, state, 'cuda:0');
  assert.deepEqual(
    [shown.card(0).dataset.open, shown.part(0, 'gpu-chip').getAttribute('aria-pressed')],
    ['false', 'true']
  );
  assert.equal(shown.panelState.isExpanded('GPU-0'), false);
});

test('a requested device is marked at once, without waiting for a sample or for the kernel', async () => {
  const shown = new ShownList();
  await shown.show(sample(1000), null, kernelState({ gpus: [kernelGpu(0)] }));
  assert.equal(shown.part(0, 'gpu-chip').getAttribute('aria-pressed'), 'false');
  await shown.requestDevice('cuda:0');
  assert.equal(shown.part(0, 'gpu-chip').getAttribute('aria-pressed'), 'true');
});

test('a GPU that disappears, such as a removed MIG slice, has no card', async () => {
  const shown = new ShownList();
  await shown.show(sample(1000, [reading(0), reading(1)]));
  const [, second] = [shown.card(0), shown.card(1)];
  const both = sample(1001, [reading(0), reading(1)]);
  await shown.show({ ...both, gpus: [gpu(1)], readings: [reading(1, { utilization: 7 })] });
  assert.equal(shown.list.node.children.length, 1);
  assert.equal(shown.card(1), second);
  assert.equal(textOf(shown.part(1, 'gpu-utilization')), '7 %');
});

const TRAIN = serverKernel('train', { state: 'busy', idle_since: null });
const MINE = serverKernel('mine');

test('each holder has its name, its state and its memory, and names are never markup', async () => {
  const shown = new ShownList();
  const program = '<img src=x>';
  await shown.show(
    sample(1060),
    usage(
      [TRAIN, MINE],
      [
        gpuUsage(
          0,
          [
            holding(20, { kernel: 'train' }),
            holding(9, { kernel: 'mine' }),
            holding(4, { pid: 7, user: 'ada', program })
          ],
          { unattributed: 2 * GIB }
        )
      ]
    )
  );
  assert.equal(shown.card(0).querySelector('img'), null);
  assert.deepEqual(texts(shown.card(0), '.jp-gpuwidget-holder'), [
    'mine.ipynb | idle 1 min | 9.0 GiB',
    'train.ipynb | busy | 20.0 GiB',
    'ada: <img src=x> | 4.0 GiB',
    'Unknown process | 2.0 GiB'
  ]);
  const [own, other] = shown.card(0).querySelectorAll('.jp-gpuwidget-holder');
  assert.deepEqual([own?.getAttribute('aria-current'), other?.getAttribute('aria-current')], ['true', null]);
});

test('only holders that Jupyter runs have actions, and a button keeps its holder when the list is redrawn', async () => {
  const shown = new ShownList();
  const holders = (first: number): MemoryOwnership =>
    usage(
      [TRAIN, serverKernel('eval')],
      [
        gpuUsage(0, [
          holding(first, { kernel: 'train' }),
          holding(9, { kernel: 'eval' }),
          holding(1, { pid: 7 })
        ])
      ]
    );
  await shown.show(sample(1000), holders(20));
  const buttons = [
    ...shown.card(0).querySelectorAll<HTMLButtonElement>('.jp-gpuwidget-holder:not([hidden]) button')
  ];
  assert.deepEqual(
    buttons.map(button => [button.disabled, button.getAttribute('aria-label')]),
    [
      [false, 'Actions for train.ipynb'],
      [false, 'Actions for eval.ipynb'],
      [true, null]
    ]
  );
  buttons[0]?.focus();
  await shown.show(sample(1001), holders(2));
  assert.equal(document.activeElement, buttons[0]);
  buttons[0]?.click();
  assert.deepEqual(shown.opened, [['menu', { kernel: 'train', terminal: null }, buttons[0]]]);
});

test('many holders are a list of five, and the memory of the others is a sum, or at least that much', async () => {
  const shown = new ShownList();
  const many = Array.from({ length: 8 }, (_, index) => holding(10 - index, { pid: index + 1 }));
  await shown.show(sample(1000), usage([], [gpuUsage(0, many)]));
  assert.equal(texts(shown.card(0), '.jp-gpuwidget-holder').length, 5);
  const more = find<HTMLButtonElement>(shown.card(0), '.jp-gpuwidget-panel-more');
  assert.equal(textOf(more), 'and 3 more | 12.0 GiB');
  await shown.show(sample(1001), usage([], [gpuUsage(0, [...many.slice(0, 7), holding(null, { pid: 9 })])]));
  assert.equal(textOf(more), 'and 3 more | ≥ 9.0 GiB');
  more.click();
  await shown.show(sample(1002));
  assert.equal(texts(shown.card(0), '.jp-gpuwidget-holder').length, 8);
  assert.equal(textOf(more), 'Show only the largest');
});

test('memory that PyTorch reports, and memory from an older reading, is marked as such', async () => {
  const shown = new ShownList();
  await shown.show(
    sample(1000),
    usage([TRAIN], [gpuUsage(0, [holding(20, { kernel: 'train', source: 'torch' })])])
  );
  assert.deepEqual(texts(shown.card(0), '.jp-gpuwidget-holder'), ['train.ipynb | torch | busy | 20.0 GiB']);
  await shown.show(
    sample(1001),
    usage([TRAIN], [gpuUsage(0, [holding(20, { kernel: 'train' })], { older: true })])
  );
  assert.deepEqual(texts(shown.card(0), '.jp-gpuwidget-holder'), ['train.ipynb | older | busy | 20.0 GiB']);
});

test('if it is unknown who holds the memory, the card has the reason, and nobody is named', async () => {
  const shown = new ShownList();
  const unknown = usage([TRAIN], [gpuUsage(0, [], { unattributed: null, reason: 'The driver refuses.' })]);
  await shown.show(sample(1000), unknown);
  assert.deepEqual(texts(shown.card(0), '.jp-gpuwidget-holder'), []);
  assert.equal(textOf(shown.part(0, 'holder-reason')), 'The driver refuses.');
  await shown.show(sample(1001), { ...unknown, gpus: [...unknown.gpus, ...unknown.gpus] });
  assert.equal(textOf(shown.part(0, 'holder-reason')), '');
});

test('the result of an action is at one line of its kernel, which keeps it', async () => {
  const shown = new ShownList();
  const both = usage(
    [TRAIN],
    [gpuUsage(0, [holding(20, { kernel: 'train' })]), gpuUsage(1, [holding(3, { kernel: 'train' })])]
  );
  shown.message.set('Freed 2 GiB.', 'result', 'train');
  for (const time of [1000, 1001]) {
    await shown.show(sample(time, [reading(0), reading(1)]), both);
    assert.deepEqual(texts(shown.list.node, '.jp-gpuwidget-holder-result'), ['Freed 2 GiB.', '']);
  }
});

test('holders that the settings hide are nowhere, also not in the row', async () => {
  const shown = new ShownList();
  const owned = usage([TRAIN], [gpuUsage(0, [holding(20, { kernel: 'train' })])]);
  shown.shownParts.holders = false;
  await shown.show(sample(1000), owned);
  assert.doesNotMatch(textOf(shown.list.node), /train/);
  assert.equal(shown.list.node.dataset.users, 'none');
});
