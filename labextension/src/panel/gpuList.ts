import type { Band } from '../ui/chartBands';
import { element } from '../ui/dom';
import { VisibilityTracker } from '../ui/visibilityTracker';
import type { Folds } from './folds';
import { GpuCard, type CardPorts } from './gpuCard';
import { kernelsOf } from '../holders/holders';
import { gpusOpenByDefault, type GpuNow, type StreamModel } from '../stream/streamModel';
import type { KernelState } from '../wire';

/** What is shown of GPUs beside their samples. */
export interface Beside {
  /** Id of the kernel in front, null without one. */
  readonly front: string | null;
  /** Ids of the kernels that are pointed out. */
  readonly warm: ReadonlySet<string>;
  /** When cells used a GPU, by its UUID. */
  readonly bands: (uuid: string) => readonly Band[];
  /** Whether it is told who holds the memory. */
  readonly holders: boolean;
}

/** Seconds after which a card that is scrolled out of sight is written too: somebody may have it read out. */
const OUT_OF_SIGHT_S = 10;

/** All GPUs, one below the other. Text that is out of sight is written every ten seconds, and charts are not drawn. */
export class GpuList {
  readonly node = element('div', 'gpus');
  private readonly cards = new Map<string, GpuCard>();
  /** For which GPUs, and which hold of the notebook on them, cards were last folded and unfolded by themselves. */
  private decidedFor = '';
  /** The time of the sample that each card was last written with. */
  private readonly written = new Map<string, number>();
  private again: (() => void) | null = null;
  private readonly sight = new VisibilityTracker(() => this.again?.());

  constructor(
    private readonly ports: Omit<CardPorts, 'toggled'>,
    private readonly folds: Folds
  ) {}

  /**
   * Show the newest sample of `model` and its past, with what `state` says of them and what is `beside` them.
   */
  update(model: StreamModel, state: KernelState | null, beside: Beside): void {
    const gpus = model.gpus(state, beside.front);
    this.reconcile(gpus);
    this.decide(gpus, state);
    const span = { past: model.past, seconds: model.seconds, gap: model.gap };
    const around = {
      kernels: kernelsOf(model.usage),
      time: model.sample?.time ?? NaN,
      warm: beside.warm,
      listed: beside.holders
    };
    this.again = () => {
      this.update(model, state, beside);
    };
    for (const now of gpus) {
      const { uuid } = now.gpu;
      const card = this.cards.get(uuid);
      if (card === undefined) {
        continue;
      }
      const inSight = this.sight.has(card.node);
      if (inSight || this.isDue(uuid, around.time)) {
        this.written.set(uuid, around.time);
        card.update(now, around, { ...span, bands: beside.bands(uuid) }, inSight);
      }
    }
  }

  /** Draw all charts in another theme's colours. */
  recolour(): void {
    for (const card of this.cards.values()) {
      card.recolour();
    }
  }

  /** Take all cards away. */
  dispose(): void {
    this.again = null;
    this.reconcile([]);
    this.sight.dispose();
  }

  private isDue(uuid: string, time: number): boolean {
    // Also where either time is not known, and where a server's clock was set back.
    const since = Math.abs(time - (this.written.get(uuid) ?? NaN));
    return !(since < OUT_OF_SIGHT_S);
  }

  private reconcile(gpus: readonly GpuNow[]): void {
    const wanted = new Set(gpus.map(({ gpu }) => gpu.uuid));
    for (const [uuid, card] of this.cards) {
      if (!wanted.has(uuid)) {
        this.sight.unobserve(card.node);
        card.dispose();
        this.cards.delete(uuid);
        this.written.delete(uuid);
      }
    }
    if (this.cards.size === wanted.size) {
      return;
    }
    const toggled = (uuid: string, open: boolean): void => {
      this.folds.set(uuid, open);
    };
    for (const uuid of wanted) {
      if (!this.cards.has(uuid)) {
        const card = new GpuCard(uuid, { ...this.ports, toggled });
        this.cards.set(uuid, card);
        this.sight.observe(card.node);
      }
    }
    this.node.replaceChildren(...[...wanted].flatMap(uuid => this.cards.get(uuid)?.node ?? []));
  }

  private decide(gpus: readonly GpuNow[], state: KernelState | null): void {
    const chosen = state?.device.chosen ?? null;
    const seen = gpus.map(({ gpu, reading, kernel }) => [
      gpu.uuid,
      reading.answered !== null,
      kernel?.context ?? false
    ]);
    const decision = JSON.stringify([seen, chosen, this.folds.restored]);
    if (decision === this.decidedFor) {
      return;
    }
    this.decidedFor = decision;
    const open = gpusOpenByDefault(gpus, chosen);
    for (const [uuid, card] of this.cards) {
      card.unfold(this.folds.wish(uuid) ?? open.has(uuid));
    }
  }
}
