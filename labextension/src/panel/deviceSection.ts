import type { TranslationBundle } from '@jupyterlab/translation';

import {
  choiceText,
  defaultText,
  emptiestChosenText,
  emptiestGpu,
  emptiestText,
  withCurrentFree
} from './deviceChoices';
import { orderNotes } from './deviceOrder';
import { NoticeView } from './notice';
import { deviceNotes, kernelNotice } from './panelMessages';
import type { PanelState } from './panelState';
import type { ActiveKernel } from '../kernel/activeKernel';
import type { GpuNow, ServerInfo } from '../stream/streamModel';
import { element, openListOnKeys, setAttribute, Text } from '../ui/dom';
import type { DeviceChoice, KernelState } from '../wire';

const SLOT = '\u0000';

/**
 * The section with the active notebook's default device, and the button that turns watching of its cells on
 * or off.
 */
export class DeviceSection {
  readonly node: HTMLElement;
  private readonly notebook = new Text('device-notebook', 'b');
  private readonly busy = new Text('device-busy');
  private readonly dropdown: DeviceDropdown;
  private readonly watch = element('button', 'button jp-gpuwidget-device-watch');
  private readonly newTensors = element('input', '');
  private readonly order = new Text('device-order', 'div');
  private readonly notes = new Text('device-notes', 'div');
  private readonly notice: NoticeView;

  constructor(
    private readonly trans: TranslationBundle,
    private readonly kernels: ActiveKernel,
    private readonly panelState: PanelState,
    showMessage: (sentence: string) => void
  ) {
    this.dropdown = new DeviceDropdown(trans, (device, emptiestChoice) => {
      showMessage(emptiestChoice === null ? '' : emptiestChosenText(trans, emptiestChoice));
      void kernels.setDevice(device, this.newTensors.checked);
    });
    this.watch.type = 'button';
    this.watch.textContent = trans.__('Watch');
    this.watch.title = trans.__(
      'Annotate every cell of this notebook with what it did to the GPU (%gpu watch on)'
    );
    this.watch.onclick = () => {
      // Read the state from the model: the button itself is updated only in the next frame.
      void kernels.setWatching(!kernels.watching);
    };
    this.newTensors.type = 'checkbox';
    this.newTensors.onchange = () => {
      const { checked } = this.newTensors;
      const chosen = kernels.state?.device.chosen ?? null;
      panelState.newTensors = checked;
      if (chosen !== null) {
        void kernels.setDevice(chosen, checked);
      }
    };
    const newTensors = element(
      'label',
      'device-new-tensors',
      this.newTensors,
      trans.__('New tensors too (1–2 µs a call)')
    );
    newTensors.title = trans.__(
      'Off: only the current CUDA device moves, which is what "cuda" without an index means, and costs nothing. On: tensors made without a device go there too, which costs every torch call 1–2 µs.'
    );
    this.notice = new NoticeView(trans, () => {
      void kernels.load();
    });
    this.order.node.setAttribute('aria-live', 'polite');
    // The notebook's name is a separate element within the translated sentence.
    const [before = '', after = ''] = trans.__('Default device of %1', SLOT).split(SLOT);
    this.node = element(
      'section',
      'device-section',
      element(
        'div',
        'device-title',
        element('span', 'device-label', before, this.notebook.node, after),
        this.busy.node
      ),
      element('div', 'device-controls', this.dropdown.node, this.watch),
      newTensors,
      this.order.node,
      this.notes.node,
      this.notice.node
    );
    this.node.setAttribute('aria-label', trans.__('The notebook in front'));
  }

  /**
   * Show the kernel's state. `gpus` are taken from the server's newest sample. `server` is null before the
   * server's first message. `shownReason` is the server's sentence about why it has no GPUs, which the panel
   * shows elsewhere; null if there is none.
   */
  update(server: ServerInfo | null, gpus: readonly GpuNow[], shownReason: string | null): void {
    const { view, state, age } = this.kernels;
    const notice = kernelNotice(this.trans, view, server);
    this.notebook.set(view.notebook ?? this.trans.__('(no notebook)'), view.notebook ?? '');
    this.busy.set(
      view.busy ? this.trans.__('busy') : '',
      view.busy ? this.trans.__('The kernel is running a cell: a choice holds from the next one') : ''
    );
    const { requested } = view;
    const device = requested.device === undefined ? (state?.device.chosen ?? null) : requested.device;
    const choices = withCurrentFree(state?.choices ?? [], gpus, age);
    this.dropdown.update(state, choices, device, notice?.text ?? state?.unavailable ?? '');
    this.order.set(state === null ? '' : orderNotes(state.order));
    this.watch.disabled = state === null;
    setAttribute(this.watch, 'aria-pressed', String(this.kernels.watching));
    this.newTensors.disabled = state === null || state.choices.length === 0;
    if (requested.device === undefined) {
      const chosen = state !== null && state.device.chosen !== null;
      this.newTensors.checked = chosen ? state.device.new_tensors : this.panelState.newTensors;
    }
    setAttribute(this.notes.node, 'aria-live', view.silentFor === null ? 'polite' : 'off');
    this.notes.set(deviceNotes(this.trans, view, server?.version ?? null, shownReason));
    this.notice.show(notice);
  }

  /**
   * Focus the dropdown, or the button that loads gpuwidget if the dropdown is disabled. Return whether one of
   * them now has the focus.
   */
  focus(): boolean {
    if (this.dropdown.node.disabled) {
      return this.notice.focus();
    }
    this.dropdown.node.focus();
    return true;
  }
}

const NO_DEVICE = '';
/** The value of the option "the emptiest GPU". No torch device has this name. */
const EMPTIEST = 'emptiest';

/**
 * The dropdown for the default torch device: a native `select`, which supports the keyboard and screen
 * readers.
 */
class DeviceDropdown {
  readonly node = element('select', 'device-dropdown jp-mod-styled');
  private emptiest: DeviceChoice | null = null;
  private device: string | null = null;

  /**
   * `onChosen` is called with the device, or with null for none. If the user has picked "the emptiest GPU",
   * the second argument is the `DeviceChoice` of that GPU; otherwise it is null.
   */
  constructor(
    private readonly trans: TranslationBundle,
    onChosen: (device: string | null, emptiestChoice: DeviceChoice | null) => void
  ) {
    this.node.setAttribute('aria-label', trans.__('Default torch device'));
    this.node.onchange = () => {
      const { value } = this.node;
      if (value !== EMPTIEST) {
        onChosen(value === NO_DEVICE ? null : value, null);
      } else if (this.emptiest !== null) {
        // Select the option of the device itself, because the emptiest GPU may change.
        this.node.value = this.emptiest.device;
        onChosen(this.emptiest.device, this.emptiest);
      } else {
        this.node.value = this.device ?? NO_DEVICE;
      }
    };
    openListOnKeys(this.node);
    this.update(null, [], null, '');
  }

  /**
   * Show `choices` as options, with `device` selected. If `state` is null, the dropdown is disabled, with
   * `reason` as its tooltip.
   */
  update(
    state: KernelState | null,
    choices: readonly DeviceChoice[],
    device: string | null,
    reason: string
  ): void {
    const offered: [string, string][] = [[NO_DEVICE, defaultText(this.trans, state?.device ?? null)]];
    for (const choice of choices) {
      offered.push([choice.device, choiceText(this.trans, choice)]);
    }
    this.device = device;
    this.emptiest = emptiestGpu(choices, device);
    if (this.emptiest !== null) {
      offered.push([EMPTIEST, emptiestText(this.trans, this.emptiest)]);
    }
    const selected = device ?? NO_DEVICE;
    if (!offered.some(([value]) => value === selected)) {
      offered.push([selected, selected]);
    }
    this.write(offered);
    this.node.value = selected;
    this.node.disabled = state === null || choices.length === 0;
    const text = offered.find(([value]) => value === selected)?.[1] ?? '';
    setAttribute(this.node, 'title', this.node.disabled && reason !== '' ? reason : text);
  }

  /** Update the options in place, so that an open list stays open with the same option highlighted. */
  private write(offered: readonly [string, string][]): void {
    while (this.node.options.length > offered.length) {
      this.node.remove(this.node.options.length - 1);
    }
    offered.forEach(([device, text], index) => {
      const option = this.node.options[index] ?? this.node.appendChild(document.createElement('option'));
      if (option.value !== device || option.text !== text) {
        option.value = device;
        option.text = text;
      }
    });
  }
}
