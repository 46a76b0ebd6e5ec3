import type { TranslationBundle } from '@jupyterlab/translation';
import { closeIcon } from '@jupyterlab/ui-components';

import type { Outcome } from '../holders/outcome';
import { element, setAttribute, Text } from '../ui/dom';

/** What came of the last action, at the panel's foot; read out when it is said. */
export class OutcomeLine {
  readonly node: HTMLElement;
  private readonly close: HTMLButtonElement;
  private readonly text = new Text('outcome-text');

  constructor(
    trans: TranslationBundle,
    private readonly outcome: Outcome
  ) {
    const close = (this.close = element('button', 'menu', closeIcon.element({ tag: 'span' })));
    close.type = 'button';
    close.title = trans.__('Put this away');
    close.setAttribute('aria-label', close.title);
    close.onclick = () => {
      outcome.say('');
    };
    // Not hidden while it is empty: what is read out has to be there before its words.
    this.text.node.setAttribute('role', 'status');
    this.node = element('div', 'outcome', this.text.node, close);
    outcome.changed.connect(this.update, this);
    this.update();
  }

  /** Listen no more. */
  dispose(): void {
    this.outcome.changed.disconnect(this.update, this);
  }

  private update(): void {
    const { sentence } = this.outcome;
    this.text.set(sentence);
    this.close.hidden = sentence === '';
    setAttribute(this.node, 'data-empty', sentence === '' ? 'true' : '');
  }
}
