import type { TranslationBundle } from '@jupyterlab/translation';

import type { Notice } from './panelMessages';
import { element, setAttribute, setHidden, TextElement } from '../../ui/dom';

/** A sentence, optionally with a command, a link or a button. The view is hidden if there is no notice. */
export class NoticeView {
  readonly node: HTMLElement;
  private readonly text = new TextElement('', 'div');
  private readonly command = new TextElement('notice-command', 'code');
  private readonly link = element('a', 'notice-link');
  private readonly button = element('button', 'button jp-gpuwidget-notice-action');

  constructor(trans: TranslationBundle, load: () => void) {
    this.button.type = 'button';
    this.button.textContent = trans.__('Load gpuwidget');
    this.button.title = trans.__(
      'Load gpuwidget in this kernel, without an output or a history entry (%load_ext gpuwidget)'
    );
    this.button.onclick = load;
    this.link.target = '_blank';
    this.link.rel = 'noopener';
    this.node = element('div', 'notice', this.text.node, this.command.node, this.link, this.button);
    this.show(null);
  }

  /** Show `notice`, or hide the view if it is null. */
  show(notice: Notice | null): void {
    setHidden(this.node, notice === null);
    // A screen reader announces each change of a live region, so a sentence with a number of seconds would be
    // read aloud every second.
    setAttribute(this.node, 'aria-live', notice?.countsSeconds === true ? 'off' : 'polite');
    this.text.set(notice?.text ?? '');
    this.command.set(notice?.command ?? '');
    setHidden(this.command.node, notice?.command === undefined);
    setHidden(this.link, notice?.link === undefined);
    if (notice?.link !== undefined) {
      this.link.href = notice.link;
      this.link.textContent = notice.link;
    }
    setHidden(this.button, notice?.action === undefined);
  }

  /** Focus the button. Return whether there is a button. */
  focus(): boolean {
    const shown = !this.node.hidden && !this.button.hidden;
    if (shown) {
      this.button.focus();
    }
    return shown;
  }
}
