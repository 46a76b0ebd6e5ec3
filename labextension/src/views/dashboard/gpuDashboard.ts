import type { TranslationBundle } from '@jupyterlab/translation';
import type { IDisposable } from '@lumino/disposable';
import { Debouncer } from '@lumino/polling';
import { Signal, type ISignal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';

import type { Clock } from '../../model/clock';
import { NoticeView } from '../panel/notice';
import { serverNotice, type Notice } from '../panel/panelMessages';
import { lastValue } from '../../model/freshness';
import type { ServerClient } from '../../model/server/serverClient';
import type { ICellRuns, IClusterModel, IGpuSettings, IMonitor } from '../../tokens';
import { metricTexts, type MetricName } from '../../wire/metricTable';
import type { Band } from '../../model/cells/band';
import { setAttribute, setHidden, TextElement } from '../../ui/dom';
import { sentence, unitsChanged } from '../../model/format';
import { gpuIcon } from '../../ui/icon';
import type { ClusterSnapshot, ReceivedMessage } from '../../wire/wire';
import { ChartGrid } from './chartGrid';
import { CsvExport } from './csvExport';
import { gpusOfNode, gpusOfSample, type DashboardGpu } from './dashboardGpus';
import {
  historyLength,
  isRecent,
  restoreState,
  SERVER_HISTORY_S,
  withGpu,
  withMetric,
  withOnly,
  withoutHiddenChart,
  withoutPrometheus,
  type DashboardState,
  type TimeRange,
  keyAction,
  navigate
} from '../../model/history/dashboardState';
import { emptyState, EmptyStateView, type EmptyState } from './emptyState';
import { readChartColors, type ChartColors } from './gpuColors';
import { HistoryLoader } from '../../model/history/historyLoader';
import { HolderBars } from './holderBars';
import { Legend } from './legend';
import { MAX_LINES } from './metricChart';
import { METRICS } from '../../model/metrics';
import { RenderThrottle } from './renderThrottle';
import { currentState } from '../../model/stream/streamModel';
import { gapsOf, type TimeAxis } from '../../model/history/timeSeries';
import { Toolbar } from './toolbar';

/**
 * If there are more GPUs than this, charts are drawn less often and with fewer steps, since that many lines
 * are hard to tell apart anyway.
 */
const MANY_GPUS = 4;
/** Maximum number of steps in a chart. Each step is one point of each line and takes one or two pixels. */
const POINTS = 400;
const POINTS_OF_MANY = 250;
/** How long the error of a failed click is shown, in milliseconds. */
const ERROR_MS = 10_000;

/** The dependencies of a dashboard. */
export interface DashboardOptions {
  readonly trans: TranslationBundle;
  readonly monitor: IMonitor;
  readonly server: ServerClient;
  readonly cluster: IClusterModel;
  readonly cells: ICellRuns;
  readonly settings: IGpuSettings;
  readonly clock: Clock;
  /** The only metric, for a chart in its own tab; null for the dashboard of all metrics. */
  readonly metric: MetricName | null;
  /** Open a chart in its own tab. `state` is the state of this dashboard. */
  readonly openTab: (metric: MetricName, state: DashboardState) => void;
}

/**
 * The dashboard in the main area: every metric of every GPU over time, or only one of the metrics. While it is
 * hidden, it does no work.
 */
export class GpuDashboard extends Widget {
  private readonly trans: TranslationBundle;
  private readonly monitor: IMonitor;
  private readonly cluster: IClusterModel;
  private readonly cells: ICellRuns;
  private readonly settings: IGpuSettings;
  /** The view of the cluster's model; null without a Prometheus. */
  private readonly clusterView: IDisposable | null;
  private readonly loader: HistoryLoader;
  private readonly throttle: RenderThrottle;
  private readonly csvExport: CsvExport;
  private readonly errorTimeout: Debouncer<void>;
  private actionError: string | null = null;
  private readonly recording = new TextElement('dashboard-recording', 'div');
  private readonly notice: NoticeView;
  private readonly emptyView: EmptyStateView;
  private readonly toolbar: Toolbar;
  private readonly legend: Legend;
  private readonly holders: HolderBars;
  private readonly grid: ChartGrid;
  /** The time axis, whose arrays are reused for every frame. */
  private readonly axis: TimeAxis = { times: [], indices: [] };
  private colors: ChartColors | null = null;
  private active = false;
  /** The number of steps in the last request. */
  private requestedPoints = POINTS;
  private readonly stateChanges = new Signal<this, void>(this);
  private current: DashboardState;

  /** The only metric; null for the dashboard of all metrics. */
  readonly metric: MetricName | null;

  constructor(options: DashboardOptions, state: unknown) {
    super();
    const { trans, monitor, server, cluster, cells, settings, clock, metric, openTab } = options;
    this.metric = metric;
    this.cells = cells;
    this.settings = settings;
    this.cluster = cluster;
    const current = (this.current = this.normalize(state));
    this.clusterView = cluster?.addView(() => this.active) ?? null;
    cluster?.changed.connect(this.handleCluster, this);
    this.trans = trans;
    this.monitor = monitor;
    this.id = `jp-gpuwidget-dashboard${metric === null ? '' : `-${metric}`}`;
    this.addClass('jp-gpuwidget-dashboard');
    const title = metric === null ? trans.__('GPU Dashboard') : metricTexts(trans, metric)[0];
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', title);
    this.node.tabIndex = -1;
    this.loader = new HistoryLoader(server, clock);
    this.throttle = new RenderThrottle(clock, () => {
      this.draw();
    });
    this.csvExport = new CsvExport(trans, server);
    this.errorTimeout = new Debouncer(() => {
      this.setError(null);
    }, ERROR_MS);
    this.notice = new NoticeView(trans, () => undefined);
    this.notice.node.classList.add('jp-gpuwidget-dashboard-notice');
    const icon = gpuIcon.element({ tag: 'span', className: 'jp-gpuwidget-dashboard-empty-icon' });
    this.emptyView = new EmptyStateView(trans, icon, action => {
      this.setState(action === 'metrics' ? { metrics: METRICS } : { hidden: [] });
      this.updateSections(); // This hides the focused button, so the focus is moved to the charts.
      this.takeFocus();
    });
    this.toolbar = new Toolbar({
      trans,
      hasPrometheus: cluster !== null,
      setNode: node => {
        this.setState({ node, hidden: [] });
      },
      setZoom: zoom => {
        this.setState({ zoom });
      },
      setRange: range => {
        this.setState({ range, zoom: null });
      },
      setLive: live => {
        this.setState({ zoom: live ? null : this.timeRange() });
      },
      setMetric: (name, shown) => {
        this.setState(withMetric(this.current, name, shown));
      },
      setAllMetrics: shown => {
        this.setState({ metrics: shown ? METRICS : [] });
      },
      setSmoothing: smoothing => {
        this.setState({ smoothing });
      },
      setMean: mean => {
        this.setState({ mean });
      },
      setLines: lines => {
        this.setState({ lines });
      },
      showAll: () => {
        this.setState({ enlarged: null });
        this.takeFocus();
      },
      isSingle: metric !== null,
      setAlwaysOn: on => {
        void this.setAlwaysOn(server, on);
      },
      exportCsv: () => {
        void this.exportCsv();
      }
    });
    this.holders = new HolderBars(trans);
    this.grid = new ChartGrid({
      trans,
      holders: this.holders.node,
      colors: () => (this.colors ??= readChartColors(this.node)),
      key: this.id,
      zoom: zoom => {
        this.setState({ zoom });
      },
      reset: () => {
        this.setState({ zoom: null });
      },
      actions:
        metric !== null
          ? null
          : {
              enlarge: name => {
                this.setState({ enlarged: this.current.enlarged === null ? name : null });
              },
              openTab: name => {
                openTab(name, this.current);
              }
            }
    });
    this.legend = new Legend({
      trans,
      toggle: uuid => {
        this.setState(withGpu(this.current, uuid, this.current.hidden.includes(uuid)));
      },
      showOnly: uuid => {
        const uuids = this.gpus().map(gpu => gpu.uuid);
        this.setState(withOnly(this.current, uuid, uuids));
      },
      focus: uuid => {
        this.grid.focus(uuid);
      }
    });
    setHidden(this.grid.node, true);
    const { scroll } = this.grid;
    scroll.tabIndex = 0;
    scroll.setAttribute('role', 'group');
    scroll.setAttribute(
      'aria-label',
      trans.__(
        'Charts. Keys: arrows pan, plus and minus zoom, Shift+arrows move the cursor, Escape returns to live'
      )
    );
    scroll.addEventListener('keydown', this.handleKey);
    this.node.append(
      this.toolbar.node,
      this.recording.node,
      this.notice.node,
      this.legend.node,
      this.emptyView.node,
      this.grid.node
    );
    monitor.changed.connect(this.update, this);
    monitor.received.connect(this.handleMessage, this);
    this.loader.changed.connect(this.redraw, this);
    unitsChanged.connect(this.redraw, this);
    document.addEventListener('visibilitychange', this.updateActive);
    cells.changed.connect(this.redrawBands, this);
    settings.changed.connect(this.handleSettings, this);
    this.grid.setMetrics(current.metrics);
    this.grid.setEnlarged(current.enlarged);
    this.toolbar.update(current);
  }

  /** What the dashboard shows; it is saved with the workspace. */
  get state(): DashboardState {
    return this.current;
  }

  /** Show another part of the history, or another machine. */
  showState(state: unknown): void {
    this.setState(this.normalize(state));
  }

  private normalize(saved: unknown): DashboardState {
    const state = restoreState(saved, Date.now() / 1000);
    const possible = this.cluster === null ? withoutPrometheus(state, Date.now() / 1000) : state;
    return this.metric === null ? possible : { ...possible, metrics: [this.metric], enlarged: null };
  }

  /** Emitted when `state` changes. */
  get stateChanged(): ISignal<this, void> {
    return this.stateChanges;
  }

  /** Redraw after a change of the theme. */
  handleThemeChange(): void {
    this.colors = null;
    this.grid.redraw();
  }

  override dispose(): void {
    if (this.isDisposed) {
      return;
    }
    document.removeEventListener('visibilitychange', this.updateActive);
    this.csvExport.cancel();
    this.errorTimeout.dispose();
    this.clusterView?.dispose();
    this.grid.dispose();
    super.dispose(); // This stops the work by detaching the widget, and disconnects all signals.
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

  protected override onBeforeDetach(): void {
    this.deactivate();
  }

  protected override onActivateRequest(): void {
    this.takeFocus();
  }

  protected override onUpdateRequest(): void {
    if (this.active) {
      this.updateSections();
      this.throttle.invoke();
    }
  }

  /** Update everything except the charts. */
  private updateSections(): void {
    const { sample } = this.monitor.model;
    const { node } = this.current;
    const recording = node === null ? (sample?.origin.recording ?? null) : null;
    this.recording.set(recording ?? '');
    setHidden(this.recording.node, recording === null);
    const problem = this.serverNotice() ?? this.dataNotice();
    const empty = this.emptyState(problem);
    // If the notice and the empty state have the same text, show only the empty state.
    const notice = problem?.text === empty?.text ? null : problem;
    this.notice.show(this.actionError === null ? notice : { text: this.actionError });
    this.emptyView.show(empty);
    this.showCharts(empty === null);
    setHidden(this.toolbar.node, this.cluster === null && sample?.gpus.length === 0);
    this.toolbar.setNodes(this.snapshot?.nodes.map(({ name }) => name) ?? [], node);
    this.toolbar.setEmpty(empty !== null);
    const { kind } = this.monitor.data;
    setAttribute(this.node, 'data-link', node === null && this.current.zoom === null ? kind : '');
    setAttribute(this.holders.node, 'data-stale', kind === 'live' ? '' : 'true');
    const gpus = this.gpus();
    const { mean, lines } = this.current;
    const hasHeatMaps = !mean && this.shownGpus().length > MAX_LINES;
    this.toolbar.setGpuCount(gpus.length, hasHeatMaps);
    const { server: info } = this.monitor.model;
    this.toolbar.showAlwaysOn(node === null ? (info?.alwaysOn ?? null) : null);
    setAttribute(this.node, 'data-heat', hasHeatMaps && !lines ? 'true' : '');
    this.legend.update(gpus, this.current.hidden);
    const { kernels, model } = this.monitor;
    const listed = node === null && this.settings.current.show.holders;
    const all = listed ? model.gpus(currentState(kernels), kernels.view.kernel?.id ?? null) : [];
    this.holders.update(
      all.filter(({ gpu }) => !this.current.hidden.includes(gpu.uuid)),
      model.usage
    );
  }

  /** Focus the charts, or the dashboard while there are none. */
  private takeFocus(): void {
    (this.grid.node.hidden ? this.node : this.grid.scroll).focus();
  }

  /** Show or hide the charts, and move the focus, because a hidden element loses it. */
  private showCharts(shown: boolean): void {
    const { node, scroll } = this.grid;
    if (node.hidden !== shown) {
      return;
    }
    const { activeElement } = document;
    const [hasFocus, target] = shown
      ? [activeElement === this.node, scroll]
      : [node.contains(activeElement), this.node];
    setHidden(node, !shown);
    if (hasFocus) {
      target.focus({ preventScroll: true });
    }
  }

  private emptyState(notice: Notice | null): EmptyState | null {
    const { sample } = this.monitor.model;
    const { node } = this.current;
    const known = node === null ? sample !== null : this.snapshot !== null;
    return emptyState(this.trans, {
      gpus: known ? this.gpus().length : null,
      reason:
        node === null
          ? (sample?.origin.reason ?? null)
          : this.trans.__('Prometheus currently reports no GPUs for %1. Choose another machine.', node),
      shownGpus: this.shownGpus().length,
      metrics: this.current.metrics.length,
      loaded: this.loader.series !== null,
      notice
    });
  }

  /** Start all work when the dashboard becomes visible, and stop it when the dashboard is hidden. */
  private readonly updateActive = (): void => {
    const active = this.isVisible && document.visibilityState === 'visible';
    if (active === this.active) {
      return;
    }
    if (!active) {
      this.deactivate();
      return;
    }
    this.active = true;
    this.monitor.setDashboardVisible(this, true);
    this.handleSettings();
    this.cluster?.wake();
    if (this.monitor.connectionState === 'open' || !this.streams) {
      // If the stream is not open yet, the history is loaded when the stream's first message arrives. If
      // the history were loaded earlier, there would be a gap between the history and the samples.
      this.load();
    }
    this.update();
  };

  private deactivate(): void {
    this.active = false;
    this.monitor.setDashboardVisible(this, false);
    this.cells.setVisible(this, false);
    this.loader.stop();
    this.throttle.stop();
    this.actionError = null;
  }

  private handleMessage(_: unknown, message: ReceivedMessage): void {
    if (!this.active) {
      return;
    }
    if (message.type === 'sample') {
      if (this.points !== this.requestedPoints) {
        this.load(); // The number of steps depends on the number of GPUs, which has changed or was unknown.
      }
      this.loader.append(message.sample);
      this.throttle.invoke();
    } else if (message.type === 'hello' && this.streams) {
      // Only the server has the samples that were taken between the previous stream and this new one, so load
      // the history again.
      this.load();
    }
  }

  private handleCluster(): void {
    if (!this.active) {
      return;
    }
    if (this.current.node !== null && this.points !== this.requestedPoints) {
      this.load();
    }
    this.update();
  }

  private redraw(): void {
    if (this.active) {
      this.throttle.flush();
      this.update();
    }
  }

  private setState(changes: Partial<DashboardState>): void {
    const previous = this.current;
    if (previous.zoom === null && changes.zoom === null && Object.keys(changes).length === 1) {
      return; // The dashboard is already in live mode.
    }
    const state = (this.current = withoutHiddenChart({ ...previous, ...changes }));
    const needsData =
      state.range !== previous.range ||
      state.zoom !== previous.zoom ||
      state.node !== previous.node ||
      state.metrics.some(name => !previous.metrics.includes(name));
    this.grid.setMetrics(state.metrics);
    this.grid.setEnlarged(state.enlarged);
    this.toolbar.update(state);
    this.stateChanges.emit();
    if (needsData || this.points !== this.requestedPoints) {
      this.load();
    }
    this.update();
    this.throttle.flush();
  }

  private load(): void {
    const { range, zoom, metrics, node } = this.current;
    if (this.active && metrics.length > 0) {
      this.requestedPoints = this.points;
      const span = zoom ?? { seconds: range };
      const { requestedPoints: points, streams } = this;
      this.loader.load({ span, metrics, points, node, streams });
    }
  }

  /** Whether the samples of the stream continue what is shown. */
  private get streams(): boolean {
    const { range, zoom, node } = this.current;
    return zoom === null && node === null && range <= SERVER_HISTORY_S;
  }

  /** Return the visible time range. */
  private timeRange(): TimeRange {
    const { newest: to } = this;
    return this.current.zoom ?? { from: to - this.current.range, to };
  }

  /** The time of the newest sample by the server's clock. */
  private get newest(): number {
    const newest = Math.max(
      this.loader.series?.newest ?? -Infinity,
      this.monitor.model.sample?.time ?? -Infinity
    );
    return Number.isFinite(newest) ? newest : Date.now() / 1000;
  }

  private get points(): number {
    return this.hasManyGpus ? POINTS_OF_MANY : POINTS;
  }

  private get hasManyGpus(): boolean {
    return this.shownGpus().length > MANY_GPUS;
  }

  /** The last known state of the cluster. */
  private get snapshot(): ClusterSnapshot | null {
    return this.cluster === null ? null : lastValue(this.cluster.data);
  }

  /** Return all GPUs of the chosen machine. */
  private gpus(): DashboardGpu[] {
    const { node } = this.current;
    if (node === null) {
      return gpusOfSample(this.trans, this.monitor.model.sample);
    }
    return this.snapshot === null ? [] : gpusOfNode(this.trans, this.snapshot, node);
  }

  private shownGpus(): DashboardGpu[] {
    return this.gpus().filter(({ uuid }) => !this.current.hidden.includes(uuid));
  }

  private draw(): void {
    const { series } = this.loader;
    if (!this.active || series === null) {
      return;
    }
    const range = this.timeRange();
    const live = this.current.zoom === null;
    series.axis(range.from, this.monitor.model.server?.interval ?? 0, this.axis);
    const isOwn = this.current.node === null && isRecent(range, this.newest);
    const missing = isOwn ? '' : this.trans.__('No values are stored for this metric in this time range.');
    const { mean, lines, smoothing } = this.current;
    const gpus = this.shownGpus();
    const gaps = isOwn ? this.gaps(range, series.since) : [];
    const bands = [...this.bands(gpus), ...gaps].sort(
      (a, b) => a.from - b.from || (b.until ?? Infinity) - (a.until ?? Infinity)
    );
    this.grid.draw({ series, axis: this.axis, range, gpus, mean, lines, smoothing, bands, live, missing });
    this.throttle.seconds = live ? this.current.range : Infinity;
    this.throttle.slow = this.hasManyGpus;
  }

  /** Return the parts of a time range in which the server stored no sample. */
  private gaps(range: TimeRange, since: number): Band[] {
    const label = this.trans.__('not recorded');
    const title = this.trans.__(
      'Not recorded: the server stored no values in this time. The server’s setting c.GpuWidget.always_on lets it record without a page.'
    );
    const gaps = gapsOf(this.axis, range, since);
    return gaps.map(([from, until]) => ({ from, until, label, title, isGap: true }));
  }

  /** Return the time ranges in which cells used these GPUs. */
  private bands(gpus: readonly DashboardGpu[]): Band[] {
    if (this.current.node !== null || !this.settings.current.show.bands) {
      return [];
    }
    // A cell that used several GPUs has the same band on each of them.
    const bands = gpus.flatMap(({ uuid }) => this.cells.bands(uuid));
    return [...new Map(bands.map(band => [`${String(band.from)} ${band.label}`, band])).values()];
  }

  private handleSettings(): void {
    this.cells.setVisible(this, this.active && this.settings.current.show.bands);
    this.redrawBands();
    this.update();
  }

  /** Draw the bands after a change, such as the end of a cell. */
  private redrawBands(): void {
    if (this.active) {
      this.throttle.invoke();
    }
  }

  /**
   * Return a notice about a problem with the connection; null while samples arrive, and while the first
   * sample is still expected.
   */
  private serverNotice(): Notice | null {
    if (this.current.node !== null) {
      return null; // Prometheus has the values of other machines.
    }
    const { connectionState: link, data } = this.monitor;
    const isExpected = data.kind === 'none' && data.reason.seconds === null;
    return isExpected && (link === 'open' || link === 'opening') ? null : serverNotice(this.trans, data);
  }

  /**
   * Return a notice about a problem with the history or with the source of the samples; null if there is
   * none.
   */
  private dataNotice(): Notice | null {
    if (this.loader.failure !== null) {
      return {
        text: this.trans.__(
          'The history could not be loaded: %1 Trying again.',
          sentence(this.loader.failure)
        )
      };
    }
    if (this.current.node !== null) {
      const data = this.cluster?.data;
      const reason = data === undefined || data.kind === 'live' ? null : data.reason;
      const problem = reason?.failure ?? reason?.problem ?? null;
      return problem === null ? null : { text: problem };
    }
    const reason = this.monitor.model.sample?.origin.reason ?? null;
    return reason === null ? null : { text: reason };
  }

  private readonly handleKey = (event: KeyboardEvent): void => {
    const action = keyAction(event);
    if (action === null) {
      return;
    }
    event.preventDefault();
    const range = this.timeRange();
    const cursor = this.grid.cursorTime;
    switch (action.kind) {
      case 'reset':
        this.grid.setCursor(null);
        this.setState(this.current.enlarged === null ? { zoom: null } : { enlarged: null });
        break;
      case 'move':
      case 'zoom': {
        const newest = this.monitor.model.sample?.time ?? range.to;
        const length = historyLength(this.cluster !== null);
        this.setState({ zoom: navigate(action, range, newest, cursor, length) });
        break;
      }
      case 'point': {
        const time = (cursor ?? range.to) + action.share * (range.to - range.from);
        this.grid.setCursor(Math.min(range.to, Math.max(range.from, time)));
        break;
      }
    }
  };

  private async exportCsv(): Promise<void> {
    const { metrics, enlarged, node } = this.current;
    this.setError(null);
    this.toolbar.setExporting(true);
    const failure = await this.csvExport.run({
      range: this.timeRange(),
      gpus: this.shownGpus(),
      metrics: enlarged === null ? metrics : [enlarged],
      isRecording: (this.monitor.model.sample?.origin.recording ?? null) !== null,
      node
    });
    if (failure !== null) {
      this.setError(this.trans.__('The CSV file could not be made: %1', failure));
    }
    this.toolbar.setExporting(false);
  }

  /** Let the server store values even without pages, or not. The server tells all pages of the change. */
  private async setAlwaysOn(server: ServerClient, on: boolean): Promise<void> {
    this.setError(null);
    const result = await server.setAlwaysOn(on);
    if (result.kind !== 'ok') {
      this.setError(this.trans.__('Couldn’t change what the server stores: %1', result.reason));
    }
  }

  private setError(text: string | null): void {
    this.actionError = text;
    if (text !== null) {
      // The promise rejects if the debouncer is disposed of before it has run.
      this.errorTimeout.invoke().catch(() => undefined);
    }
    this.update();
  }
}
