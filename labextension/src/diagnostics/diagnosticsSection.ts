import type { TranslationBundle } from '@jupyterlab/translation';
import type { IDisposable } from '@lumino/disposable';

import type { ActiveKernel } from '../kernel/activeKernel';
import type { PanelState } from '../panel/panelState';
import { kernelNotice } from '../panel/panelMessages';
import { element, setAttribute, Text } from '../ui/dom';
import { diagnosticsSummary, SYMBOLS } from './diagnosticsMessages';
import type { DiagnosticsModel } from './diagnosticsModel';
import { EnvironmentView, type Copy } from './environmentView';

/** The dependencies of the section. */
export interface DiagnosticsOptions {
  readonly trans: TranslationBundle;
  readonly model: DiagnosticsModel;
  readonly kernels: ActiveKernel;
  readonly panelState: PanelState;
  readonly copy: Copy;
}

/**
 * The panel's section with the diagnoses. The checks run when the user expands the section or clicks its
 * button.
 */
export class DiagnosticsSection {
  readonly node: HTMLDetailsElement;
  private readonly symbol = new Text('diagnostics-symbol');
  private readonly summary = new Text('section-summary');
  private readonly runLabel = new Text('');
  private readonly runButton = element('button', 'button jp-gpuwidget-diagnostics-run', this.runLabel.node);
  private readonly binding: IDisposable;
  private readonly kernelView: EnvironmentView;
  private readonly serverView: EnvironmentView;

  constructor(private readonly options: DiagnosticsOptions) {
    const { trans, model, panelState, copy } = options;
    this.kernelView = new EnvironmentView(trans, copy);
    this.serverView = new EnvironmentView(trans, copy);
    this.runButton.type = 'button';
    this.runButton.title = trans.__('Examine the notebook in front and the server, which takes some seconds');
    this.runButton.onclick = () => {
      void model.run();
    };
    this.symbol.node.setAttribute('aria-hidden', 'true');
    this.node = element(
      'details',
      'section jp-gpuwidget-diagnostics',
      element(
        'summary',
        'section-head',
        element('span', 'section-title', trans.__('Health')),
        this.symbol.node,
        this.summary.node
      ),
      element('div', 'section-body', this.kernelView.node, this.serverView.node, this.runButton)
    );
    this.summary.node.setAttribute('aria-live', 'polite');
    // If the section is restored as expanded after a reload, the checks do not run.
    this.binding = panelState.bindDetails(this.node, 'health', byUser => {
      if (byUser && this.node.open) {
        this.node.scrollIntoView({ block: 'start' });
        void model.runOnce();
      }
      this.update();
    });
    model.changed.connect(this.update, this);
    this.update();
  }

  /** Show the current state. */
  update(): void {
    const { trans, model, kernels } = this.options;
    const { view } = kernels;
    const [status, summary] = diagnosticsSummary(trans, [model.kernel, model.server]);
    setAttribute(this.node, 'data-status', status ?? '');
    this.symbol.set(status === null ? '' : SYMBOLS[status]);
    this.summary.set(summary, summary);
    if (!this.node.open) {
      return;
    }
    const reason =
      view.condition.kind === 'no-notebook'
        ? trans.__('Open a notebook to have its kernel looked at.')
        : (kernelNotice(trans, view)?.text ?? '');
    this.kernelView.show(
      view.notebook === null ? trans.__('Kernel') : trans.__('Kernel of %1', view.notebook),
      model.kernel,
      reason
    );
    this.serverView.show(trans.__('Jupyter server'), model.server, '');
    this.runLabel.set(model.server.kind === 'none' ? trans.__('Look now') : trans.__('Look again'));
    this.runButton.disabled = model.running;
  }

  /** Expand the section, focus it and run the checks that have not been run yet. */
  open(): void {
    this.node.open = true;
    void this.options.model.runOnce();
    this.node.querySelector('summary')?.focus();
  }

  /** Disconnect from the model and cancel all timers. */
  dispose(): void {
    this.binding.dispose();
    this.kernelView.dispose();
    this.serverView.dispose();
    this.options.model.changed.disconnect(this.update, this);
  }
}
