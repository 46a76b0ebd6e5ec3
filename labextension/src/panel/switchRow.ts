import type { TranslationBundle } from '@jupyterlab/translation';

import { element, setAttribute, Text } from '../ui/dom';
import { UNKNOWN } from '../ui/format';
import type { Switch } from '../wire';

const ON = 'on';
const OFF = 'off';

/** What a row shows besides the switch itself. */
export interface RowState {
  /** What was wished and is not answered yet, or null. */
  readonly wished: string | null;
  /** Why nothing can be set, or an empty text. */
  readonly reason: string;
}

/** One of torch's switches: a toggle, or a list where there are more than two choices. */
export class SwitchRow {
  readonly node: HTMLElement;
  private readonly title = new Text('switch-title');
  /** What the pointer is told, for who listens. */
  private readonly told = new Text('unseen');
  private readonly word = new Text('switch-word');
  private readonly control: HTMLInputElement | HTMLSelectElement;

  /** `choose` is called with the choice that was made. */
  constructor(
    private readonly trans: TranslationBundle,
    { name, choices }: Switch,
    choose: (value: string) => void
  ) {
    if (choices.every(choice => choice === ON || choice === OFF)) {
      const toggle = element('input', 'toggle');
      toggle.type = 'checkbox';
      toggle.setAttribute('role', 'switch');
      toggle.onchange = () => {
        choose(toggle.checked ? ON : OFF);
      };
      this.control = toggle;
    } else {
      const list = element('select', 'switch-list');
      list.append(...choices.map(choice => new Option(choice, choice)));
      list.onchange = () => {
        choose(list.value);
      };
      this.control = list;
    }
    this.title.node.id = `jp-gpuwidget-switch-${name}`;
    this.told.node.id = `${this.title.node.id}-told`;
    this.control.setAttribute('aria-labelledby', this.title.node.id);
    this.control.setAttribute('aria-describedby', this.told.node.id);
    this.node = element('label', 'switch', this.title.node, this.word.node, this.control, this.told.node);
  }

  /** Show a switch as it is, or as it was just wished to be. */
  update(known: Switch, { wished, reason }: RowState): void {
    const { trans } = this;
    const value = wished ?? known.pending ?? known.value;
    this.title.set(trans.__(known.title));
    const pending = known.pending !== null && (wished === null || wished === known.pending);
    const changed = value !== null && value !== known.default;
    const words = [
      pending ? trans.__('From the next cell.') : '',
      trans.__(known.trades),
      trans.__("torch's default: %1.", known.default),
      known.note ?? '',
      reason
    ].filter(word => word !== '');
    setAttribute(this.node, 'title', words.join('\n'));
    this.told.set(words.join(' '));
    setAttribute(this.node, 'data-changed', changed ? 'true' : '');
    setAttribute(this.node, 'data-pending', pending ? 'true' : '');
    this.show(value, pending ? trans.__('next cell') : null, reason);
  }

  /** Nobody knows any more how it stands. */
  forget(reason: string): void {
    setAttribute(this.node, 'title', reason);
    this.told.set(reason);
    setAttribute(this.node, 'data-changed', '');
    setAttribute(this.node, 'data-pending', '');
    this.show(null, null, reason);
  }

  private show(value: string | null, word: string | null, reason: string): void {
    const toggle = this.control instanceof HTMLInputElement;
    this.word.set(word ?? (value === null ? UNKNOWN : toggle ? value : ''));
    this.control.disabled = reason !== '';
    if (this.control instanceof HTMLInputElement) {
      this.control.checked = value === ON;
      this.control.indeterminate = value === null;
    } else if (this.control.value !== (value ?? '')) {
      this.control.value = value ?? ''; // an empty list where it is not known
    }
  }
}
