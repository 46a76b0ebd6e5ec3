import { holdersOf, kernelsOf, type Holder } from './holders';
import { isGap } from '../stream/gap';
import type { Gpu, GpuMemoryOwnership, Sample, ServerKernel, MemoryOwnership } from '../wire';

/** When something is pointed out. */
export interface Thresholds {
  /** Seconds that a notebook has been idle. */
  readonly idle: number;
  /** Bytes that it holds at least. */
  readonly memory: number;
  /** Percent below which a GPU counts as badly used. */
  readonly utilization: number;
  /** Seconds over which it was. */
  readonly window: number;
}

/** A notebook or another kernel has been idle for long and holds memory. */
export interface IdleHint {
  readonly kind: 'idle';
  readonly key: string;
  readonly kernel: ServerKernel;
  /** Seconds. */
  readonly idle: number;
  /** Bytes on all GPUs. */
  readonly memory: number;
  /** Whether some of it is torch's own number. */
  readonly torch: boolean;
  readonly gpus: readonly Gpu[];
}

/** A GPU has done little for long, and somebody is at work on it. */
export interface SlackHint {
  readonly kind: 'slack';
  readonly key: string;
  readonly gpu: Gpu;
  /** Percent, the mean over `seconds`. */
  readonly utilization: number;
  readonly seconds: number;
  /** Who was on it and at work all that time, as was seen. */
  readonly holders: readonly Holder[];
}

export type Hint = IdleHint | SlackHint;

/** A hint stands for so long after it was last so: else the panel would jump with every cell and every percent. */
const STANDS_S = 60;

/** Notices what a person may want to act on: only what the server's figures are evidence of. */
export class Hints {
  /** Since when each holder of a GPU has been seen there and at work, without a pause. */
  private working: ReadonlyMap<string, number> = new Map();
  /** What was said of GPUs, and when it was last so. */
  private readonly said = new Map<string, { readonly hint: SlackHint; readonly time: number }>();
  private newest = NaN;

  /** What is to be said of `usage` at the time of `sample`, with `interval` from one to the next. */
  of(usage: MemoryOwnership, sample: Sample, interval: number, thresholds: Thresholds): Hint[] {
    const { time } = sample;
    if (isGap(this.newest, time, interval)) {
      this.working = new Map();
      this.said.clear();
    }
    this.newest = time;
    const kernels = kernelsOf(usage);
    const on = sample.gpus.flatMap((gpu): On[] => {
      const held = usage.gpus.find(each => each.uuid === gpu.uuid);
      return held === undefined ? [] : [{ gpu, held, holders: holdersOf(held, kernels, null) }];
    });
    const places = on.flatMap(({ gpu, holders }) =>
      holders.filter(works).map(holder => placeOf(gpu, holder))
    );
    this.working = new Map(places.map(place => [place, this.working.get(place) ?? time]));
    return [...idle(usage, on, time, thresholds), ...this.standing(on, time, thresholds)];
  }

  /** What is so of GPUs, and what was a moment ago; of holders that are still there. */
  private standing(on: readonly On[], time: number, thresholds: Thresholds): SlackHint[] {
    return on.flatMap((each): SlackHint[] => {
      const { uuid } = each.gpu;
      const hint = this.slack(each, time, thresholds);
      if (hint !== null) {
        this.said.set(uuid, { hint, time });
        return [hint];
      }
      const before = this.said.get(uuid);
      if (before === undefined) {
        return [];
      }
      const keys = new Set(each.holders.map(({ key }) => key));
      const stands =
        time - before.time < STANDS_S &&
        before.hint.utilization < thresholds.utilization &&
        before.hint.seconds >= thresholds.window &&
        before.hint.holders.every(({ key }) => keys.has(key));
      if (!stands) {
        this.said.delete(uuid);
      }
      return stands ? [before.hint] : [];
    });
  }

  private slack(
    { gpu, held, holders }: On,
    now: number,
    { utilization, window }: Thresholds
  ): SlackHint | null {
    const low = held.means.filter(mean => mean.utilization !== null && mean.utilization < utilization);
    if (!low.some(({ seconds }) => seconds === window)) {
      return null;
    }
    const age = (holder: Holder): number => now - (this.working.get(placeOf(gpu, holder)) ?? now);
    const working = holders.filter(holder => age(holder) >= window);
    const together = Math.min(...working.map(age));
    // A longer window is better evidence, as long as it is of them.
    const mean = low.filter(({ seconds }) => seconds >= window && seconds <= together).at(-1);
    const percent = mean?.utilization ?? null;
    return working.length === 0 || mean === undefined || percent === null
      ? null
      : {
          kind: 'slack',
          key: `slack ${gpu.uuid}`,
          gpu,
          utilization: percent,
          seconds: mean.seconds,
          holders: working
        };
  }
}

interface On {
  readonly gpu: Gpu;
  readonly held: GpuMemoryOwnership;
  readonly holders: readonly Holder[];
}

function placeOf(gpu: Gpu, { key }: Holder): string {
  return `${gpu.uuid} ${key}`;
}

/** An idle notebook is no job; of what is no notebook nobody knows whether it is. */
function works({ kind, kernel, memory }: Holder): boolean {
  return memory !== 0 && (kind === 'process' || kind === 'terminal' || kernel?.state === 'busy');
}

function idle(
  usage: MemoryOwnership,
  on: readonly On[],
  now: number,
  { idle: least, memory: leastMemory }: Thresholds
): IdleHint[] {
  const hints = usage.kernels.flatMap((kernel): IdleHint[] => {
    const { idle_since: since } = kernel;
    if (kernel.state !== 'idle' || since === null || now - since < least) {
      return [];
    }
    const mine = withoutParents(
      on.flatMap(({ gpu, held }) => {
        const holding = held.holdings.find(each => each.kernel === kernel.id);
        const memory = holding?.memory ?? 0;
        return holding === undefined || memory === 0 ? [] : [{ gpu, holding, memory }];
      })
    );
    const memory = mine.reduce((sum, each) => sum + each.memory, 0);
    return memory === 0 || memory < leastMemory
      ? []
      : [
          {
            kind: 'idle',
            key: `idle ${kernel.id}`,
            kernel,
            idle: now - since,
            memory,
            torch: mine.some(({ holding }) => holding.source === 'torch'),
            gpus: mine.map(({ gpu }) => gpu)
          }
        ];
  });
  // By what there is to gain, in whole GiB, so that two of about a size keep their places.
  const size = (hint: IdleHint): number => Math.floor(hint.memory / 1024 ** 3);
  return hints.sort((one, other) => size(other) - size(one));
}

/** What is held in a MIG slice may be told of its parent too, and counts once. */
export function withoutParents<Held extends { readonly gpu: Gpu }>(held: readonly Held[]): Held[] {
  const parents = new Set(held.map(({ gpu }) => gpu.mig_parent));
  return held.filter(({ gpu }) => !parents.has(gpu.uuid));
}
