import { closeIcon } from '@jupyterlab/ui-components';

import type { PanelContext } from './panelContext';
import type { IStatusMessage } from '../../model/memory/statusMessage';
import { element, setAttribute, setHidden, TextElement } from '../../ui/dom';
import { PanelSection } from '../../ui/panelSection';

/** The message about the last action, at the bottom of the panel. Screen readers announce it. */
export class MessageSection extends PanelSection {
  private readonly message: IStatusMessage;
  private readonly dismiss = element(
    'button',
    'icon-button jp-gpuwidget-panel-close',
    closeIcon.element({ tag: 'span' })
  );
  private readonly text = new TextElement('panel-message-text');
  private atHolder = false;

  constructor({ trans, holders: { message } }: PanelContext) {
    super(element('div', 'panel-message'), [message.changed]);
    this.message = message;
    this.dismiss.type = 'button';
    this.dismiss.title = trans.__('Dismiss');
    this.dismiss.setAttribute('aria-label', this.dismiss.title);
    this.dismiss.onclick = () => {
      message.clear();
    };
    this.text.node.setAttribute('role', 'status');
    this.node.append(this.text.node, this.dismiss);
  }

  /** Set whether the message is visible at its holder instead. Screen readers still announce it. */
  setAtHolder(atHolder: boolean): void {
    if (atHolder !== this.atHolder) {
      this.atHolder = atHolder;
      this.update();
    }
  }

  protected override render(): boolean {
    const { text } = this.message;
    const isEmpty = text === '' || this.atHolder;
    this.text.set(text);
    setHidden(this.dismiss, isEmpty);
    setAttribute(this.node, 'data-empty', isEmpty ? 'true' : '');
    // The text is never hidden: a live region is announced only if it existed before its text changed.
    return true;
  }
}
