import type { TranslationBundle } from '@jupyterlab/translation';

import { element, setAttribute } from '../ui/dom';
import { choiceText, ownDefault } from './words';
import type { KernelState } from '../wire';

const NONE = '';

/** The default torch device of a kernel as a native select: its keyboard and its screen reader come with it. */
export class DeviceDropdown {
  readonly node = element('select', 'device jp-mod-styled');
  private readonly trans: TranslationBundle;

  constructor(trans: TranslationBundle, chosen: (device: string | null) => void) {
    this.trans = trans;
    this.node.setAttribute('aria-label', trans.__('Default torch device'));
    this.node.onchange = () => {
      chosen(this.node.value === NONE ? null : this.node.value);
    };
    this.show(null, null, '');
  }

  /** Offer what `state` offers, with `device` chosen; null and the reason why not disable it. */
  show(state: KernelState | null, device: string | null, reason: string): void {
    const offered: [string, string][] = [[NONE, ownDefault(this.trans, state?.device ?? null)]];
    for (const choice of state?.choices ?? []) {
      offered.push([choice.device, choiceText(this.trans, choice)]);
    }
    const chosen = device ?? NONE;
    if (!offered.some(([value]) => value === chosen)) {
      offered.push([chosen, chosen]);
    }
    this.write(offered);
    this.node.value = chosen;
    this.node.disabled = state === null || state.choices.length === 0;
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
