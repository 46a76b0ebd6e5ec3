import type { TranslationBundle } from '@jupyterlab/translation';
import { caretDownEmptyIcon } from '@jupyterlab/ui-components';

import {
  defaultText,
  deviceOption,
  mostFreeChosenText,
  mostFreeGpu,
  mostFreeText,
  withCurrentFree,
  withoutOtherProcesses,
  type DeviceOption,
  type ServerData
} from './deviceChoices';
import { orderNotes } from './deviceOrder';
import { NoticeView } from './notice';
import { deviceNotes, kernelNotice } from './panelMessages';
import type { PanelState } from './panelState';
import type { ActiveKernel } from '../kernel/activeKernel';
import type { ServerInfo } from '../stream/streamModel';
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
  private readonly watchLabels = [new Text(''), new Text('')] as const;
  private readonly watch = element(
    'button',
    'button jp-gpuwidget-device-watch',
    ...this.watchLabels.map(({ node }) => node)
  );
  private readonly newTensors = element('input', '');
  private readonly order = new Text('device-order', 'div');
  private readonly notes = new Text('device-notes', 'div');
  private readonly notice: NoticeView;

  /** If `hideOtherUsers` is true, the names of processes that the kernel lists are not shown. */
  constructor(
    private readonly trans: TranslationBundle,
    private readonly kernels: ActiveKernel,
    private readonly panelState: PanelState,
    private readonly hideOtherUsers: boolean,
    showMessage: (sentence: string) => void
  ) {
    this.dropdown = new DeviceDropdown(trans, (device, mostFree) => {
      showMessage(mostFree === null ? '' : mostFreeChosenText(trans, mostFree));
      void kernels.setDevice(device, this.newTensors.checked);
    });
    this.watch.type = 'button';
    const [off, on] = this.watchLabels;
    off.set(trans.__('Watch cells'));
    on.set(trans.__('Watching cells'));
    this.watch.title = trans.__('Show a one-line GPU summary under every cell (%gpu watch on)');
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
      trans.__('Also create new tensors on this device (+1–3 µs per torch call)')
    );
    newTensors.title = trans.__(
      'Off: only the current CUDA device changes, that is, the meaning of "cuda" without an index. This has no cost per call. On: new tensors for which the code gives no device are also on this device, and each torch call takes 1–3 µs longer.'
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
      element('div', 'device-controls', this.dropdown.box, this.watch),
      element(
        'div',
        'device-state',
        element('div', 'device-ready', newTensors, this.order.node, this.notes.node),
        this.notice.node
      )
    );
    this.node.setAttribute('aria-label', trans.__('Active notebook'));
  }

  /**
   * Show the kernel's state, with the GPUs' current values from `data`. `server` is null before the server's
   * first message. `shownReason` is the server's sentence about why it has no GPUs, which the panel shows
   * elsewhere; null if there is none.
   */
  update(server: ServerInfo | null, data: ServerData, shownReason: string | null): void {
    const { view, state, age } = this.kernels;
    const notice = kernelNotice(this.trans, view, server);
    this.notebook.set(view.notebook ?? this.trans.__('(no notebook)'), view.notebook ?? '');
    this.busy.set(
      view.busy ? this.trans.__('busy') : '',
      view.busy ? this.trans.__('The kernel is running a cell. A choice takes effect in the next cell') : ''
    );
    const { requested } = view;
    const device = requested.device === undefined ? (state?.device.chosen ?? null) : requested.device;
    const listed = state?.choices ?? [];
    const shown = this.hideOtherUsers ? withoutOtherProcesses(listed) : listed;
    const choices = withCurrentFree(shown, data.gpus, age);
    this.dropdown.update(state, choices, device, data, notice?.text ?? state?.unavailable ?? '');
    this.order.set(state === null ? '' : orderNotes(state.order));
    this.watch.disabled = state === null;
    setAttribute(this.watch, 'aria-pressed', String(this.kernels.watching));
    // Without a ready kernel, the notice takes the place of the option and the notes.
    setAttribute(this.node, 'data-ready', String(notice === null));
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
/** The value of the option "most free memory". No torch device has this name. */
const MOST_FREE = 'most-free';
const NO_DATA: ServerData = { gpus: [], kernels: new Map(), time: NaN };

/**
 * The dropdown for the default torch device: a native `select`, which supports the keyboard and screen
 * readers.
 */
class DeviceDropdown {
  readonly node = element('select', 'device-dropdown jp-mod-styled');
  /** The dropdown with JupyterLab's caret, as JupyterLab's class removes the browser's arrow. */
  readonly box = element(
    'div',
    'device-box',
    this.node,
    caretDownEmptyIcon.element({ tag: 'span', className: 'jp-gpuwidget-device-caret' })
  );
  private mostFree: DeviceChoice | null = null;
  private device: string | null = null;

  /**
   * `onChosen` is called with the device, or with null for none. If the user has picked "most free memory",
   * the second argument is the `DeviceChoice` of that GPU; otherwise it is null.
   */
  constructor(
    private readonly trans: TranslationBundle,
    onChosen: (device: string | null, mostFree: DeviceChoice | null) => void
  ) {
    this.node.setAttribute('aria-label', trans.__('Default PyTorch device'));
    this.node.onchange = () => {
      const { value } = this.node;
      if (value !== MOST_FREE) {
        onChosen(value === NO_DEVICE ? null : value, null);
      } else if (this.mostFree !== null) {
        // Select the option of the device itself, because another GPU may have the most free memory later.
        this.node.value = this.mostFree.device;
        onChosen(this.mostFree.device, this.mostFree);
      } else {
        this.node.value = this.device ?? NO_DEVICE;
      }
    };
    openListOnKeys(this.node);
    this.update(null, [], null, NO_DATA, '');
  }

  /**
   * Show `choices` as options, with `device` selected. If `state` is null, the dropdown is disabled, with
   * `reason` as its tooltip.
   */
  update(
    state: KernelState | null,
    choices: readonly DeviceChoice[],
    device: string | null,
    data: ServerData,
    reason: string
  ): void {
    const { trans } = this;
    const options = [
      option(NO_DEVICE, defaultText(trans, state?.device ?? null)),
      ...choices.map(choice => deviceOption(trans, choice, data))
    ];
    this.device = device;
    this.mostFree = mostFreeGpu(choices, device);
    if (this.mostFree !== null) {
      options.push(option(MOST_FREE, mostFreeText(trans, this.mostFree)));
    }
    const value = device ?? NO_DEVICE;
    const selected = options.find(each => each.value === value) ?? option(value, value);
    this.write(options.includes(selected) ? options : [...options, selected]);
    this.node.value = value;
    this.node.disabled = state === null || choices.length === 0;
    const details = [selected.text, selected.title].filter(line => line !== '').join('\n');
    setAttribute(this.node, 'title', this.node.disabled && reason !== '' ? reason : details);
  }

  /** Update the options in place, so that an open list stays open with the same option highlighted. */
  private write(options: readonly DeviceOption[]): void {
    while (this.node.options.length > options.length) {
      this.node.remove(this.node.options.length - 1);
    }
    options.forEach(({ value, text, title, disabled }, index) => {
      const node = this.node.options[index] ?? this.node.appendChild(document.createElement('option'));
      if (node.value !== value || node.text !== text) {
        node.value = value;
        node.text = text;
      }
      setAttribute(node, 'title', title);
      node.disabled = disabled;
    });
  }
}

function option(value: string, text: string): DeviceOption {
  return { value, text, title: '', disabled: false };
}
