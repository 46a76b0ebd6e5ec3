import type { TranslationBundle } from '@jupyterlab/translation';
import { Toolbar } from '@jupyterlab/ui-components';
import { Panel, PanelLayout, Widget } from '@lumino/widgets';

import { CellsSection } from './cellsSection';
import type { RunTimes } from '../cards/runTimes';
import { DeviceSection } from './deviceSection';
import { GpuList } from './gpuList';
import { HintList } from './hintList';
import { NoticeView, StatusMessageView } from './notice';
import { serverNotice, type Notice } from './panelMessages';
import type { PanelState } from '../../model/panelState';
import { BROWSER_CLOCK } from '../../model/clock';
import { liveValue } from '../../model/freshness';
import { SwitchesSection } from './switchesSection';
import { gpuHoursText, gpuHoursTitle, jobText } from '../../model/memory/gpuHours';
import { HintFinder, type Hint } from '../../model/memory/hints';
import { kernelsOf, sharedReason } from '../../model/memory/holders';
import { ActionResult } from '../../model/memory/statusMessage';
import { currentState } from '../../model/stream/streamModel';
import type {
  ICellRuns,
  IGpuPanel,
  IGpuSettings,
  IHolderActions,
  IMonitor,
  PanelSection
} from '../../tokens';
import { readPalette, type Palette } from '../../ui/chartBands';
import type { Band } from '../../model/cells/band';
import { element, setAttribute, setHidden, TextElement } from '../../ui/dom';
import { duration } from '../../model/format';
import { gpuIcon } from '../../ui/icon';

/**
 * The layouts, each with the largest width that it is for: the width of the panel without its scrollbar, in
 * multiples of the font size, so that a large font has the layout of a narrow panel. A tiny panel and a slim one,
 * such as the narrowest panel with a scrollbar, have all rules of a narrow one. In a stacked layout, names and dropdowns are above the controls and figures that belong to them.
 */
const LAYOUTS: readonly (readonly [width: number, name: string])[] = [
  [17, 'stacked narrow tiny'],
  [18.4, 'stacked narrow slim'],
  [21.5, 'stacked narrow'],
  [30, 'stacked']
];
const NO_BANDS: readonly Band[] = [];

/** The dependencies of the panel. */
export interface PanelOptions {
  readonly panelState: PanelState;
  readonly cells: ICellRuns;
  readonly holders: IHolderActions;
  readonly times: RunTimes;
  readonly settings: IGpuSettings;
  /** Whether the server hides the processes of other users. */
  readonly hideOtherUsers: boolean;
  /** The language tag of the page, such as `zh-CN`. */
  readonly locale: string;
}

/** The panel in the sidebar. It opens the stream and queries the kernel only while it is visible. */
export class GpuPanel extends Widget implements IGpuPanel {
  readonly panelState: PanelState;
  /** The buttons in the header, which JupyterLab's toolbar registry creates. */
  readonly toolbar = new Toolbar();
  private readonly recording = new TextElement('panel-recording', 'div');
  /** Why it is unknown who holds the memory of all GPUs. */
  private readonly reason = new TextElement('panel-reason', 'div');
  /** The Slurm job in which the server runs. */
  private readonly job = new TextElement('panel-job', 'div');
  /** What the active notebook has used of the GPUs. */
  private readonly use = new TextElement('panel-use', 'div');
  private readonly notice: NoticeView;
  private readonly device: DeviceSection;
  private readonly switches: SwitchesSection;
  private readonly legend: HTMLElement;
  private readonly span = new TextElement('');
  /** Everything below the header, which scrolls as one part. */
  private readonly scroll: HTMLElement;
  private readonly list: GpuList;
  private readonly cells: ICellRuns;
  private readonly holders: IHolderActions;
  private readonly cellsSection: CellsSection;
  private readonly hintList: HintList;
  private readonly message: StatusMessageView;
  private readonly hintFinder = new HintFinder();
  private readonly sizes = new ResizeObserver(() => {
    this.updateLayout();
  });
  private readonly settings: IGpuSettings;
  private readonly sections: PanelSection[] = [];
  private palette: Palette | null = null;
  /** Whether the device dropdown must be focused once it is enabled. */
  private deviceFocusRequested = false;

  constructor(
    private readonly trans: TranslationBundle,
    private readonly monitor: IMonitor,
    { cells, panelState, holders, times, settings, hideOtherUsers, locale }: PanelOptions
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
    this.holders = holders;
    this.panelState = panelState;
    this.settings = settings;
    this.notice = new NoticeView(trans, () => undefined);
    this.notice.node.classList.add('jp-gpuwidget-server-notice');
    this.cellsSection = new CellsSection(trans, cells, panelState, times, locale);
    const { message } = holders;
    this.device = new DeviceSection(
      trans,
      monitor.kernels,
      panelState,
      hideOtherUsers,
      BROWSER_CLOCK,
      sentence => {
        message.set(sentence);
      }
    );
    this.switches = new SwitchesSection(trans, monitor.kernels, panelState);
    const palette = (): Palette => (this.palette ??= readPalette(this.node));
    this.list = new GpuList({
      trans,
      palette,
      holders,
      panelState,
      choose: device => {
        this.device.choose(device);
      }
    });
    this.hintList = new HintList(trans, holders, panelState);
    this.message = new StatusMessageView(trans, message);
    this.legend = element(
      'div',
      'panel-legend',
      element('span', 'panel-legend-utilization', trans.__('util')),
      element('span', 'panel-legend-memory', trans.__('memory')),
      this.span.node
    );
    const heading = element('h2', '', trans.__('GPUs'));
    this.toolbar.node.setAttribute('aria-label', trans.__('Buttons of the GPU panel'));
    const header = new Panel();
    header.addClass('jp-gpuwidget-panel-header');
    header.addWidget(new Widget({ node: heading }));
    header.addWidget(this.toolbar);
    const layout = new PanelLayout();
    this.layout = layout;
    layout.addWidget(header);
    this.scroll = element(
      'div',
      'panel-scroll',
      this.device.node,
      this.switches.node,
      this.recording.node,
      this.reason.node,
      this.job.node,
      this.notice.node,
      this.legend,
      this.list.node,
      this.use.node,
      this.cellsSection.node
    );
    // The hints are below everything that scrolls, so that nothing moves when one appears.
    this.node.append(this.scroll, this.hintList.node, this.message.node);
    this.sizes.observe(this.scroll);
    this.sizes.observe(heading); // Its size changes with the font.
    monitor.changed.connect(this.update, this);
    cells.changed.connect(this.update, this);
    panelState.changed.connect(this.update, this);
    message.changed.connect(this.update, this);
    settings.changed.connect(this.updateVisibility, this);
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
    this.list.dispose();
    this.switches.dispose();
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
    if (!this.node.contains(document.activeElement)) {
      this.focusDevice();
    }
  }

  protected override onUpdateRequest(): void {
    if (!this.isVisible) {
      return;
    }
    const { model, data, kernels } = this.monitor;
    const origin = model.sample?.origin;
    setAttribute(this.node, 'data-link', data.kind);
    const recording = origin?.recording ?? null;
    const reason = this.settings.current.show.holders ? sharedReason(model.usage) : '';
    this.recording.set(recording ?? '', [recording ?? '', reason].join('\n').trim());
    setHidden(this.recording.node, recording === null);
    this.updateUse(kernels.view.kernel?.id ?? null);
    this.notice.show(this.serverNotice(origin?.reason ?? null));
    this.placeNotice((model.sample?.gpus.length ?? 0) > 0);
    this.reason.set(reason);
    // With a recording, the tooltip of its label has the reason.
    setHidden(this.reason.node, reason === '' || recording !== null);
    this.device.update(
      model.server,
      {
        gpus: liveValue(data)?.gpus(null, kernels.view.kernel?.id ?? null) ?? [],
        kernels: kernelsOf(model.usage),
        time: model.sample?.time ?? NaN
      },
      origin?.reason ?? null
    );
    this.moveRequestedFocus();
    setHidden(this.switches.node, !this.settings.current.show.switches);
    if (this.settings.current.show.switches) {
      this.switches.update();
    }
    this.span.set(
      this.spanText(model.seconds),
      this.settings.current.show.bands ? this.clockSkewTitle() : ''
    );
    setHidden(this.legend, (model.sample?.gpus.length ?? 0) === 0);
    const { view } = kernels;
    const hints = this.settings.current.show.hints ? this.hints() : [];
    this.hintList.update(hints, kernelsOf(model.usage));
    const { text, kernel } = this.holders.message;
    const result = text === '' || kernel === null ? null : new ActionResult(kernel, text);
    this.list.update(model, currentState(kernels), {
      activeKernel: view.kernel?.id ?? null,
      hinted: new Set(hints.flatMap(hint => (hint.kind === 'idle' ? hint.kernel.id : []))),
      bands: uuid => (this.settings.current.show.bands ? this.cells.bands(uuid) : NO_BANDS),
      holders: this.settings.current.show.holders,
      sharedReason: reason,
      device: this.device.device,
      result
    });
    this.message.setAtHolder(result?.shown === true);
    if (this.settings.current.show.cells) {
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
    const { clientWidth: width } = this.scroll;
    const size = width / parseFloat(getComputedStyle(this.node).fontSize);
    if (width > 0) {
      // An attribute is set instead of using a CSS container query, which would double the cost of each
      // layout.
      setAttribute(this.node, 'data-size', LAYOUTS.find(([limit]) => size < limit)?.[1] ?? '');
    }
  }

  private readonly updateVisibility = (): void => {
    const visible = this.isVisible && document.visibilityState === 'visible';
    this.monitor.setPanelVisible(visible);
    // Outputs are read and clocks are compared only if a section that needs them is shown.
    this.cells.setVisible(
      this,
      visible && (this.settings.current.show.cells || this.settings.current.show.bands)
    );
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
      : this.hintFinder.find(usage, sample, server?.interval ?? 0, this.settings.current.hints);
  }

  private spanText(seconds: number): string {
    return seconds >= 60 && seconds % 60 === 0 ? this.trans.__('%1 min', seconds / 60) : duration(seconds);
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

  private serverNotice(reason: string | null): Notice | null {
    const notice = serverNotice(this.trans, this.monitor.data);
    return notice ?? (reason === null ? null : { text: reason });
  }
}
