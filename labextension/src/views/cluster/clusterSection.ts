import type { TranslationBundle } from '@jupyterlab/translation';
import type { IDisposable } from '@lumino/disposable';

import type { ICluster } from '../../model/cluster/clusterModel';
import type { IPanelState } from '../../model/panelState';
import { loadPart } from '../../ui/loadPart';
import { CollapsibleSection } from '../../ui/panelSection';
import type { ClusterOverview, OverviewOptions } from './clusterOverview';

/** The dependencies of the section. */
export interface ClusterSectionOptions extends OverviewOptions {
  readonly trans: TranslationBundle;
  readonly model: ICluster;
  readonly panelState: IPanelState;
  /** Load the section's contents. */
  readonly load: () => Promise<typeof ClusterOverview>;
}

/** The panel's section with the cluster. It loads its contents and requests data only while expanded. */
export class ClusterSection extends CollapsibleSection {
  private readonly view: IDisposable;
  private isLoading = false;
  /** The contents; null until they are loaded. */
  private overview: ClusterOverview | null = null;

  constructor(private readonly options: ClusterSectionOptions) {
    const { trans, model, panelState } = options;
    super({
      className: 'cluster-section',
      title: trans.__('Cluster'),
      panelState,
      name: 'cluster',
      sources: [model.changed]
    });
    this.view = model.addView(
      () => this.node.open && this.isVisible && document.visibilityState === 'visible'
    );
  }

  override dispose(): void {
    this.view.dispose();
    super.dispose();
  }

  /** Show the current state, and request a new one if it is due. */
  protected override render(): boolean {
    this.options.model.wake();
    if (this.node.open) {
      void this.load();
    }
    // The numbers of a collapsed section would be as old as the last request.
    const summary = this.node.open ? (this.overview?.update() ?? '') : '';
    this.summary.set(summary, summary);
    return true;
  }

  private async load(): Promise<void> {
    if (!this.isLoading) {
      this.isLoading = true;
      const Overview = await loadPart(this.options.trans, this.body, this.options.load);
      this.overview = new Overview(this.options);
      this.body.append(...this.overview.nodes);
      this.update();
    }
  }
}
