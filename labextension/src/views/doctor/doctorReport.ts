import type { TranslationBundle } from '@jupyterlab/translation';

import type { IKernels } from '../../model/kernel/kernels';
import type { Copy } from '../../ui/copyButton';
import { element, setHidden, TextElement } from '../../ui/dom';
import type { TranslatedDiagnosis } from '../../wire/kernelReply';
import { mergedChecks, worstRank, type MergedChecks } from './doctorMessages';
import { newestDiagnosis, type DoctorModel } from '../../model/doctor/doctorModel';
import { EnvironmentView, stateSentence } from './environmentView';

/** The dependencies of the report. */
export interface ReportOptions {
  readonly trans: TranslationBundle;
  readonly model: DoctorModel;
  readonly kernels: IKernels;
  readonly copy: Copy;
}

/** The contents of the doctor's section: the checks of the kernel and of the server, and the button to run them. */
export class DoctorReport {
  readonly nodes: readonly HTMLElement[];
  private readonly views = element('div', '');
  private readonly runLabel = new TextElement('');
  private readonly runButton = element('button', 'button jp-gpuwidget-doctor-run', this.runLabel.node);
  /** The checks with the same result in the kernel and in the server. */
  private readonly sharedView: EnvironmentView;
  private readonly kernelView: EnvironmentView;
  private readonly serverView: EnvironmentView;
  private merged: {
    readonly kernel: TranslatedDiagnosis | null;
    readonly server: TranslatedDiagnosis | null;
    readonly checks: MergedChecks;
  } | null = null;

  constructor(private readonly options: ReportOptions) {
    const { trans, model, copy } = options;
    this.sharedView = new EnvironmentView(trans, copy);
    this.kernelView = new EnvironmentView(trans, copy);
    this.serverView = new EnvironmentView(trans, copy);
    this.runButton.type = 'button';
    this.runButton.onclick = () => {
      void model.run();
    };
    this.nodes = [this.views, this.runButton];
  }

  /** Show the current state. */
  update(): void {
    const { trans, model, kernels } = this.options;
    const { view } = kernels;
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
      this.views.append(...[...views].sort(([, one], [, other]) => one - other).map(([{ node }]) => node));
    }
    return this.merged.checks;
  }
}
