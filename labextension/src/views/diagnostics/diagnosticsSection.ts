import type { TranslationBundle } from '@jupyterlab/translation';
import type { IDisposable } from '@lumino/disposable';

import type { IKernels } from '../../model/kernel/kernels';
import type { PanelState } from '../../model/panelState';
import type { Copy } from '../../ui/copyButton';
import { element, setAttribute, setHidden, TextElement } from '../../ui/dom';
import type { TranslatedDiagnosis } from '../../wire/kernelReply';
import {
  diagnosticsSummary,
  mergedChecks,
  SYMBOLS,
  worstRank,
  type MergedChecks
} from './diagnosticsMessages';
import { newestDiagnosis, type DiagnosticsModel } from '../../model/diagnostics/diagnosticsModel';
import { EnvironmentView, stateSentence } from './environmentView';

/** The dependencies of the section. */
export interface DiagnosticsOptions {
  readonly trans: TranslationBundle;
  readonly model: DiagnosticsModel;
  readonly kernels: IKernels;
  readonly panelState: PanelState;
  readonly copy: Copy;
}

/**
 * The panel's section with the diagnoses. The checks run when the user expands the section or clicks its
 * button.
 */
export class DiagnosticsSection {
  readonly node: HTMLDetailsElement;
  private readonly symbol = new TextElement('diagnostics-symbol');
  private readonly summary = new TextElement('section-summary');
  private readonly runLabel = new TextElement('');
  private readonly runButton = element('button', 'button jp-gpuwidget-diagnostics-run', this.runLabel.node);
  private readonly binding: IDisposable;
  /** The checks with the same result in the kernel and in the server. */
  private readonly sharedView: EnvironmentView;
  private readonly kernelView: EnvironmentView;
  private readonly serverView: EnvironmentView;

  private readonly body = element('div', 'section-body', this.runButton);
  /** Whether the section was just opened, and grows with the results of the checks. */
  private isOpening = false;
  private merged: {
    readonly kernel: TranslatedDiagnosis | null;
    readonly server: TranslatedDiagnosis | null;
    readonly checks: MergedChecks;
  } | null = null;

  constructor(private readonly options: DiagnosticsOptions) {
    const { trans, model, panelState, copy } = options;
    this.sharedView = new EnvironmentView(trans, copy);
    this.kernelView = new EnvironmentView(trans, copy);
    this.serverView = new EnvironmentView(trans, copy);
    this.runButton.type = 'button';
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
        element('span', 'section-title', trans.__('Doctor')),
        this.symbol.node,
        this.summary.node
      ),
      this.body
    );
    this.summary.node.setAttribute('aria-live', 'polite');
    // If the section is restored as expanded after a reload, the checks do not run.
    this.binding = panelState.bindDetails(this.node, 'health', byUser => {
      this.isOpening = byUser && this.node.open;
      if (this.isOpening) {
        void model.runOnce();
      }
      this.update();
      this.reveal();
    });
    model.changed.connect(this.handleChange, this);
    this.update();
  }

  /** The worst status of the checks; empty before they have run. */
  get status(): string {
    return this.node.dataset.status ?? '';
  }

  /** A short description of the status. */
  get summaryText(): string {
    return this.summary.value;
  }

  /** Whether the section is visible and expanded. */
  get isOpen(): boolean {
    return this.node.open && !this.node.hidden;
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
    // The panel shows above why gpuwidget is not running.
    const reason =
      view.condition.kind === 'no-notebook'
        ? trans.__('Open a notebook to check its kernel.')
        : view.condition.kind === 'ready'
          ? ''
          : trans.__('gpuwidget is not running in this kernel.');
    const [inKernel, inServer] = [newestDiagnosis(model.kernel), newestDiagnosis(model.server)];
    const checks = this.mergedChecks(inKernel, inServer);
    const [kernelTexts, serverTexts] = [inKernel?.texts ?? {}, inServer?.texts ?? {}];
    const kernel = view.notebook === null ? trans.__('Kernel') : trans.__('Kernel of %1', view.notebook);
    const hasShared = checks.shared.length > 0;
    const inBoth = trans.__('%1 and Jupyter server', kernel);
    const ofKernel = model.kernel === null ? reason : stateSentence(trans, model.kernel);
    const ofServer = stateSentence(trans, model.server);
    const [both, own, other] =
      hasShared && ofKernel === ofServer ? [ofKernel, '', ''] : ['', ofKernel, ofServer];
    this.sharedView.show(inBoth, null, both, checks.shared, kernelTexts);
    setHidden(this.sharedView.node, !hasShared);
    this.kernelView.show(kernel, model.kernel, own, checks.kernel, kernelTexts);
    this.serverView.show(trans.__('Jupyter server'), model.server, other, checks.server, serverTexts);
    this.runLabel.set(model.server.kind === 'none' ? trans.__('Run') : trans.__('Run again'));
    this.runButton.disabled = model.running;
  }

  /** Return the checks to show. If the diagnoses have changed, order the views by their worst check. */
  private mergedChecks(kernel: TranslatedDiagnosis | null, server: TranslatedDiagnosis | null): MergedChecks {
    if (this.merged?.kernel !== kernel || this.merged.server !== server) {
      const checks = mergedChecks(kernel, server);
      this.merged = { kernel, server, checks };
      const views = [
        [this.sharedView, worstRank(checks.shared)],
        [this.kernelView, worstRank(checks.kernel)],
        [this.serverView, worstRank(checks.server)]
      ] as const;
      this.body.prepend(...[...views].sort(([, one], [, other]) => one - other).map(([{ node }]) => node));
    }
    return this.merged.checks;
  }

  /** Expand the section, focus it and run the checks that have not been run yet. */
  open(): void {
    this.node.open = true;
    this.isOpening = true;
    void this.options.model.runOnce();
    this.node.querySelector('summary')?.focus({ preventScroll: true });
    this.reveal();
  }

  /** Disconnect from the model and cancel all timers. */
  dispose(): void {
    this.binding.dispose();
    this.options.model.changed.disconnect(this.handleChange, this);
  }

  private handleChange(): void {
    this.update();
    this.reveal();
  }

  /** Scroll the opened section to the top of the panel, and again with each result, for which it grows. */
  private reveal(): void {
    if (this.isOpening) {
      this.isOpening = this.options.model.running;
      this.node.scrollIntoView({ block: 'start' });
    }
  }
}
