import type { TranslationBundle } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';

import { CellsSection } from './cellsSection';
import type { Cells } from '../cells/cells';
import type { Band } from '../ui/chartBands';
import { element, setAttribute, Text } from '../ui/dom';
import { duration } from '../ui/format';
import type { Folds } from './folds';
import { GpuList } from './gpuList';
import { Hints, type Hint, type Thresholds } from '../holders/hints';
import { kernelsOf } from '../holders/holders';
import type { HolderPorts } from '../holders/ports';
import { HintList } from './hintList';
import { gpuIcon } from '../ui/icon';
import { KernelSection } from './kernelSection';
import type { ShownSections } from '../settings';
import { withoutMemory } from '../stream/streamModel';
import type { GpuMonitor } from '../stream/gpuMonitor';
import { NoticeView } from './notice';
import { OutcomeLine } from './outcomeLine';
import { readPalette, type Palette } from '../ui/chartBands';
import { SwitchSection } from './switchSection';
import { serverNotice, type Notice } from './words';

/** Widths in pixels below and from which a row is laid out otherwise. */
const NARROW = 280;
const WIDE = 360;
const NO_BANDS: readonly Band[] = [];

/** What the panel shows beside the stream. */
export interface PanelPorts {
  readonly folds: Folds;
  readonly cells: Cells;
  readonly holders: HolderPorts;
  /** When something is pointed out. */
  readonly thresholds: Thresholds;
  /** Which parts are shown. */
  readonly show: ShownSections;
}

/** A part of the panel that another plugin adds. */
export interface PanelSection {
  readonly node: HTMLElement;
  /** Show what is known now; called only while the panel can be seen. */
  update(): void;
  /** End. */
  dispose(): void;
}

/** The panel of the sidebar. It looks, and so has work done, only while it can be seen. */
export class GpuPanel extends Widget {
  /** What the user folded and unfolded. */
  readonly folds: Folds;
  private readonly dot = element('span', 'dot');
  private readonly rate = new Text('rate');
  private readonly header: HTMLElement;
  private readonly recording = new Text('recording', 'div');
  private readonly notice: NoticeView;
  private readonly kernel: KernelSection;
  private readonly switches: SwitchSection;
  private readonly key: HTMLElement;
  private readonly span = new Text('span');
  /** All that may be longer than there is room: one scrolls, so that none squeezes another. */
  private readonly scroll: HTMLElement;
  private readonly list: GpuList;
  private readonly cells: Cells;
  private readonly section: CellsSection;
  private readonly hintList: HintList;
  private readonly outcome: OutcomeLine;
  private readonly hints = new Hints();
  private limits: Thresholds;
  private parts: ShownSections;
  private readonly sections: PanelSection[] = [];
  private colours: Palette | null = null;

  constructor(
    private readonly trans: TranslationBundle,
    private readonly monitor: GpuMonitor,
    { cells, folds, holders, thresholds, show }: PanelPorts
  ) {
    super();
    this.id = 'jp-gpuwidget-panel';
    this.addClass('jp-gpuwidget-panel');
    this.title.icon = gpuIcon;
    this.title.caption = trans.__('GPUs');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', trans.__('GPUs'));
    this.notice = new NoticeView(trans, () => undefined);
    this.cells = cells;
    this.folds = folds;
    this.section = new CellsSection(trans, cells, folds);
    this.limits = thresholds;
    this.parts = show;
    this.kernel = new KernelSection(trans, monitor.kernels, sentence => {
      holders.outcome.say(sentence);
    });
    this.switches = new SwitchSection(trans, monitor.kernels, folds);
    const palette = (): Palette => (this.colours ??= readPalette(this.node));
    this.list = new GpuList({ trans, palette, holders }, folds);
    this.hintList = new HintList(trans, holders);
    this.hintList.onToggle(() => {
      this.update();
    });
    this.outcome = new OutcomeLine(trans, holders.outcome);
    this.key = element(
      'div',
      'key',
      element('span', 'key-utilization', trans.__('utilization')),
      element('span', 'key-memory', trans.__('memory')),
      this.span.node
    );
    this.header = element('div', 'header', this.dot, element('h2', '', trans.__('GPUs')), this.rate.node);
    this.scroll = element(
      'div',
      'scroll',
      this.switches.node,
      this.recording.node,
      this.notice.node,
      this.hintList.node,
      this.key,
      this.list.node
    );
    this.node.append(this.header, this.kernel.node, this.scroll, this.section.node, this.outcome.node);
    monitor.changed.connect(this.update, this);
    cells.changed.connect(this.update, this);
    folds.changed.connect(this.update, this);
    document.addEventListener('visibilitychange', this.look);
  }

  /** The theme has changed. */
  recolour(): void {
    this.colours = null;
    this.list.recolour();
  }

  /** Add a button to the header. */
  addAction(label: string, title: string, act: () => void): void {
    const button = element('button', 'action', label);
    button.type = 'button';
    button.title = title;
    button.onclick = act;
    this.header.append(button);
  }

  /** The user wants other things to be pointed out or shown. */
  settle(thresholds: Thresholds, show: ShownSections): void {
    this.limits = thresholds;
    this.parts = show;
    this.look();
  }

  /** Add a section below the GPUs. */
  addSection(section: PanelSection): void {
    this.sections.push(section);
    this.scroll.append(section.node);
  }

  /** Put the keyboard on the device dropdown. */
  focusDevice(): void {
    this.kernel.focus();
  }

  override dispose(): void {
    if (this.isDisposed) {
      return;
    }
    document.removeEventListener('visibilitychange', this.look);
    this.monitor.changed.disconnect(this.update, this);
    this.cells.changed.disconnect(this.update, this);
    this.folds.changed.disconnect(this.update, this);
    this.monitor.setPanelVisible(false);
    this.cells.look(false);
    this.list.dispose();
    this.outcome.dispose();
    for (const section of this.sections) {
      section.dispose();
    }
    super.dispose();
  }

  protected override onAfterShow(): void {
    this.look();
  }

  protected override onAfterAttach(): void {
    this.look();
  }

  protected override onAfterHide(): void {
    this.look();
  }

  protected override onBeforeDetach(): void {
    this.monitor.setPanelVisible(false);
    this.cells.look(false);
  }

  protected override onResize({ width }: Widget.ResizeMessage): void {
    if (width > 0) {
      // An attribute, not a container query, which would cost every layout twice.
      setAttribute(this.node, 'data-size', width < NARROW ? 'narrow' : width < WIDE ? 'normal' : 'wide');
    }
  }

  protected override onActivateRequest(): void {
    this.focusDevice();
  }

  protected override onUpdateRequest(): void {
    if (!this.isVisible) {
      return;
    }
    const { model, kernels, connectionState: link } = this.monitor;
    const origin = model.sample?.origin;
    const quiet = this.monitor.silentFor;
    const live = link === 'open' && quiet === null;
    setAttribute(
      this.node,
      'data-link',
      live ? 'live' : link === 'open' || link === 'opening' ? 'waiting' : 'lost'
    );
    this.rate.set(this.rateText(live), live ? this.rateTitle() : '');
    const recording = origin?.recording ?? null;
    this.recording.set(recording ?? '');
    this.recording.node.hidden = recording === null;
    this.notice.show(this.serverNotice(quiet, origin?.reason ?? null));
    const fresh = live && this.monitor.hasSample ? model.gpus(null, null) : [];
    this.kernel.update(model.server, fresh);
    this.switches.node.hidden = !this.parts.switches;
    if (this.parts.switches) {
      this.switches.update();
    }
    this.span.set(this.spanText(model.seconds), this.parts.bands ? this.clocksTitle() : '');
    this.key.hidden = (model.sample?.gpus.length ?? 0) === 0;
    const { state, view } = kernels;
    const hints = this.parts.hints ? this.pointedOut() : [];
    this.hintList.update(hints, kernelsOf(model.usage));
    this.list.update(model, view.silentFor === null || state === null ? state : withoutMemory(state), {
      front: view.kernel?.id ?? null,
      warm: new Set(hints.flatMap(hint => (hint.kind === 'idle' ? hint.kernel.id : []))),
      bands: uuid => (this.parts.bands ? this.cells.bands(uuid) : NO_BANDS),
      holders: this.parts.holders
    });
    if (this.parts.cells) {
      this.section.update();
    } else {
      this.section.node.hidden = true;
    }
    for (const section of this.sections.filter(({ node }) => !node.hidden)) {
      section.update();
    }
  }

  private readonly look = (): void => {
    const seen = this.isVisible && document.visibilityState === 'visible';
    this.monitor.setPanelVisible(seen);
    // Neither the outputs nor the clocks are read for what is not shown.
    this.cells.look(seen && (this.parts.cells || this.parts.bands));
    this.update();
  };

  private pointedOut(): Hint[] {
    const { usage, sample, server } = this.monitor.model;
    return usage === null || sample === null
      ? []
      : this.hints.of(usage, sample, server?.interval ?? 0, this.limits);
  }

  private spanText(seconds: number): string {
    return seconds >= 60 && seconds % 60 === 0
      ? this.trans.__('last %1 min', seconds / 60)
      : this.trans.__('last %1', duration(seconds));
  }

  private clocksTitle(): string {
    const { disagreement } = this.cells.clocks;
    return disagreement === null
      ? ''
      : this.trans.__(
          'Which cell ran when is not shown: the clocks of the kernel and of the server differ by %1.',
          duration(Math.abs(disagreement))
        );
  }

  private rateText(live: boolean): string {
    const interval = this.monitor.model.server?.interval;
    if (!live || interval === undefined) {
      return this.monitor.connectionState === 'lost' ? this.trans.__('reconnecting…') : '';
    }
    return interval < 1
      ? this.trans.__('%1 Hz', Math.round(10 / interval) / 10)
      : this.trans.__('every %1 s', Math.round(10 * interval) / 10);
  }

  /** Why samples come so often and no more often, where the settings say something of it. */
  private rateTitle(): string {
    const { server, ownInterval, minInterval } = this.monitor.model;
    const seconds = (interval: number): number => Math.round(100 * interval) / 100;
    if (server !== null && server.interval > ownInterval) {
      return this.trans.__('As the settings have it; the server reads every %1 s', seconds(ownInterval));
    }
    return minInterval > 0 && minInterval < ownInterval
      ? this.trans.__(
          'The settings ask for a sample every %1 s; the server reads no more often',
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
