import { GpuCard, type CardContext } from './gpuCard';
import type { ActionResult } from '../../model/memory/statusMessage';
import { kernelsOf } from '../../model/memory/holders';
import { expandedByDefault, type GpuNow, type StreamModel } from '../../model/stream/streamModel';
import type { Band } from '../../model/cells/band';
import { element, setAttribute, VisibilityTracker } from '../../ui/dom';
import type { KernelState } from '../../wire/wire';

/** The data that the list shows in addition to the samples. */
export interface GpuListContext {
  /** The id of the active notebook's kernel; null if there is no kernel. */
  readonly activeKernel: string | null;
  /** Ids of the kernels for which a hint is shown. */
  readonly hinted: ReadonlySet<string>;
  /** The default device of the active notebook; null if unknown. */
  readonly device: string | null;
  /** The result of the last action on a kernel. */
  readonly result: ActionResult | null;
  /** Return the time ranges in which cells used the GPU with this UUID. */
  readonly bands: (uuid: string) => readonly Band[];
  /** Whether holders are shown, according to the settings. */
  readonly holders: boolean;
  /** The reason that the panel shows once for all GPUs; empty if there is none. */
  readonly sharedReason: string;
}

/** Interval, in seconds, at which cards that are scrolled out of view are updated for screen readers. */
const HIDDEN_UPDATE_S = 10;

/**
 * The cards of all GPUs, one below the other. Cards that are scrolled out of view are updated only every ten
 * seconds, and without their charts.
 */
export class GpuList {
  readonly node = element('div', 'gpu-list');
  private readonly cards = new Map<string, GpuCard>();
  /**
   * A key of the data that last determined which cards are expanded: the GPUs, the cards expanded by default,
   * and whether the saved state has been read.
   */
  private expandedFor = '';
  /** The time of the sample that each card shows, by the GPU's UUID. */
  private readonly updated = new Map<string, number>();
  private repeatUpdate: (() => void) | null = null;
  private readonly visibility = new VisibilityTracker(() => this.repeatUpdate?.());

  constructor(private readonly context: CardContext) {}

  /** Show the newest sample and the history of `model`, and each GPU's data in the kernel's `state`. */
  update(model: StreamModel, state: KernelState | null, context: GpuListContext): void {
    const gpus = model.gpus(state, context.activeKernel);
    this.reconcile(gpus);
    const models = new Set(gpus.map(({ gpu }) => gpu.name));
    setAttribute(this.node, 'data-models', models.size > 1 ? 'mixed' : 'same');
    this.expandAutomatically(gpus, state);
    const data = { history: model.history, seconds: model.seconds, gap: model.gap };
    const holderContext = {
      kernels: kernelsOf(model.usage),
      time: model.sample?.time ?? NaN,
      hinted: context.hinted,
      listed: context.holders,
      sharedReason: context.sharedReason,
      device: context.device
    };
    this.repeatUpdate = () => {
      this.update(model, state, context);
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
        const chartData = { ...data, bands: context.bands(uuid) };
        card.update(now, { ...holderContext, result: visible ? context.result : null }, chartData, visible);
      }
    }
    const hasUsers = [...this.cards.values()].some(({ hasUser }) => hasUser);
    setAttribute(this.node, 'data-users', hasUsers ? '' : 'none');
  }

  /** Redraw all charts in the colors of the current theme. */
  redraw(): void {
    for (const card of this.cards.values()) {
      card.redraw();
    }
  }

  /** Remove all cards. */
  dispose(): void {
    this.repeatUpdate = null;
    this.reconcile([]);
    this.visibility.dispose();
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
        const card = new GpuCard(uuid, this.context);
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
