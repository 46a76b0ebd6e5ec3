import { holdersOf, kernelsOf, withoutMigParents, type Holder } from './holders';
import { isGap } from '../stream/historyBuffer';
import type { Settings } from '../settings/settings';
import type { Gpu, GpuMemoryOwnership, Sample, ServerKernel, MemoryOwnership } from '../../wire/wire';

/** The limits at which hints are shown. */
export type Thresholds = Settings['hints'];

const GIB = 1024 ** 3;

/** A kernel has been idle for a long time and holds memory. */
export interface IdleHint {
  readonly kind: 'idle';
  readonly key: string;
  readonly kernel: ServerKernel;
  /** Idle time in seconds. */
  readonly idle: number;
  /** Bytes that the kernel holds on all GPUs together. */
  readonly memory: number;
  /** Whether `memory` includes figures that torch reported (its reserved memory) instead of the driver. */
  readonly torch: boolean;
  readonly gpus: readonly Gpu[];
}

/** The utilization of a GPU was low for a long time although the holders of its memory were working. */
export interface UnderusedHint {
  readonly kind: 'underused';
  readonly key: string;
  readonly gpu: Gpu;
  /** Mean utilization over `seconds` in percent. */
  readonly utilization: number;
  readonly seconds: number;
  /** The holders that were working on the GPU for all of `seconds`. */
  readonly holders: readonly Holder[];
}

export type Hint = IdleHint | UnderusedHint;

/**
 * For how long a hint about a GPU is still shown after it last applied, so that the panel's layout does not
 * change with every cell.
 */
const MIN_SHOWN_S = 60;

/** Finds hints in the server's samples and in its data about the holders of memory. */
export class HintFinder {
  /** For each holder that is working, when it began to work without a pause, by the server's clock. */
  private working: ReadonlyMap<string, number> = new Map();
  /** The last hint about each GPU, and when it last applied. */
  private readonly last = new Map<string, { readonly hint: UnderusedHint; readonly time: number }>();
  private newest = NaN;

  /**
   * Return the hints that apply at the time of `sample`. `interval` is the usual number of seconds between
   * samples.
   */
  find(usage: MemoryOwnership, sample: Sample, interval: number, thresholds: Thresholds): Hint[] {
    const { time } = sample;
    if (isGap(this.newest, time, interval)) {
      this.working = new Map();
      this.last.clear();
    }
    this.newest = time;
    const kernels = kernelsOf(usage);
    const gpus = sample.gpus.flatMap((gpu): GpuWithHolders[] => {
      const gpuUsage = usage.gpus.find(each => each.uuid === gpu.uuid);
      return gpuUsage === undefined
        ? []
        : [{ gpu, usage: gpuUsage, holders: holdersOf(gpuUsage, kernels, null) }];
    });
    const working = gpus.flatMap(({ gpu, holders }) =>
      holders.filter(isWorking).map(holder => holderKey(gpu, holder))
    );
    this.working = new Map(working.map(key => [key, this.working.get(key) ?? time]));
    return [...idleHints(usage, gpus, time, thresholds), ...this.underusedHints(gpus, time, thresholds)];
  }

  /**
   * Return the hints about underused GPUs: the hints that apply now, and the hints that last applied less
   * than `MIN_SHOWN_S` seconds ago and whose holders still exist.
   */
  private underusedHints(
    gpus: readonly GpuWithHolders[],
    time: number,
    thresholds: Thresholds
  ): UnderusedHint[] {
    return gpus.flatMap((each): UnderusedHint[] => {
      const { uuid } = each.gpu;
      const hint = this.underusedHint(each, time, thresholds);
      if (hint !== null) {
        this.last.set(uuid, { hint, time });
        return [hint];
      }
      const last = this.last.get(uuid);
      if (last === undefined) {
        return [];
      }
      const keys = new Set(each.holders.map(({ key }) => key));
      const isUnchanged =
        time - last.time < MIN_SHOWN_S &&
        last.hint.utilization < thresholds.busyPercent &&
        last.hint.seconds >= 60 * thresholds.busyMinutes &&
        last.hint.holders.every(({ key }) => keys.has(key));
      if (!isUnchanged) {
        this.last.delete(uuid);
      }
      return isUnchanged ? [last.hint] : [];
    });
  }

  private underusedHint(
    { gpu, usage, holders }: GpuWithHolders,
    now: number,
    { busyPercent, busyMinutes }: Thresholds
  ): UnderusedHint | null {
    const window = 60 * busyMinutes;
    const low = usage.means.filter(mean => mean.utilization !== null && mean.utilization < busyPercent);
    if (!low.some(({ seconds }) => seconds === window)) {
      return null;
    }
    const age = (holder: Holder): number => now - (this.working.get(holderKey(gpu, holder)) ?? now);
    const working = holders.filter(holder => age(holder) >= window);
    const sharedSeconds = Math.min(...working.map(age));
    // Use the longest window during which all these holders worked: it is the best evidence.
    const mean = low.filter(({ seconds }) => seconds >= window && seconds <= sharedSeconds).at(-1);
    const percent = mean?.utilization ?? null;
    return working.length === 0 || mean === undefined || percent === null
      ? null
      : {
          kind: 'underused',
          key: `underused ${gpu.uuid}`,
          gpu,
          utilization: percent,
          seconds: mean.seconds,
          holders: working
        };
  }
}

interface GpuWithHolders {
  readonly gpu: Gpu;
  readonly usage: GpuMemoryOwnership;
  readonly holders: readonly Holder[];
}

function holderKey(gpu: Gpu, { key }: Holder): string {
  return `${gpu.uuid} ${key}`;
}

/**
 * Return whether a holder may be working: a busy kernel, or a terminal or process, whose state is unknown.
 */
function isWorking({ kind, kernel, memory }: Holder): boolean {
  return memory !== 0 && (kind === 'process' || kind === 'terminal' || kernel?.state === 'busy');
}

function idleHints(
  usage: MemoryOwnership,
  gpus: readonly GpuWithHolders[],
  now: number,
  { idleHours, idleGib }: Thresholds
): IdleHint[] {
  const hints = usage.kernels.flatMap((kernel): IdleHint[] => {
    const { idle_since: since } = kernel;
    if (kernel.state !== 'idle' || since === null || now - since < 3600 * idleHours) {
      return [];
    }
    const own = withoutMigParents(
      gpus.flatMap(({ gpu, usage: { holdings } }) => {
        const holding = holdings.find(each => each.kernel === kernel.id);
        const memory = holding?.memory ?? 0;
        return holding === undefined || memory === 0 ? [] : [{ gpu, holding, memory }];
      })
    );
    const memory = own.reduce((sum, each) => sum + each.memory, 0);
    return memory === 0 || memory < idleGib * GIB
      ? []
      : [
          {
            kind: 'idle',
            key: `idle ${kernel.id}`,
            kernel,
            idle: now - since,
            memory,
            torch: own.some(({ holding }) => holding.source === 'torch'),
            gpus: own.map(({ gpu }) => gpu)
          }
        ];
  });
  // Sort by whole GiB, largest first, so that hints with about the same size keep their order.
  const size = (hint: IdleHint): number => Math.floor(hint.memory / GIB);
  return hints.sort((one, other) => size(other) - size(one));
}
