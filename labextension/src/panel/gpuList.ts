import { GpuCard, type CardContext } from './gpuCard';
import { kernelsOf } from '../memory/holders';
import { expandedByDefault, type GpuNow, type StreamModel } from '../stream/streamModel';
import type { Band } from '../ui/chartBands';
import { element, VisibilityTracker } from '../ui/dom';
import type { KernelState } from '../wire';

/** What the list shows in addition to the samples. */
export interface GpuListContext {
  /** The id of the active notebook's kernel, null if it has none. */
  readonly activeKernel: string | null;
  /** Ids of the kernels that a hint is about. */
  readonly hinted: ReadonlySet<string>;
  /** Return when cells used a GPU, by its UUID. */
  readonly bands: (uuid: string) => readonly Band[];
  /** Whether the settings show holders. */
  readonly holders: boolean;
}

/** Cards that are scrolled out of view are updated at this interval in seconds, for screen readers. */
const HIDDEN_UPDATE_S = 10;

/** All GPUs, one below the other. Cards out of view are updated every ten seconds, without their charts. */
export class GpuList {
  readonly node = element('div', 'gpu-list');
  private readonly cards = new Map<string, GpuCard>();
  /** A key of the GPUs and of the default for which cards were last expanded automatically. */
  private expandedFor = '';
  /** The time of the sample that each card shows. */
  private readonly updated = new Map<string, number>();
  private repeatUpdate: (() => void) | null = null;
  private readonly visibility = new VisibilityTracker(() => this.repeatUpdate?.());

  constructor(private readonly context: CardContext) {}

  /** Show the newest sample of `model`, its history, and the data about each GPU in the kernel's `state`. */
  update(model: StreamModel, state: KernelState | null, context: GpuListContext): void {
    const gpus = model.gpus(state, context.activeKernel);
    this.reconcile(gpus);
    this.expandAutomatically(gpus, state);
    const data = { past: model.past, seconds: model.seconds, gap: model.gap };
    const holderContext = {
      kernels: kernelsOf(model.usage),
      time: model.sample?.time ?? NaN,
      hinted: context.hinted,
      listed: context.holders
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
        card.update(now, holderContext, { ...data, bands: context.bands(uuid) }, visible);
      }
    }
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
    // The comparison is negated so that an unknown time counts as due; the difference is absolute because the
    // server's clock may be set back.
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

  /** Expand or collapse the cards that the user has never touched, if the GPUs or the default have changed. */
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
