import type { TranslationBundle } from '@jupyterlab/translation';
import type { IDisposable } from '@lumino/disposable';

import { element, setAttribute, Text } from '../ui/dom';
import type { ActiveKernel } from '../kernel/activeKernel';
import type { PanelState } from '../panel/panelState';
import { kernelNotice } from '../panel/panelMessages';
import type { Copy } from './copyButton';
import type { Health } from './health';
import { PlaceView } from './placeView';
import { healthSummary, SYMBOLS } from './words';

/** What it speaks of, and how it was left. */
export interface HealthPorts {
  readonly trans: TranslationBundle;
  readonly health: Health;
  readonly kernels: ActiveKernel;
  readonly panelState: PanelState;
}

/** The doctor in the panel: a line that asks when it is unfolded, and never by itself. */
export class HealthSection {
  readonly node: HTMLDetailsElement;
  private readonly symbol = new Text('link-symbol');
  private readonly summary = new Text('section-summary');
  private readonly wish = new Text('');
  private readonly again = element('button', 'again jp-Button jp-mod-styled', this.wish.node);
  private readonly kernelPlace: PlaceView;
  private readonly binding: IDisposable;
  private readonly serverPlace: PlaceView;

  constructor(
    private readonly ports: HealthPorts,
    copy: Copy
  ) {
    const { trans, health, panelState } = ports;
    this.kernelPlace = new PlaceView(trans, copy);
    this.serverPlace = new PlaceView(trans, copy);
    this.again.type = 'button';
    this.again.title = trans.__('Examine the notebook in front and the server, which takes some seconds');
    this.again.onclick = () => {
      void health.ask();
    };
    this.symbol.node.setAttribute('aria-hidden', 'true');
    this.node = element(
      'details',
      'section jp-gpuwidget-health',
      element(
        'summary',
        'section-head',
        element('span', 'section-title', trans.__('Health')),
        this.symbol.node,
        this.summary.node
      ),
      element('div', 'section-body', this.kernelPlace.node, this.serverPlace.node, this.again)
    );
    this.summary.node.setAttribute('aria-live', 'polite');
    // Found unfolded after a reload it asks nobody: that is for who unfolds it, or presses the button.
    this.binding = panelState.bindDetails(this.node, 'health', byUser => {
      if (byUser && this.node.open) {
        this.node.scrollIntoView({ block: 'start' });
        void health.askOnce();
      }
      this.update();
    });
    health.changed.connect(this.update, this);
    this.update();
  }

  /** Show what is known. */
  update(): void {
    const { trans, health, kernels } = this.ports;
    const { view } = kernels;
    const [status, words] = healthSummary(trans, [health.kernel, health.server]);
    setAttribute(this.node, 'data-status', status ?? '');
    this.symbol.set(status === null ? '' : SYMBOLS[status]);
    this.summary.set(words, words);
    if (!this.node.open) {
      return;
    }
    const reason =
      view.condition.kind === 'no-notebook'
        ? trans.__('Open a notebook to have its kernel looked at.')
        : (kernelNotice(trans, view)?.text ?? '');
    this.kernelPlace.show(
      view.notebook === null ? trans.__('Kernel') : trans.__('Kernel of %1', view.notebook),
      health.kernel,
      reason
    );
    this.serverPlace.show(trans.__('Jupyter server'), health.server, '');
    const first = health.server.kind === 'unasked';
    this.wish.set(first ? trans.__('Look now') : trans.__('Look again'));
    this.again.disabled = health.asking;
  }

  /** Unfold it, which asks. */
  open(): void {
    this.node.open = true;
    void this.ports.health.askOnce();
    this.node.querySelector('summary')?.focus();
  }

  /** End. */
  dispose(): void {
    this.binding.dispose();
    this.ports.health.changed.disconnect(this.update, this);
  }
}
