import type { TranslationBundle } from '@jupyterlab/translation';

import { element, setAttribute, Text } from '../ui/dom';
import type { Notice } from './words';

/** A sentence with its command and its button; takes no room while there is nothing to say. */
export class NoticeView {
  readonly node: HTMLElement;
  private readonly text = new Text('', 'div');
  private readonly command = new Text('command', 'code');
  private readonly link = element('a', 'notice-link');
  private readonly button = element('button', 'act jp-Button jp-mod-styled jp-mod-accept');

  constructor(trans: TranslationBundle, act: () => void) {
    this.button.type = 'button';
    this.button.textContent = trans.__('Load gpuwidget');
    this.button.title = trans.__(
      'Loads it in this kernel, silently and outside the history (%load_ext gpuwidget)'
    );
    this.button.onclick = act;
    this.link.target = '_blank';
    this.link.rel = 'noopener';
    this.node = element('div', 'notice', this.text.node, this.command.node, this.link, this.button);
    this.show(null);
  }

  /** Say `notice`, or nothing. */
  show(notice: Notice | null): void {
    this.node.hidden = notice === null;
    // Read out when it is another; one that counts seconds would be read out every second.
    setAttribute(this.node, 'aria-live', notice?.counts === true ? 'off' : 'polite');
    this.text.set(notice?.text ?? '');
    this.command.set(notice?.command ?? '');
    this.command.node.hidden = notice?.command === undefined;
    this.link.hidden = notice?.link === undefined;
    if (notice?.link !== undefined) {
      this.link.href = notice.link;
      this.link.textContent = notice.link;
    }
    this.button.hidden = notice?.action === undefined;
  }
}
