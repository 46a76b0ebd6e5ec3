import type { TranslationBundle } from '@jupyterlab/translation';

import type { IKernels } from '../../model/kernel/kernels';
import type { PanelState } from '../../model/panelState';
import type { IGpuSettings } from '../../tokens';
import type { Copy } from '../../ui/copyButton';
import { element, setAttribute, setHidden, TextElement } from '../../ui/dom';
import { FoldedSection } from '../../ui/panelSection';
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
  readonly settings: IGpuSettings;
  readonly copy: Copy;
}

/**
 * The panel's section with the diagnoses. The checks run when the user expands the section or clicks its
 * button.
 */
export class DiagnosticsSection extends FoldedSection {
  private readonly symbol = new TextElement('diagnostics-symbol');
  private readonly runLabel = new TextElement('');
  private readonly runButton = element('button', 'button jp-gpuwidget-diagnostics-run', this.runLabel.node);
  /** The checks with the same result in the kernel and in the server. */
  private readonly sharedView: EnvironmentView;
  private readonly kernelView: EnvironmentView;
  private readonly serverView: EnvironmentView;
  /** Whether the user has opened the section by the command, which shows it even if the settings hide it. */
  private isRequested = false;
  /** Whether the section was just opened, and grows with the results of the checks. */
  private isOpening = false;
  private merged: {
    readonly kernel: TranslatedDiagnosis | null;
    readonly server: TranslatedDiagnosis | null;
    readonly checks: MergedChecks;
  } | null = null;

  constructor(private readonly options: DiagnosticsOptions) {
    const { trans, model, kernels, panelState, settings, copy } = options;
    super({
      className: 'diagnostics',
      title: trans.__('Doctor'),
      panelState,
      name: 'health',
      sources: [model.changed, kernels.changed] // Another kernel has another diagnosis.
    });
    this.sharedView = new EnvironmentView(trans, copy);
    this.kernelView = new EnvironmentView(trans, copy);
    this.serverView = new EnvironmentView(trans, copy);
    this.runButton.type = 'button';
    this.runButton.onclick = () => {
      void model.run();
    };
    this.symbol.node.setAttribute('aria-hidden', 'true');
    this.summary.node.before(this.symbol.node);
    this.summary.node.setAttribute('aria-live', 'polite');
    this.body.append(this.runButton);
    settings.changed.connect(() => {
      this.isRequested = false;
    }, this);
  }

  /** The worst status of the checks, which is null before they have run, and its description. */
  get diagnosis(): ReturnType<typeof diagnosticsSummary> {
    const { trans, model } = this.options;
    return diagnosticsSummary(trans, [model.kernel, model.server]);
  }

  /** Whether the section is visible and expanded. */
  get isOpen(): boolean {
    return this.node.open && !this.isHidden;
  }

  /** Show and expand the section, focus it and run the checks that have not been run yet. */
  open(): void {
    this.isRequested = true;
    this.show();
    this.node.open = true;
    this.isOpening = true;
    void this.options.model.runOnce();
    this.head.focus({ preventScroll: true });
    this.update();
  }

  /** Collapse the section, and hide it unless the settings show it. */
  collapse(): void {
    this.isRequested = false;
    this.node.open = false;
    this.update();
  }

  // If the section is restored as expanded after a reload, the checks do not run.
  protected override onToggle(byUser: boolean): void {
    this.isOpening = byUser && this.node.open;
    if (this.isOpening) {
      void this.options.model.runOnce();
    }
  }

  protected override render(): boolean {
    if (!this.options.settings.current.show.health && !this.isRequested) {
      return false;
    }
    this.updateContent();
    // Scroll the opened section to the top of the panel, and again with each result, for which it grows.
    if (this.isOpening) {
      this.isOpening = this.options.model.running;
      this.node.scrollIntoView({ block: 'start' });
    }
    return true;
  }

  private updateContent(): void {
    const { trans, model, kernels } = this.options;
    const { view } = kernels;
    const [status, summary] = this.diagnosis;
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
}
