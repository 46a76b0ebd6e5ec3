import type { TranslationBundle } from '@jupyterlab/translation';

import { DeviceDropdown } from './deviceDropdown';
import { withFreeNow } from './emptiest';
import { element, setAttribute, Text } from '../ui/dom';
import type { Kernel } from '../kernel/kernel';
import type { Kernels } from '../kernel/kernels';
import { NoticeView } from './notice';
import type { GpuNow, ServerInfo } from '../stream/streamModel';
import type { KernelRequest, KernelState } from '../wire';
import { deviceNotes, emptiestTaken, kernelNotice } from './words';

/** The notebook in front: its default device, and whether its cells are watched. Always there. */
export class KernelSection {
  readonly node: HTMLElement;
  private readonly notebook = new Text('notebook', 'b');
  private readonly busy = new Text('busy');
  private readonly dropdown: DeviceDropdown;
  private readonly watch = element('button', 'watch jp-Button jp-mod-styled');
  private readonly tensors = element('input', '');
  private readonly mode: HTMLElement;
  private readonly notes = new Text('notes', 'div');
  private readonly notice: NoticeView;
  private shown: Kernel | null = null;

  constructor(
    private readonly trans: TranslationBundle,
    private readonly kernels: Kernels,
    say: (sentence: string) => void
  ) {
    this.dropdown = new DeviceDropdown(trans, (device, asEmptiest) => {
      say(asEmptiest === null ? '' : emptiestTaken(trans, asEmptiest));
      void kernels.choose(device, this.tensors.checked);
    });
    this.watch.type = 'button';
    this.watch.textContent = trans.__('Watch');
    this.watch.title = trans.__(
      'Annotate every cell of this notebook with what it did to the GPU (%gpu watch on)'
    );
    this.watch.onclick = () => {
      void kernels.watch(this.watch.getAttribute('aria-pressed') !== 'true');
    };
    this.tensors.type = 'checkbox';
    this.tensors.checked = true;
    this.tensors.onchange = () => {
      const state = kernels.state;
      if (state !== null && state.device.chosen !== null) {
        void kernels.choose(state.device.chosen, this.tensors.checked);
      }
    };
    this.mode = element('label', 'mode', this.tensors, trans.__('New tensors too (1–2 µs a call)'));
    this.mode.title = trans.__(
      'Off: only the current CUDA device moves, which is what "cuda" without an index means, and costs nothing. On: tensors made without a device go there too, which costs every torch call 1–2 µs.'
    );
    this.notice = new NoticeView(trans, () => {
      void kernels.load();
    });
    this.node = element(
      'section',
      'kernel',
      element(
        'div',
        'title',
        element('span', 'label', trans.__('Default device of '), this.notebook.node),
        this.busy.node
      ),
      element('div', 'choose', this.dropdown.node, this.watch),
      this.mode,
      this.notes.node,
      this.notice.node
    );
    this.node.setAttribute('aria-label', trans.__('The notebook in front'));
  }

  /** Show what is known of the kernel; `server` is what the server said of itself, `gpus` are what it sees now. */
  update(server: ServerInfo | null, gpus: readonly GpuNow[]): void {
    const { view, state, age } = this.kernels;
    const notice = kernelNotice(this.trans, view, server);
    this.notebook.set(view.notebook ?? this.trans.__('(no notebook)'), view.notebook ?? '');
    this.busy.set(
      view.busy ? this.trans.__('busy') : '',
      view.busy ? this.trans.__('The kernel is running a cell: a choice holds from the next one') : ''
    );
    // A wish shows as granted until its answer comes: else what was just clicked would jump back.
    const { wished } = view;
    const device = wished?.ask === 'set_device' ? wished.device : (state?.device.chosen ?? null);
    const choices = withFreeNow(state?.choices ?? [], gpus, age);
    this.dropdown.show(state, choices, device, notice?.text ?? state?.unavailable ?? '');
    this.watch.disabled = state === null;
    const watching = wished?.ask === 'watch' ? wished.on : (state?.watching ?? false);
    setAttribute(this.watch, 'aria-pressed', String(watching));
    this.tensors.disabled = state === null || state.choices.length === 0;
    this.showMode(view.kernel, state, wished);
    setAttribute(this.notes.node, 'aria-live', view.silentFor === null ? 'polite' : 'off');
    this.notes.set(deviceNotes(this.trans, view, server?.version ?? null));
    this.notice.show(notice);
  }

  /** Where nothing is chosen the box is the user's, until another notebook comes to the front. */
  private showMode(kernel: Kernel | null, state: KernelState | null, wished: KernelRequest | null): void {
    if (kernel !== this.shown) {
      this.shown = kernel;
      this.tensors.checked = true;
    }
    if (wished === null && state !== null && state.device.chosen !== null) {
      this.tensors.checked = state.device.new_tensors;
    }
  }

  /** Put the keyboard on the dropdown. */
  focus(): void {
    this.dropdown.node.focus();
  }
}
