import type { IPanelState } from '../../model/panelState';
import type { IGpuSettings } from '../../tokens';
import { setAttribute, TextElement } from '../../ui/dom';
import { loadPart } from '../../ui/loadPart';
import { CollapsibleSection } from '../../ui/panelSection';
import type { DoctorReport, ReportOptions } from './doctorReport';
import { doctorSummary, SYMBOLS } from './doctorSummary';

/** The dependencies of the section. */
export interface DoctorOptions extends ReportOptions {
  readonly panelState: IPanelState;
  readonly settings: IGpuSettings;
  /** Load the section's contents. */
  readonly load: () => Promise<typeof DoctorReport>;
}

/**
 * The panel's section with the diagnoses. The checks run when the user expands the section or clicks its
 * button. It loads its contents when it is first expanded.
 */
export class DoctorSection extends CollapsibleSection {
  private readonly symbol = new TextElement('doctor-symbol');
  /** Whether the user has opened the section by the command, which shows it even if the settings hide it. */
  private isRequested = false;
  /** Whether the section was just opened, and grows with the results of the checks. */
  private isOpening = false;
  private isLoading = false;
  /** The contents; null until they are loaded. */
  private report: DoctorReport | null = null;

  constructor(private readonly options: DoctorOptions) {
    const { trans, model, kernels, panelState, settings } = options;
    super({
      className: 'doctor',
      title: trans.__('Doctor'),
      panelState,
      name: 'health',
      sources: [model.changed, kernels.changed] // Another kernel has another diagnosis.
    });
    this.symbol.node.setAttribute('aria-hidden', 'true');
    this.summary.node.before(this.symbol.node);
    this.summary.node.setAttribute('aria-live', 'polite');
    settings.changed.connect(() => {
      this.isRequested = false;
    }, this);
  }

  /** The worst status of the checks, which is null before they have run, and its description. */
  get diagnosis(): ReturnType<typeof doctorSummary> {
    const { trans, model } = this.options;
    return doctorSummary(trans, [model.kernel, model.server]);
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
    const [status, summary] = this.diagnosis;
    setAttribute(this.node, 'data-status', status ?? '');
    this.symbol.set(status === null ? '' : SYMBOLS[status]);
    this.summary.set(summary, summary);
    if (this.node.open) {
      void this.load();
      this.report?.update();
    }
    // Scroll the opened section to the top of the panel, and again with each result, for which it grows.
    if (this.isOpening) {
      this.isOpening = this.options.model.running;
      this.node.scrollIntoView({ block: 'start' });
    }
    return true;
  }

  private async load(): Promise<void> {
    if (!this.isLoading) {
      this.isLoading = true;
      const { isOpening } = this;
      const Report = await loadPart(this.options.trans, this.body, this.options.load);
      this.report = new Report(this.options);
      this.body.append(...this.report.nodes);
      this.isOpening ||= isOpening && this.node.open; // The results may have arrived before the contents.
      this.update();
    }
  }
}
