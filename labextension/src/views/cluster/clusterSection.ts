import type { TranslationBundle } from '@jupyterlab/translation';
import type { IDisposable } from '@lumino/disposable';

import type { ClusterModel } from '../../model/cluster/clusterModel';
import type { PanelState } from '../../model/panelState';
import { element, TextElement } from '../../ui/dom';
import { loadPart } from '../../ui/loadPart';
import type { ClusterOverview, OverviewOptions } from './clusterOverview';

/** The dependencies of the section. */
export interface ClusterSectionOptions extends OverviewOptions {
  readonly trans: TranslationBundle;
  readonly model: ClusterModel;
  readonly panelState: PanelState;
  /** Whether the panel is visible. */
  readonly isPanelVisible: () => boolean;
  /** Load the section's contents. */
  readonly load: () => Promise<typeof ClusterOverview>;
}

/** The panel's section with the cluster. It loads its contents and requests data only while expanded. */
export class ClusterSection {
  readonly node: HTMLDetailsElement;
  private readonly summary = new TextElement('section-summary');
  private readonly body = element('div', 'section-body');
  private readonly binding: IDisposable;
  private readonly view: IDisposable;
  private isLoading = false;
  /** The contents; null until they are loaded. */
  private overview: ClusterOverview | null = null;

  constructor(private readonly options: ClusterSectionOptions) {
    const { trans, model, panelState, isPanelVisible } = options;
    this.node = element(
      'details',
      'section jp-gpuwidget-cluster-section',
      element(
        'summary',
        'section-head',
        element('span', 'section-title', trans.__('Cluster')),
        this.summary.node
      ),
      this.body
    );
    this.view = model.addView(
      () => this.node.open && isPanelVisible() && document.visibilityState === 'visible'
    );
    this.binding = panelState.bindDetails(this.node, 'cluster', () => {
      this.update();
    });
    model.changed.connect(this.update, this);
  }

  /** Show the current state, and request a new one if it is due. */
  update(): void {
    this.options.model.wake();
    if (this.node.open) {
      void this.load();
    }
    // The numbers of a collapsed section would be as old as the last request.
    const summary = this.node.open ? (this.overview?.update() ?? '') : '';
    this.summary.set(summary, summary);
  }

  /** Disconnect from the model. */
  dispose(): void {
    this.binding.dispose();
    this.view.dispose();
    this.options.model.changed.disconnect(this.update, this);
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
