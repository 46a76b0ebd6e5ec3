import type { TranslationBundle } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';

import { element, setAttribute, setHidden, Text } from '../ui/dom';
import { gpuIcon } from '../ui/icon';
import type { StatusModel } from './statusModel';

/**
 * The status bar item: a button that shows GPU memory and utilization, and opens the panel.
 *
 * The item changes in the same frame as the panel. A React component would change in a later frame, so the
 * browser would lay out and paint the page twice for each sample.
 */
export class StatusItem extends Widget {
  private readonly button: HTMLButtonElement;
  private readonly text = new Text('status-text');

  constructor(
    private readonly trans: TranslationBundle,
    private readonly model: StatusModel,
    open: () => void
  ) {
    super();
    this.id = 'jp-gpuwidget-status';
    this.addClass('jp-gpuwidget-status');
    this.text.node.classList.add('jp-StatusBar-TextItem');
    const icon = gpuIcon.element({ tag: 'span', className: 'jp-gpuwidget-status-icon' });
    this.button = element('button', 'status-button', icon, this.text.node);
    this.button.type = 'button';
    setHidden(this.button, true);
    this.button.addEventListener('click', open);
    this.node.append(this.button);
    model.changed.connect(this.update, this);
    this.update();
  }

  override dispose(): void {
    if (!this.isDisposed) {
      this.model.dispose();
      super.dispose();
    }
  }

  protected override onUpdateRequest(): void {
    const { text } = this.model;
    setHidden(this.button, text === null);
    if (text !== null) {
      this.text.set(text.text);
      setAttribute(this.button, 'title', text.title);
      setAttribute(this.button, 'aria-label', this.trans.__('%1. Show the GPU panel', text.text));
    }
  }
}
