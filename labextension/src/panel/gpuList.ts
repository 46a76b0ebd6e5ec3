import type { Band } from '../ui/bands';
import { element } from '../ui/dom';
import type { Folds } from './folds';
import { GpuCard, type CardPorts } from './gpuCard';
import { kernelsOf } from '../holders/holders';
import { openByThemselves, type GpuNow, type Model } from '../stream/model';
import type { KernelState } from '../wire';

/** What is shown of GPUs beside their samples. */
export interface Beside {
  /** Id of the kernel in front, null without one. */
  readonly front: string | null;
  /** Ids of the kernels that are pointed out. */
  readonly warm: ReadonlySet<string>;
  /** When cells used a GPU, by its UUID. */
  readonly bands: (uuid: string) => readonly Band[];
}

/** All GPUs, one below the other. */
export class GpuList {
  readonly node = element('div', 'gpus');
  private readonly cards = new Map<string, GpuCard>();
  /** For which GPUs, and which hold of the notebook on them, cards were last folded and unfolded by themselves. */
  private decidedFor = '';

  constructor(
    private readonly ports: Omit<CardPorts, 'toggled'>,
    private readonly folds: Folds
  ) {}

  /**
   * Show the newest sample of `model` and its past, with what `state` says of them and what is `beside` them.
   */
  update(model: Model, state: KernelState | null, beside: Beside): void {
    const gpus = model.gpus(state, beside.front);
    this.reconcile(gpus);
    this.decide(gpus, state);
    const gap = Math.max(2, 3 * (model.server?.interval ?? 0));
    const span = { past: model.past, seconds: model.seconds, gap };
    const around = { kernels: kernelsOf(model.usage), time: model.sample?.time ?? NaN, warm: beside.warm };
    for (const now of gpus) {
      this.cards.get(now.gpu.uuid)?.update(now, around, { ...span, bands: beside.bands(now.gpu.uuid) });
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
    this.reconcile([]);
  }

  private reconcile(gpus: readonly GpuNow[]): void {
    const wanted = new Set(gpus.map(({ gpu }) => gpu.uuid));
    for (const [uuid, card] of this.cards) {
      if (!wanted.has(uuid)) {
        card.dispose();
        this.cards.delete(uuid);
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
        this.cards.set(uuid, new GpuCard(uuid, { ...this.ports, toggled }));
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
    const open = openByThemselves(gpus, chosen);
    for (const [uuid, card] of this.cards) {
      card.unfold(this.folds.wish(uuid) ?? open.has(uuid));
    }
  }
}
