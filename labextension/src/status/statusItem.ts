import { TextItem } from '@jupyterlab/statusbar';
import type { TranslationBundle } from '@jupyterlab/translation';
import { ReactWidget } from '@jupyterlab/ui-components';
import { createElement, type ReactElement } from 'react';

import { gpuIcon } from '../ui/icon';
import type { StatusModel } from './statusModel';

/** The status bar item: a button that shows GPU memory and utilization, and opens the panel. */
export class StatusItem extends ReactWidget {
  constructor(
    private readonly trans: TranslationBundle,
    private readonly model: StatusModel,
    private readonly open: () => void
  ) {
    super();
    this.id = 'jp-gpuwidget-status';
    this.addClass('jp-gpuwidget-status');
    model.changed.connect(this.update, this);
  }

  override dispose(): void {
    if (!this.isDisposed) {
      this.model.dispose();
      super.dispose();
    }
  }

  protected override render(): ReactElement | null {
    const { text } = this.model;
    return (
      text &&
      createElement(
        'button',
        {
          type: 'button',
          className: 'jp-gpuwidget-status-button',
          title: text.title,
          'aria-label': this.trans.__('%1. Show the GPU panel', text.text),
          onClick: this.open
        },
        createElement(gpuIcon.react, { tag: 'span', className: 'jp-gpuwidget-status-icon' }),
        createElement(TextItem, { source: text.text, className: 'jp-gpuwidget-status-text' })
      )
    );
  }
}
