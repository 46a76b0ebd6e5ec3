import type { TranslationBundle } from '@jupyterlab/translation';

import { element, setAttribute, Text } from '../ui/dom';
import { gpuIcon } from '../ui/icon';
import type { Blank } from './blank';

/** A sentence in the middle of where charts would be, with the button that brings them back. */
export class BlankView {
  readonly node: HTMLElement;
  private readonly text = new Text('blank-text', 'div');
  private readonly command = new Text('notice-command', 'code');
  private readonly words = new Text('');
  private readonly button = element('button', 'act', this.words.node);
  private action: Blank['action'];

  /** `show` is called for what its button shows again. */
  constructor(
    private readonly trans: TranslationBundle,
    show: (what: NonNullable<Blank['action']>) => void
  ) {
    const icon = gpuIcon.element({ tag: 'span', className: 'jp-gpuwidget-blank-icon' });
    icon.setAttribute('aria-hidden', 'true');
    this.button.type = 'button';
    this.button.onclick = () => {
      if (this.action !== undefined) {
        show(this.action);
      }
    };
    const sentence = element('div', 'blank-sentence', this.text.node, this.command.node);
    this.node = element('div', 'blank', icon, sentence, this.button);
    this.node.hidden = true;
  }

  /** Say it, or go away. */
  show(blank: Blank | null): void {
    this.node.hidden = blank === null;
    setAttribute(this.node, 'data-passing', blank?.passing === true ? 'true' : '');
    // One that counts seconds would be read out every second.
    setAttribute(this.text.node, 'aria-live', blank?.counts === true ? 'off' : 'polite');
    this.text.set(blank?.text ?? '');
    this.command.set(blank?.command ?? '');
    this.command.node.hidden = blank?.command === undefined;
    this.action = blank?.action;
    this.button.hidden = this.action === undefined;
    if (this.action !== undefined) {
      this.words.set(
        this.action === 'metrics' ? this.trans.__('Show all metrics') : this.trans.__('Show all GPUs')
      );
    }
  }
}
