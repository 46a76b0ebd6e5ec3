import type { TranslationBundle } from '@jupyterlab/translation';
import { Signal, type ISignal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';

import { statusText } from './words';
import type { ActiveKernel } from '../kernel/activeKernel';
import type { Timers } from '../timers';
import { element, setAttribute, Text } from '../ui/dom';
import { gpuIcon } from '../ui/icon';
import { unitsChanged } from '../ui/units';

/** A cell that is done sooner does not make the figure come and go. */
const SHORT_MS = 1000;

/**
 * The notebook's GPU and memory in a line, a button that opens the panel.
 *
 * It is there all day, so it opens no stream and never asks an idle kernel: it shows what the kernel said after its last
 * cell, and while one runs asks every five seconds. While the page is hidden it asks nothing.
 */
export class StatusItem extends Widget {
  private readonly text = new Text('status-text');
  private readonly button = element('button', 'status-button');
  private wanted = false;
  private shown = false;
  private busySince: number | null = null;
  private timer: number | null = null;
  private readonly changes = new Signal<this, void>(this);

  constructor(
    private readonly trans: TranslationBundle,
    private readonly kernels: ActiveKernel,
    private readonly timers: Timers,
    open: () => void
  ) {
    super();
    this.id = 'jp-gpuwidget-status';
    this.addClass('jp-gpuwidget-status');
    this.button.type = 'button';
    this.button.onclick = open;
    this.button.append(
      gpuIcon.element({ tag: 'span', className: 'jp-gpuwidget-status-icon' }),
      this.text.node
    );
    this.node.append(this.button);
    kernels.changed.connect(this.refresh, this);
    unitsChanged.connect(this.refresh, this);
    document.addEventListener('visibilitychange', this.look);
  }

  /** Whether there is something to show. */
  get active(): boolean {
    return this.shown;
  }

  /** Emitted when that changes. */
  get activeChanged(): ISignal<this, void> {
    return this.changes;
  }

  /** The settings want it, or no longer. */
  want(wanted: boolean): void {
    this.wanted = wanted;
    this.look();
  }

  override dispose(): void {
    if (!this.isDisposed) {
      document.removeEventListener('visibilitychange', this.look);
      this.kernels.changed.disconnect(this.refresh, this);
      unitsChanged.disconnect(this.refresh, this);
      this.kernels.setStatusVisible(false);
      super.dispose();
    }
  }

  private readonly look = (): void => {
    this.kernels.setStatusVisible(this.wanted && document.visibilityState === 'visible');
    this.refresh();
  };

  private refresh(): void {
    const said = this.wanted ? statusText(this.trans, this.kernels.view, this.stale()) : null;
    if (said !== null) {
      this.text.set(said.text);
      setAttribute(this.button, 'title', said.title);
      setAttribute(this.button, 'aria-label', this.trans.__('%1. Show GPUs', said.text));
    }
    if ((said !== null) !== this.shown) {
      this.shown = said !== null;
      this.changes.emit();
    }
  }

  /** Whether what the kernel said is from before the cell that runs, and is not asked again. */
  private stale(): boolean {
    const { view, pollingDisabled } = this.kernels;
    if (!view.busy || !pollingDisabled) {
      this.busySince = null;
      return false;
    }
    this.busySince ??= this.timers.now();
    const left = SHORT_MS - (this.timers.now() - this.busySince);
    if (left > 0) {
      this.timer ??= this.timers.after(left, () => {
        this.timer = null;
        this.refresh();
      });
    }
    return left <= 0;
  }
}
