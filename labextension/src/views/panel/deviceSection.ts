import type { TranslationBundle } from '@jupyterlab/translation';
import { caretDownEmptyIcon } from '@jupyterlab/ui-components';

import {
  defaultText,
  deviceOption,
  mostFreeChosenText,
  mostFreeGpu,
  mostFreeText,
  newTensorsText,
  unseenText,
  withCurrentFree,
  withoutOtherProcesses,
  type DeviceOption,
  type ServerData
} from './deviceChoices';
import { orderNotes } from './deviceOrder';
import { NoticeView } from './notice';
import type { PanelContext } from './panelContext';
import { deviceNotes, kernelNotice } from './panelMessages';
import { liveValue } from '../../model/freshness';
import { pendingRequest, type IKernels, type KernelView } from '../../model/kernel/kernels';
import { kernelsOf } from '../../model/memory/holders';
import { element, openListOnKeys, setAttribute, TextElement } from '../../ui/dom';
import { PanelSection } from '../../ui/panelSection';
import type { DeviceChoice, KernelState } from '../../wire/wire';

/** For how long the section says what the next cell runs on after a choice, in milliseconds. */
const CONFIRMED_MS = 2000;

/**
 * The section with the active notebook's default device, and the button that turns watching of its cells on
 * or off.
 */
export class DeviceSection extends PanelSection {
  private readonly trans: TranslationBundle;
  private readonly kernels: IKernels;
  private readonly notebook = new TextElement('device-notebook');
  private readonly busy = new TextElement('device-busy');
  /** Repeats for screen readers what the next cell runs on. They must not announce every cell as busy. */
  private readonly announcement = new TextElement('device-announcement', 'div');
  private readonly dropdown: DeviceDropdown;
  private readonly watch: HTMLButtonElement;
  private readonly notes = new TextElement('device-notes', 'div');
  private readonly notice: NoticeView;
  /** The device that the user has just chosen; null if that was longer ago. */
  private confirmed: string | null = null;
  private timer: number | null = null;
  /** What has the focus until the dropdown is enabled; null unless the dropdown is to be focused then. */
  private substitute: HTMLElement | null = null;

  constructor(private readonly context: PanelContext) {
    const { trans, monitor, panelState, holders } = context;
    super(element('section', 'device-section'), [
      monitor.changed,
      monitor.kernels.changed,
      panelState.changed
    ]);
    const { kernels } = monitor;
    this.trans = trans;
    this.kernels = kernels;
    this.dropdown = new DeviceDropdown(
      trans,
      (device, mostFree) => {
        holders.message.set(mostFree === null ? '' : mostFreeChosenText(trans, mostFree));
        this.choose(device);
      },
      () => {
        const chosen = kernels.state?.device.chosen ?? null;
        panelState.newTensors = !this.newTensors;
        if (chosen !== null) {
          this.setDevice(chosen, panelState.newTensors);
        }
      }
    );
    this.watch = element('button', 'button jp-gpuwidget-device-watch', trans.__('Watch cells'));
    this.watch.type = 'button';
    this.watch.title = trans.__('Show a one-line GPU summary under every cell (%gpu watch on)');
    this.watch.onclick = () => {
      // Read the state from the model: the button itself is updated only in the next frame.
      void kernels.request({ ask: 'watch', on: !kernels.watching });
    };
    this.notice = new NoticeView(trans, () => {
      void kernels.load();
    });
    const title = element('span', 'device-label', this.notebook.node, this.busy.node);
    this.announcement.node.setAttribute('aria-live', 'polite');
    this.node.append(
      element('div', 'device-title', title, this.watch),
      this.announcement.node,
      this.dropdown.box,
      this.notes.node,
      this.notice.node
    );
    this.node.setAttribute('aria-label', trans.__('Active notebook'));
  }

  /** The default device of the active notebook, or the device that the user has requested; null if unknown. */
  get device(): string | null {
    const { view, state } = this.kernels;
    return state === null ? null : (chosenDevice(view, state) ?? state.device.present);
  }

  /** Make a device the default device; null restores PyTorch's own. */
  choose(device: string | null): void {
    if (this.timer !== null) {
      this.context.clock.cancel(this.timer);
    }
    this.confirmed = device;
    this.timer = this.context.clock.after(CONFIRMED_MS, () => {
      this.confirmed = null;
      this.updateTitle();
    });
    this.setDevice(device, this.newTensors);
  }

  /**
   * Focus the dropdown, or the button that loads gpuwidget. A disabled dropdown can't take the focus: then focus
   * `substitute`, and the dropdown once it is enabled, unless the user has moved the focus meanwhile.
   */
  focus(substitute: HTMLElement): void {
    this.substitute = this.focusControl() ? null : substitute;
    this.substitute?.focus();
  }

  protected override render(): boolean {
    const { trans, kernels } = this;
    const { monitor, hideOtherUsers } = this.context;
    const { model } = monitor;
    const { view, state, age } = kernels;
    const { server, sample, usage } = model;
    const notice = kernelNotice(trans, view, server);
    this.updateTitle();
    const device = chosenDevice(view, state);
    const data: ServerData = {
      gpus: liveValue(monitor.data)?.gpus(null, view.kernel?.id ?? null) ?? [],
      kernels: kernelsOf(usage),
      time: sample?.time ?? NaN
    };
    const listed = state?.choices ?? [];
    const shown = hideOtherUsers ? withoutOtherProcesses(listed) : listed;
    const choices = withCurrentFree(shown, data.gpus, age);
    const reason = notice?.text ?? state?.unavailable ?? '';
    this.dropdown.update(state, choices, device, data, reason, notice?.brief === true, this.newTensors);
    this.watch.disabled = state === null;
    setAttribute(this.watch, 'aria-pressed', String(kernels.watching));
    setAttribute(this.notes.node, 'aria-live', view.silentFor === null ? 'polite' : 'off');
    const notes = [
      state === null ? '' : orderNotes(state.order),
      // The panel shows below why the server has no GPUs.
      deviceNotes(trans, view, server?.version ?? null, sample?.origin.reason ?? null)
    ];
    this.notes.set(notes.filter(note => note !== '').join('\n'));
    this.notice.show(notice?.brief === true ? null : notice);
    if (this.substitute !== null && (document.activeElement !== this.substitute || this.focusControl())) {
      this.substitute = null;
    }
    return true;
  }

  /** Focus the dropdown, or the button that loads gpuwidget. Return whether one of them now has the focus. */
  private focusControl(): boolean {
    if (this.dropdown.node.disabled) {
      return this.notice.focus();
    }
    this.dropdown.node.focus();
    return true;
  }

  private setDevice(device: string | null, newTensors: boolean): void {
    void this.kernels.request({ ask: 'set_device', device, new_tensors: newTensors });
  }

  /** Whether a chosen device also applies to new tensors. */
  private get newTensors(): boolean {
    const device = this.kernels.state?.device;
    const isRequested = pendingRequest(this.kernels.view, 'set_device') !== undefined;
    return device === undefined || device.chosen === null || isRequested
      ? this.context.panelState.newTensors
      : device.new_tensors;
  }

  /** Show the notebook's name or, after a choice, the device of the next cell. */
  private updateTitle(): void {
    const { trans, device } = this;
    const { view, state } = this.kernels;
    const pending = view.busy && state?.device.pending === true && state.device.note === null;
    const next = device !== null && (pending || device === this.confirmed);
    const nextText = next ? trans.__('next cell runs on %1', device) : '';
    this.notebook.set(nextText || (view.notebook ?? trans.__('(no notebook)')), view.notebook ?? '');
    this.announcement.set(nextText);
    setAttribute(this.notebook.node, 'data-next', next ? 'true' : '');
    this.busy.set(
      view.busy && !next ? trans.__('busy') : '',
      view.busy ? trans.__('The kernel is running a cell. A choice takes effect in the next cell') : ''
    );
  }
}

/** Return the chosen device, or the requested one; null for PyTorch's own default device. */
function chosenDevice(view: KernelView, state: KernelState | null): string | null {
  const requested = pendingRequest(view, 'set_device');
  return requested === undefined ? (state?.device.chosen ?? null) : requested.device;
}

const NO_DEVICE = '';
/** The value of the option "most free memory". No torch device has this name. */
const MOST_FREE = 'most-free';
/** The value of the option that turns the default device for new tensors on or off. */
const NEW_TENSORS = 'new-tensors';
/** The value of the option that says how many of the GPUs torch sees. It can't be chosen. */
const UNSEEN = 'unseen';
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
   * `toggleNewTensors` is called when the user picks the option for new tensors.
   */
  constructor(
    private readonly trans: TranslationBundle,
    onChosen: (device: string | null, mostFree: DeviceChoice | null) => void,
    toggleNewTensors: () => void
  ) {
    this.node.setAttribute('aria-label', trans.__('Default PyTorch device'));
    this.node.onchange = () => {
      const { value } = this.node;
      if (value === NEW_TENSORS) {
        this.node.value = this.device ?? NO_DEVICE;
        toggleNewTensors();
      } else if (value !== MOST_FREE) {
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
    this.update(null, [], null, NO_DATA, '', false, false);
  }

  /**
   * Show `choices` as options, with `device` selected. If `state` is null, the dropdown is disabled, with
   * `reason` as its tooltip and, if `shown`, as its text. `newTensors` is whether the device also applies to
   * new tensors.
   */
  update(
    state: KernelState | null,
    choices: readonly DeviceChoice[],
    device: string | null,
    data: ServerData,
    reason: string,
    shown: boolean,
    newTensors: boolean
  ): void {
    const { trans } = this;
    const options = [
      option(NO_DEVICE, shown ? reason : defaultText(trans, state?.device ?? null)),
      ...choices.map(choice => deviceOption(trans, choice, data))
    ];
    this.device = device;
    this.mostFree = mostFreeGpu(choices, device);
    if (this.mostFree !== null) {
      options.push(option(MOST_FREE, mostFreeText(trans, this.mostFree)));
    }
    if (choices.length > 0) {
      options.push({
        ...option(NEW_TENSORS, newTensorsText(trans, newTensors)),
        title: trans.__(
          'Off: only the current CUDA device changes, that is, the meaning of "cuda" without an index. This has no cost per call. On: new tensors for which the code gives no device are also on this device, and each torch call takes 1–3 µs longer.'
        )
      });
    }
    const unseen = state === null ? '' : unseenText(trans, state);
    if (unseen !== '') {
      options.push({ ...option(UNSEEN, unseen), disabled: true });
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
