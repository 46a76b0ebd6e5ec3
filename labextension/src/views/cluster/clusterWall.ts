import type { TranslationBundle } from '@jupyterlab/translation';
import type { IDisposable } from '@lumino/disposable';
import { Signal, type ISignal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';

import { csvName, saveFile } from '../dashboard/csvExport';
import { EmptyStateView } from '../dashboard/emptyState';
import { setAttribute, setHidden, TextElement } from '../../ui/dom';
import { model as modelName, moment, unitsChanged } from '../../model/format';
import { gpuIcon } from '../../ui/icon';
import type { ClusterSnapshot } from '../../wire/wire';
import { clusterCsv } from './clusterCsv';
import { clusterEmptyText, clusterNotice, clusterSummary } from './clusterMessages';
import type { ICluster } from '../../model/cluster/clusterModel';
import { lastValue } from '../../model/freshness';
import { GpuGrid } from './gpuGrid';
import { WallLegend } from './wallLegend';
import { findFree, models, wallGroups, type WallGroup } from './wallRows';
import { restoreWall, type FreeSearch, type WallState } from './wallState';
import { WallToolbar } from './wallToolbar';

/** The dependencies of a wall. */
export interface ClusterWallOptions {
  readonly trans: TranslationBundle;
  readonly model: ICluster;
  /** Called with the name of a node whose charts the user wants to see. */
  readonly openNode: (node: string) => void;
}

/** The wall in the main area: all nodes of the cluster and their GPUs. While it is hidden, it does no work. */
export class ClusterWall extends Widget {
  private readonly trans: TranslationBundle;
  private readonly model: ICluster;
  private readonly toolbar: WallToolbar;
  private readonly legend: WallLegend;
  private readonly notice = new TextElement('cluster-notice', 'div');
  private readonly summary = new TextElement('cluster-summary', 'div');
  private readonly emptyView: EmptyStateView;
  private readonly grid: GpuGrid;
  /** Describes the GPU under the pointer or with the focus. Screen readers have the cell's name instead. */
  private readonly detail = new TextElement('cluster-detail', 'div');
  private readonly view: IDisposable;
  private groups: readonly WallGroup[] = [];
  private readonly stateChanges = new Signal<this, void>(this);
  private current: WallState;

  constructor({ trans, model, openNode }: ClusterWallOptions, state: unknown) {
    super();
    this.current = restoreWall(state);
    this.trans = trans;
    this.model = model;
    this.id = 'jp-gpuwidget-cluster';
    this.addClass('jp-gpuwidget-cluster');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', trans.__('GPU Cluster'));
    this.node.tabIndex = -1;
    this.toolbar = new WallToolbar({
      trans,
      change: part => {
        this.setState(part);
      },
      exportCsv: () => {
        this.exportCsv();
      }
    });
    this.legend = new WallLegend(trans);
    const icon = gpuIcon.element({ tag: 'span', className: 'jp-gpuwidget-dashboard-empty-icon' });
    this.emptyView = new EmptyStateView(trans, icon, () => undefined);
    this.grid = new GpuGrid({
      trans,
      open: openNode,
      escape: () => {
        this.setState({ filter: '', search: null });
      },
      describe: text => {
        this.detail.set(text);
      }
    });
    setAttribute(this.notice.node, 'role', 'status');
    setAttribute(this.detail.node, 'aria-hidden', 'true');
    this.node.append(
      this.toolbar.node,
      this.notice.node,
      this.legend.node,
      this.emptyView.node,
      this.grid.node,
      this.detail.node,
      this.summary.node
    );
    this.view = model.addView(() => this.isActive);
    model.changed.connect(this.update, this);
    unitsChanged.connect(this.updateLegend, this);
    document.addEventListener('visibilitychange', this.updateActive);
    this.applyState();
  }

  /** What the wall shows; it is saved with the workspace. */
  get state(): WallState {
    return this.current;
  }

  /** Emitted when `state` changes. */
  get stateChanged(): ISignal<this, void> {
    return this.stateChanges;
  }

  /** Show another state. */
  showState(state: unknown): void {
    this.setState(restoreWall(state));
  }

  override dispose(): void {
    if (this.isDisposed) {
      return;
    }
    document.removeEventListener('visibilitychange', this.updateActive);
    this.view.dispose();
    super.dispose(); // This disconnects all signals.
  }

  protected override onAfterShow(): void {
    this.updateActive();
  }

  protected override onAfterAttach(): void {
    this.updateActive();
  }

  protected override onAfterHide(): void {
    this.updateActive();
  }

  protected override onActivateRequest(): void {
    if (this.groups.length > 0) {
      this.grid.focus();
    } else {
      this.node.focus();
    }
  }

  protected override onUpdateRequest(): void {
    if (!this.isActive) {
      return;
    }
    const { trans } = this;
    const { data } = this.model;
    const snapshot = lastValue(data);
    const notice = clusterNotice(trans, data);
    const time = snapshot?.time ?? 0;
    this.groups = snapshot === null ? [] : wallGroups(snapshot, this.current);
    const emptyText = clusterEmptyText(trans, data, this.groups.length === 0);
    this.emptyView.show(emptyText === null ? null : { text: emptyText });
    // The reason in the empty state is not shown twice.
    this.notice.set(notice === emptyText ? '' : (notice ?? ''));
    setHidden(this.notice.node, this.notice.value === '');
    setAttribute(this.node, 'data-stale', data.kind === 'live' ? '' : 'true');
    setHidden(this.grid.node, emptyText !== null);
    setHidden(this.legend.node, emptyText !== null);
    this.grid.update(this.groups, this.current, time);
    this.toolbar.setEmpty(this.groups.length === 0);
    this.toolbar.setModels(snapshot === null ? [] : models(snapshot), this.current.search?.model);
    this.toolbar.setResult(this.searchResult(snapshot));
    this.summary.set(snapshot === null || time === 0 ? '' : clusterSummary(trans, snapshot, true));
  }

  private get isActive(): boolean {
    return this.isVisible && document.visibilityState === 'visible';
  }

  private readonly updateActive = (): void => {
    this.model.wake();
    this.update();
  };

  private setState(part: Partial<WallState>): void {
    this.current = { ...this.current, ...part };
    this.applyState();
    this.stateChanges.emit();
    this.update();
  }

  private applyState(): void {
    this.toolbar.update(this.current);
    if (this.current.search !== null) {
      this.toolbar.setCount(this.current.search.count);
    }
    this.updateLegend();
  }

  private updateLegend(): void {
    this.legend.update(this.current.quantity);
    this.update();
  }

  /** Return where the wanted free GPUs are, as a sentence. */
  private searchResult(snapshot: ClusterSnapshot | null): string {
    const { trans } = this;
    const { search } = this.current;
    if (search === null || snapshot === null) {
      return '';
    }
    const { nodes, total, spread } = findFree(snapshot, search);
    const what = searchText(trans, search);
    const sentence =
      nodes.length > 0
        ? trans._n('%2: %1 node, %3', '%2: %1 nodes, %3 first', nodes.length, what, nodes[0])
        : total === 0
          ? trans.__('%1: none', what)
          : trans._n(
              '%2: no single node has them; %3 in total, on %1 node',
              '%2: no single node has them; %3 in total, on %1 nodes',
              spread,
              what,
              total
            );
    return this.model.data.kind === 'live' || snapshot.time === null
      ? sentence
      : trans.__('%1 (values from %2)', sentence, moment(snapshot.time, Date.now() / 1000));
  }

  private exportCsv(): void {
    const time = lastValue(this.model.data)?.time ?? null;
    if (time !== null) {
      saveFile(csvName('gpu cluster', time), clusterCsv(time, this.groups));
    }
  }
}

function searchText(trans: TranslationBundle, { count, model }: FreeSearch): string {
  return model === ''
    ? trans._n('%1 free GPU', '%1 free GPUs', count)
    : trans.__('%1 free %2', count, modelName(model));
}
