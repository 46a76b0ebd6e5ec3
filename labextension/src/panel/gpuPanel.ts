import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { TranslationBundle } from '@jupyterlab/translation';
import { Toolbar } from '@jupyterlab/ui-components';
import { Panel, PanelLayout, Widget } from '@lumino/widgets';

import { CellsSection, type DashboardLink } from './cellsSection';
import { DeviceSection } from './deviceSection';
import { GpuList } from './gpuList';
import { HintList } from './hintList';
import { NoticeView, StatusMessageView } from './notice';
import { serverNotice, type Notice } from './panelMessages';
import type { PanelState } from './panelState';
import { SettingsSection } from './settingsSection';
import { gpuHoursText, gpuHoursTitle, jobText } from '../memory/gpuHours';
import { HintFinder, type Hint, type Thresholds } from '../memory/hints';
import { kernelsOf, sharedReason } from '../memory/holders';
import type { ShownSections } from '../settings';
import { withoutMemory } from '../stream/streamModel';
import type { ICellRuns, IGpuPanel, IHolderActions, IMonitor, PanelSection } from '../tokens';
import { type Band, readPalette, type Palette } from '../ui/chartBands';
import { element, setAttribute, setHidden, Text } from '../ui/dom';
import { duration } from '../ui/format';
import { gpuIcon } from '../ui/icon';

/**
 * The layouts, each with the largest width of the panel that it is for. Widths are in multiples of the font
 * size, so that a large font has the layout of a narrow panel. A tiny panel has all rules of a narrow one. In
 * a stacked layout, names and dropdowns are above the controls and figures that belong to them.
 */
const LAYOUTS: readonly (readonly [width: number, name: string])[] = [
  [17, 'stacked narrow tiny'],
  [21.5, 'stacked narrow'],
  [30, 'stacked'],
  [36, 'wide'],
  [Infinity, 'wide large']
];
const NO_BANDS: readonly Band[] = [];

/** The dependencies and settings of the panel. */
export interface PanelOptions {
  readonly panelState: PanelState;
  readonly cells: ICellRuns;
  readonly holders: IHolderActions;
  readonly dashboard: DashboardLink;
  /** The limits at which hints are shown. */
  readonly thresholds: Thresholds;
  /** Which parts of the panel are shown. */
  readonly shown: ShownSections;
  /** Whether the server hides the processes of other users. */
  readonly hideOtherUsers: boolean;
  /** The language tag of the page, such as `zh-CN`. */
  readonly locale: string;
}

/** The panel in the sidebar. It opens the stream and queries the kernel only while it is visible. */
export class GpuPanel extends Widget implements IGpuPanel {
  readonly panelState: PanelState;
  /** A mark that shows whether samples arrive. */
  private readonly dot = element('span', 'panel-dot');
  /** The buttons in the header, which JupyterLab's toolbar registry creates. */
  readonly toolbar = new Toolbar();
  private readonly rate = new Text('panel-rate');
  private readonly recording = new Text('panel-recording', 'div');
  /** Why it is unknown who holds the memory of all GPUs. */
  private readonly reason = new Text('panel-reason', 'div');
  /** The Slurm job in which the server runs. */
  private readonly job = new Text('panel-job', 'div');
  /** What the active notebook has used of the GPUs. */
  private readonly use = new Text('panel-use', 'div');
  private readonly notice: NoticeView;
  private readonly device: DeviceSection;
  private readonly settings: SettingsSection;
  private readonly legend: HTMLElement;
  private readonly span = new Text('');
  /** Everything below the header, which scrolls as one part. */
  private readonly scroll: HTMLElement;
  private readonly list: GpuList;
  private readonly cells: ICellRuns;
  private readonly cellsSection: CellsSection;
  private readonly hintList: HintList;
  private readonly message: StatusMessageView;
  private readonly hintFinder = new HintFinder();
  private readonly sizes = new ResizeObserver(() => {
    this.updateLayout();
  });
  private readonly docked = new ResizeObserver(() => {
    this.dock();
  });
  private thresholds: Thresholds;
  private shown: ShownSections;
  private readonly sections: PanelSection[] = [];
  private palette: Palette | null = null;
  /** Whether the next activation is to leave the focus where it is. */
  private keepsFocus = false;
  /** Whether the device dropdown must be focused once it is enabled. */
  private deviceFocusRequested = false;

  constructor(
    private readonly trans: TranslationBundle,
    private readonly monitor: IMonitor,
    { cells, panelState, holders, dashboard, thresholds, shown, hideOtherUsers, locale }: PanelOptions
  ) {
    super();
    this.id = 'jp-gpuwidget-panel';
    this.addClass('jp-gpuwidget-panel');
    this.title.icon = gpuIcon;
    this.title.caption = trans.__('GPUs');
    this.node.tabIndex = -1;
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', trans.__('GPUs'));
    this.cells = cells;
    this.panelState = panelState;
    this.thresholds = thresholds;
    this.shown = shown;
    this.notice = new NoticeView(trans, () => undefined);
    this.notice.node.classList.add('jp-gpuwidget-server-notice');
    this.cellsSection = new CellsSection(trans, cells, panelState, dashboard, locale);
    this.device = new DeviceSection(trans, monitor.kernels, panelState, hideOtherUsers, sentence => {
      holders.message.set(sentence);
    });
    this.settings = new SettingsSection(trans, monitor.kernels, panelState);
    const palette = (): Palette => (this.palette ??= readPalette(this.node));
    this.list = new GpuList({ trans, palette, holders, panelState });
    this.hintList = new HintList(trans, holders, panelState);
    this.message = new StatusMessageView(trans, holders.message);
    this.legend = element(
      'div',
      'panel-legend',
      element('span', 'panel-legend-utilization', trans.__('utilization')),
      element('span', 'panel-legend-memory', trans.__('memory')),
      this.span.node
    );
    this.dot.setAttribute('role', 'img');
    const heading = element('h2', '', trans.__('GPUs'));
    const title = element('div', 'panel-title', this.dot, heading, this.rate.node);
    this.toolbar.node.setAttribute('aria-label', trans.__('Buttons of the GPU panel'));
    const header = new Panel();
    header.addClass('jp-gpuwidget-panel-header');
    header.addWidget(new Widget({ node: title }));
    header.addWidget(this.toolbar);
    const layout = new PanelLayout();
    this.layout = layout;
    layout.addWidget(header);
    this.scroll = element(
      'div',
      'panel-scroll',
      this.device.node,
      this.settings.node,
      this.recording.node,
      this.reason.node,
      this.job.node,
      this.notice.node,
      this.legend,
      this.list.node,
      this.use.node,
      // This takes the free space. The parts below it are at the bottom, and the GPUs stay when a hint appears.
      element('div', 'panel-space'),
      this.hintList.node,
      this.cellsSection.node
    );
    this.node.append(this.scroll, this.message.node);
    this.sizes.observe(this.node);
    this.sizes.observe(heading); // Its size changes with the font.
    this.docked.observe(this.hintList.node);
    this.docked.observe(this.cellsSection.node);
    monitor.changed.connect(this.update, this);
    cells.changed.connect(this.update, this);
    panelState.changed.connect(this.update, this);
    document.addEventListener('visibilitychange', this.updateVisibility);
  }

  /** Redraw the charts in the colors of the current theme. */
  redraw(): void {
    this.palette = null;
    this.list.redraw();
  }

  addSection(section: PanelSection): void {
    this.sections.push(section);
    this.scroll.append(section.node);
    this.docked.observe(section.node);
  }

  /** Apply new settings. */
  configure(thresholds: Thresholds, shown: ShownSections): void {
    this.thresholds = thresholds;
    this.shown = shown;
    this.updateVisibility();
  }

  /** Let `shell` show the panel. The focus stays where the user types. */
  open(shell: JupyterFrontEnd.IShell): void {
    this.keepsFocus = true;
    shell.activateById(this.id);
  }

  focusDevice(): void {
    this.deviceFocusRequested = !this.device.focus();
    if (this.deviceFocusRequested) {
      // Focus the panel instead, because a disabled dropdown cannot take the focus.
      this.node.focus();
    }
  }

  override dispose(): void {
    if (this.isDisposed) {
      return;
    }
    document.removeEventListener('visibilitychange', this.updateVisibility);
    this.sizes.disconnect();
    this.docked.disconnect();
    this.list.dispose();
    this.settings.dispose();
    this.message.dispose();
    for (const section of this.sections) {
      section.dispose();
    }
    super.dispose(); // This stops the work by detaching the widget, and disconnects all signals.
  }

  protected override onAfterShow(): void {
    this.updateVisibility();
  }

  protected override onAfterAttach(): void {
    this.updateVisibility();
  }

  protected override onAfterHide(): void {
    this.updateVisibility();
  }

  protected override onBeforeDetach(): void {
    this.monitor.setPanelVisible(false);
    this.cells.setVisible(this, false);
  }

  protected override onActivateRequest(): void {
    // A command may already have focused another part of the panel.
    if (!this.keepsFocus && !this.node.contains(document.activeElement)) {
      this.focusDevice();
    }
    this.keepsFocus = false;
  }

  protected override onUpdateRequest(): void {
    if (!this.isVisible) {
      return;
    }
    const { model, kernels, connectionState: link } = this.monitor;
    const origin = model.sample?.origin;
    const quiet = this.monitor.silentFor;
    const live = link === 'open' && quiet === null;
    const connection = live ? 'live' : link === 'open' || link === 'opening' ? 'waiting' : 'lost';
    setAttribute(this.node, 'data-link', connection);
    for (const attribute of ['aria-label', 'title']) {
      setAttribute(this.dot, attribute, this.connectionText(connection));
    }
    this.rate.set(this.rateText(live), live ? this.rateTitle() : '');
    const recording = origin?.recording ?? null;
    this.recording.set(recording ?? '');
    setHidden(this.recording.node, recording === null);
    this.updateUse(kernels.view.kernel?.id ?? null);
    this.notice.show(this.serverNotice(quiet, origin?.reason ?? null));
    this.placeNotice((model.sample?.gpus.length ?? 0) > 0);
    const reason = this.shown.holders ? sharedReason(model.usage) : '';
    this.reason.set(reason);
    setHidden(this.reason.node, reason === '');
    this.device.update(
      model.server,
      {
        gpus: live && this.monitor.hasSample ? model.gpus(null, kernels.view.kernel?.id ?? null) : [],
        kernels: kernelsOf(model.usage),
        time: model.sample?.time ?? NaN
      },
      origin?.reason ?? null
    );
    this.moveRequestedFocus();
    setHidden(this.settings.node, !this.shown.switches);
    if (this.shown.switches) {
      this.settings.update();
    }
    this.span.set(this.spanText(model.seconds), this.shown.bands ? this.clockSkewTitle() : '');
    setHidden(this.legend, (model.sample?.gpus.length ?? 0) === 0);
    const { state, view } = kernels;
    const hints = this.shown.hints ? this.hints() : [];
    this.hintList.update(hints, kernelsOf(model.usage));
    this.list.update(model, view.silentFor === null || state === null ? state : withoutMemory(state), {
      activeKernel: view.kernel?.id ?? null,
      hinted: new Set(hints.flatMap(hint => (hint.kind === 'idle' ? hint.kernel.id : []))),
      bands: uuid => (this.shown.bands ? this.cells.bands(uuid) : NO_BANDS),
      holders: this.shown.holders,
      sharedReason: reason
    });
    if (this.shown.cells) {
      this.cellsSection.update();
    } else {
      setHidden(this.cellsSection.node, true);
    }
    for (const section of this.sections.filter(({ node }) => !node.hidden)) {
      section.update();
    }
  }

  /** Put the server's notice below everything that scrolls if GPUs are shown, so that they do not move. */
  private placeNotice(below: boolean): void {
    const { node } = this.notice;
    if (below !== (node.parentElement === this.node)) {
      (below ? this.message.node : this.legend).before(node);
    }
  }

  /** Choose the layout for the panel's width. */
  private updateLayout(): void {
    const { clientWidth: width } = this.node;
    const size = width / parseFloat(getComputedStyle(this.node).fontSize);
    if (width > 0) {
      // An attribute is set instead of using a CSS container query, which would double the cost of each
      // layout.
      setAttribute(this.node, 'data-size', LAYOUTS.find(([limit]) => size < limit)?.[1] ?? '');
    }
  }

  /**
   * Keep the hints and the heads of collapsed sections visible at the bottom, one above the other, while the
   * rest is scrolled.
   */
  private dock(): void {
    const parts = [
      ...this.sections.map(({ node }) => node).reverse(),
      this.cellsSection.node,
      this.hintList.node
    ];
    let bottom = 0;
    for (const node of parts) {
      const expanded = node.hasAttribute('open') || node.dataset.open === 'true';
      node.classList.toggle('jp-gpuwidget-docked', !expanded);
      // In an expanded section, which is positioned relatively, `bottom` would move it over the part above.
      node.style.bottom = expanded ? '' : `${String(bottom)}px`;
      bottom += expanded ? 0 : node.offsetHeight;
    }
    this.scroll.style.scrollPaddingBottom = `${String(bottom)}px`;
  }

  private readonly updateVisibility = (): void => {
    const visible = this.isVisible && document.visibilityState === 'visible';
    this.monitor.setPanelVisible(visible);
    // Outputs are read and clocks are compared only if a section that needs them is shown.
    this.cells.setVisible(this, visible && (this.shown.cells || this.shown.bands));
    this.update();
  };

  /** Focus the device dropdown once it is enabled, unless the user has moved the focus meanwhile. */
  private moveRequestedFocus(): void {
    if (this.deviceFocusRequested) {
      this.deviceFocusRequested = document.activeElement === this.node && !this.device.focus();
    }
  }

  /** Show the server's Slurm job, and what the active notebook has used of the GPUs. */
  private updateUse(kernel: string | null): void {
    const { usage, sample } = this.monitor.model;
    const job = usage?.job ?? null;
    this.job.set(job === null ? '' : jobText(this.trans, job, sample?.time ?? 0));
    setHidden(this.job.node, job === null || sample === null);
    const hours = usage?.kernels.find(({ id }) => id === kernel)?.gpu_hours ?? null;
    const text = hours === null ? '' : gpuHoursText(this.trans, hours);
    this.use.set(
      hours === null ? '' : this.trans.__('This notebook: %1', text),
      hours === null ? '' : gpuHoursTitle(this.trans, hours)
    );
    setHidden(this.use.node, hours === null);
  }

  private hints(): Hint[] {
    const { usage, sample, server } = this.monitor.model;
    return usage === null || sample === null
      ? []
      : this.hintFinder.find(usage, sample, server?.interval ?? 0, this.thresholds);
  }

  private spanText(seconds: number): string {
    return seconds >= 60 && seconds % 60 === 0
      ? this.trans.__('last %1 min', seconds / 60)
      : this.trans.__('last %1', duration(seconds));
  }

  private clockSkewTitle(): string {
    const { seconds } = this.cells.clockSkew;
    return seconds === null
      ? ''
      : this.trans.__(
          'Cell runs are not shown: the clocks of the kernel and of the server differ by %1.',
          duration(Math.abs(seconds))
        );
  }

  private connectionText(connection: 'live' | 'waiting' | 'lost'): string {
    switch (connection) {
      case 'live':
        return this.trans.__('Live');
      case 'waiting':
        return this.trans.__('Waiting for data');
      case 'lost':
        return this.trans.__('No connection to the server');
    }
  }

  private rateText(live: boolean): string {
    const interval = this.monitor.model.server?.interval;
    if (!live || interval === undefined) {
      return this.monitor.connectionState === 'lost' ? this.trans.__('reconnecting…') : '';
    }
    return interval < 1
      ? this.trans.__('Updates %1×/s', Math.round(10 / interval) / 10)
      : this.trans.__('Updates every %1 s', Math.round(10 * interval) / 10);
  }

  /**
   * Return why the sampling interval differs from the interval of the settings or of the server; an empty
   * text if it does not differ.
   */
  private rateTitle(): string {
    const { server, ownInterval, minInterval } = this.monitor.model;
    const seconds = (interval: number): number => Math.round(100 * interval) / 100;
    if (server !== null && server.interval > ownInterval) {
      return this.trans.__(
        'Set by the minimum sampling interval in the settings. Without it, updates arrive every %1 s',
        seconds(ownInterval)
      );
    }
    return minInterval > 0 && minInterval < ownInterval
      ? this.trans.__(
          'The settings allow a sample every %1 s, but the server samples less often',
          seconds(minInterval)
        )
      : '';
  }

  private serverNotice(quiet: number | null, reason: string | null): Notice | null {
    const { connectionState: link, hasSample: sampled, model } = this.monitor;
    const notice = serverNotice(this.trans, { link, quiet, sampled, known: model.sample !== null });
    return notice ?? (reason === null ? null : { text: reason });
  }
}
