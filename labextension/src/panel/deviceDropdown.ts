import type { TranslationBundle } from '@jupyterlab/translation';

import { element, setAttribute } from '../ui/dom';
import { emptiest } from './emptiest';
import { choiceText, emptiestText, ownDefault } from './words';
import type { DeviceChoice, KernelState } from '../wire';

const NONE = '';
/** No device of torch's is called so. */
const EMPTIEST = 'emptiest';

/** The default torch device of a kernel as a native select: its keyboard and its screen reader come with it. */
export class DeviceDropdown {
  readonly node = element('select', 'device jp-mod-styled');
  private readonly trans: TranslationBundle;
  private emptiest: DeviceChoice | null = null;
  private device: string | null = null;

  /** `chosen` is called with what the user chose; with the whole of it where it was to be the emptiest. */
  constructor(
    trans: TranslationBundle,
    chosen: (device: string | null, asEmptiest: DeviceChoice | null) => void
  ) {
    this.trans = trans;
    this.node.setAttribute('aria-label', trans.__('Default torch device'));
    this.node.onchange = () => {
      const { value } = this.node;
      if (value !== EMPTIEST) {
        chosen(value === NONE ? null : value, null);
      } else if (this.emptiest !== null) {
        // A choice like another, made once: the list shows the device, and not how it was found.
        this.node.value = this.emptiest.device;
        chosen(this.emptiest.device, this.emptiest);
      } else {
        this.node.value = this.device ?? NONE;
      }
    };
    this.show(null, [], null, '');
  }

  /** Offer `choices` and what `state` says beside them, with `device` chosen; null and the reason why not disable it. */
  show(
    state: KernelState | null,
    choices: readonly DeviceChoice[],
    device: string | null,
    reason: string
  ): void {
    const offered: [string, string][] = [[NONE, ownDefault(this.trans, state?.device ?? null)]];
    for (const choice of choices) {
      offered.push([choice.device, choiceText(this.trans, choice)]);
    }
    this.device = device;
    this.emptiest = emptiest(choices, device);
    if (this.emptiest !== null) {
      offered.push([EMPTIEST, emptiestText(this.trans, this.emptiest)]);
    }
    const chosen = device ?? NONE;
    if (!offered.some(([value]) => value === chosen)) {
      offered.push([chosen, chosen]);
    }
    this.write(offered);
    this.node.value = chosen;
    this.node.disabled = state === null || choices.length === 0;
    const now = offered.find(([value]) => value === chosen)?.[1] ?? '';
    setAttribute(this.node, 'title', this.node.disabled && reason !== '' ? reason : now);
  }

  /** In place: an opened list stays open, and its choice where it is. */
  private write(offered: readonly [string, string][]): void {
    while (this.node.options.length > offered.length) {
      this.node.remove(this.node.options.length - 1);
    }
    offered.forEach(([device, text], place) => {
      const option = this.node.options[place] ?? this.node.appendChild(document.createElement('option'));
      if (option.value !== device || option.text !== text) {
        option.value = device;
        option.text = text;
      }
    });
  }
}
