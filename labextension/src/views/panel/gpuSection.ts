import type { DeviceSection } from './deviceSection';
import { GpuCard, type CardContext } from './gpuCard';
import type { HintSection } from './hintSection';
import type { MessageSection } from './messageSection';
import type { PanelContext } from './panelContext';
import { reasonText } from './serverSections';
import type { Band } from '../../model/cells/band';
import type { IKernels } from '../../model/kernel/kernels';
import { kernelsOf } from '../../model/memory/holders';
import { ActionResult } from '../../model/memory/statusMessage';
import { currentState, expandedByDefault, type GpuNow } from '../../model/stream/streamModel';
import { readPalette, type Palette } from '../../ui/chartBands';
import { element, setAttribute, VisibilityTracker } from '../../ui/dom';
import { PanelSection } from '../../ui/panelSection';
import type { KernelState } from '../../wire/wire';

/** Interval, in seconds, at which cards that are scrolled out of view are updated for screen readers. */
const HIDDEN_UPDATE_S = 10;
const NO_BANDS: readonly Band[] = [];

/**
 * The cards of all GPUs, one below the other. Cards that are scrolled out of view are updated only every ten
 * seconds, and without their charts.
 */
export class GpuSection extends PanelSection {
  private readonly cards = new Map<string, GpuCard>();
  private readonly cardContext: CardContext;
  /** The colors of the current theme; null before they are read. */
  private palette: Palette | null = null;
  /**
   * A key of the data that last determined which cards are expanded: the GPUs, the cards expanded by default,
   * and whether the saved state has been read.
   */
  private expandedFor = '';
  /** What the cards show of the active notebook's kernel, as JSON. */
  private kernelShown = '';
  /** The time of the sample that each card shows, by the GPU's UUID. */
  private readonly updated = new Map<string, number>();
  private readonly visibility = new VisibilityTracker(() => {
    this.update();
  });

  constructor(
    private readonly context: PanelContext,
    private readonly device: DeviceSection,
    private readonly hints: HintSection,
    private readonly message: MessageSection
  ) {
    const { trans, monitor, holders, panelState, themes } = context;
    super(element('div', 'gpu-list jp-gpuwidget-live'), [
      monitor.changed,
      panelState.changed,
      holders.message.changed
    ]);
    // Most replies of a kernel change nothing that is shown about GPUs.
    monitor.kernels.changed.connect(this.onKernelsChanged, this);
    this.cardContext = {
      trans,
      palette: () => (this.palette ??= readPalette(this.node)),
      holders,
      panelState,
      choose: chosen => {
        device.choose(chosen);
      }
    };
    themes?.themeChanged.connect(this.redraw, this);
  }

  override dispose(): void {
    if (this.isDisposed) {
      return;
    }
    this.reconcile([]);
    this.visibility.dispose();
    super.dispose();
  }

  protected override render(): boolean {
    const { monitor, cells, holders, settings } = this.context;
    const { model, kernels } = monitor;
    const { show } = settings.current;
    const { message } = holders;
    const state = currentState(kernels);
    const gpus = model.gpus(state, kernels.view.kernel?.id ?? null);
    this.reconcile(gpus);
    const models = new Set(gpus.map(({ gpu }) => gpu.name));
    setAttribute(this.node, 'data-models', models.size > 1 ? 'mixed' : 'same');
    this.expandAutomatically(gpus, state);
    const result =
      message.text === '' || message.kernel === null ? null : new ActionResult(message.kernel, message.text);
    const idle = this.hints.hints.flatMap(hint => (hint.kind === 'idle' ? hint.kernel.id : []));
    const holderContext = {
      kernels: kernelsOf(model.usage),
      time: model.sample?.time ?? NaN,
      hinted: new Set(idle),
      listed: show.holders,
      sharedReason: reasonText(this.context),
      device: this.device.device
    };
    for (const now of gpus) {
      const { uuid } = now.gpu;
      const card = this.cards.get(uuid);
      if (card === undefined) {
        continue;
      }
      const visible = this.visibility.has(card.node);
      if (visible || this.isDue(uuid, holderContext.time)) {
        this.updated.set(uuid, holderContext.time);
        const bands = show.bands ? cells.bands(uuid) : NO_BANDS;
        const chartData = { history: model.history, seconds: model.seconds, gap: model.gap, bands };
        card.update(now, { ...holderContext, result: visible ? result : null }, chartData, visible);
      }
    }
    const hasUsers = [...this.cards.values()].some(({ hasUser }) => hasUser);
    setAttribute(this.node, 'data-users', hasUsers ? '' : 'none');
    this.message.setAtHolder(result?.shown === true);
    return true;
  }

  private onKernelsChanged({ view, state }: IKernels): void {
    const { device } = this.device;
    const shown = JSON.stringify([
      view.kernel?.id,
      view.silentFor === null,
      device,
      state?.device,
      state?.gpus
    ]);
    if (shown !== this.kernelShown) {
      this.kernelShown = shown;
      this.update();
    }
  }

  /** Redraw all charts in the colors of the current theme. */
  private redraw(): void {
    this.palette = null;
    for (const card of this.cards.values()) {
      card.redraw();
    }
  }

  private isDue(uuid: string, time: number): boolean {
    // The comparison is negated so that the card is updated if a time is unknown (NaN). The difference is
    // absolute because the server's clock may be set back.
    const since = Math.abs(time - (this.updated.get(uuid) ?? NaN));
    return !(since < HIDDEN_UPDATE_S);
  }

  private reconcile(gpus: readonly GpuNow[]): void {
    const wanted = new Set(gpus.map(({ gpu }) => gpu.uuid));
    for (const [uuid, card] of this.cards) {
      if (!wanted.has(uuid)) {
        this.visibility.unobserve(card.node);
        card.dispose();
        this.cards.delete(uuid);
        this.updated.delete(uuid);
      }
    }
    if (this.cards.size === wanted.size) {
      return;
    }
    for (const uuid of wanted) {
      if (!this.cards.has(uuid)) {
        const card = new GpuCard(uuid, this.cardContext);
        this.cards.set(uuid, card);
        this.visibility.observe(card.node);
      }
    }
    this.node.replaceChildren(...[...wanted].flatMap(uuid => this.cards.get(uuid)?.node ?? []));
  }

  /**
   * If the data in `expandedFor` has changed, restore the state in which the user has left each card. Cards
   * that the user has never expanded or collapsed get their default state.
   */
  private expandAutomatically(gpus: readonly GpuNow[], state: KernelState | null): void {
    const { panelState } = this.context;
    const expanded = expandedByDefault(gpus, state?.device.chosen ?? null);
    const decision = JSON.stringify([[...this.cards.keys()], [...expanded], panelState.restored]);
    if (decision === this.expandedFor) {
      return;
    }
    this.expandedFor = decision;
    for (const [uuid, card] of this.cards) {
      card.setExpanded(panelState.isExpanded(uuid) ?? expanded.has(uuid));
    }
  }
}
