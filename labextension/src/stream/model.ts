import { Past } from './past';
import type {
  Gpu,
  GpuMemoryOwnership,
  KernelGpu,
  KernelState,
  Reading,
  Sample,
  ReceivedMessage,
  MemoryOwnership
} from '../wire';

/** More than at the server's rate: a cell that is watched in the same process may be sampled faster. */
const ROOM = 1.25;
const AT_LEAST = 64;
const SHORTEST_GAP_S = 2;
/** A sample that comes earlier by this share of the server's interval is not too early. */
const EARLY = 0.25;
/** So many GPUs all get a card. */
const FEW = 2;
/** Up to so many, those that are in use get one. */
const SOME = 4;

/** What is known about one GPU at one moment. */
export interface GpuNow {
  readonly gpu: Gpu;
  readonly reading: Reading;
  /** As the notebook in front uses it, null where that is not known. */
  readonly kernel: KernelGpu | null;
  /** Who holds its memory, null where the server has not said so. */
  readonly usage: GpuMemoryOwnership | null;
  /** Jupyter's id of the kernel of the notebook in front, null where there is none. */
  readonly front: string | null;
}

/** What the server said of itself with its first message. */
export interface ServerInfo {
  readonly version: string;
  /** Seconds from sample to sample as they come. */
  readonly interval: number;
  /** The command that installs gpuwidget, null where none is configured. */
  readonly install: string | null;
  /** Address of the documentation, null where there is none. */
  readonly documentation: string | null;
}

/** How the memory of a GPU is shared out, in bytes. */
export interface Shares {
  readonly here: number | null;
  readonly other: number | null;
  readonly used: number | null;
  readonly free: number | null;
}

/** The stream's newest sample and its past. */
export class Model {
  /** What the server said of itself, null before it did. */
  server: ServerInfo | null = null;
  /** Seconds from sample to sample as the server reads them; NaN before it said so. */
  ownInterval = NaN;
  sample: Sample | null = null;
  /** Who holds what, null before this stream said it: what an earlier one said may be hours old. */
  usage: MemoryOwnership | null = null;
  past = new Past(AT_LEAST);
  /** How much of the past is kept, from the next stream on. */
  seconds = 0;
  /** Seconds that are to lie between two samples at least. */
  wishedInterval = 0;
  private longestInterval = 0;

  /** From now on samples come so seldom; see {@link wishedInterval}. */
  pace(seconds: number): void {
    this.wishedInterval = seconds;
    if (this.server !== null) {
      this.server = { ...this.server, interval: this.interval };
      this.longestInterval = Math.max(this.longestInterval, this.interval);
    }
  }

  /** Seconds without a sample after which a curve is broken. */
  get gap(): number {
    return Math.max(SHORTEST_GAP_S, 3 * this.longestInterval);
  }

  /** The server leaves samples out until the next would come too late: gpuwidget/server/pacing.py does so. */
  private get interval(): number {
    const steps = Math.ceil(this.wishedInterval / this.ownInterval - EARLY);
    return Math.max(1, steps) * this.ownInterval;
  }

  /** Take one message of the stream. */
  take(message: ReceivedMessage): void {
    if (message.type === 'sample') {
      this.sample = message.sample;
      this.past.add(message.sample);
      return;
    }
    if (message.type === 'usage') {
      this.usage = message;
      return;
    }
    this.ownInterval = message.interval_s;
    const { version, install, documentation } = message;
    this.server = { version, interval: this.interval, install, documentation };
    this.longestInterval = this.interval;
    const room = Math.ceil((ROOM * this.seconds) / message.interval_s) + AT_LEAST;
    this.past = new Past(room);
    this.past.restart(message.history);
    this.sample = message.sample ?? this.sample;
    this.usage = null;
  }

  /** Every GPU of the newest sample, with what `state` and the server say of it; `front` is the kernel in front. */
  gpus(state: KernelState | null, front: string | null): GpuNow[] {
    const usage = new Map(this.usage?.gpus.map(gpu => [gpu.uuid, gpu]));
    const kernel = new Map(state?.gpus.map(gpu => [gpu.uuid, gpu]));
    const { gpus = [], readings = [] } = this.sample ?? {};
    return gpus.flatMap((gpu, place) => {
      const reading = readings[place];
      if (reading === undefined) {
        return [];
      }
      const { uuid } = gpu;
      return [{ gpu, reading, kernel: kernel.get(uuid) ?? null, usage: usage.get(uuid) ?? null, front }];
    });
  }
}

/** This notebook's memory, that of others and what is free; null where it is not known. */
export function shares(now: GpuNow): Shares {
  const { gpu, reading } = now;
  const used = reading.memory_used;
  const { memory_total: total, memory_reserved: reserved } = gpu;
  const mine = heldHere(now);
  // Asked at different moments: more than all that is used cannot be this notebook's.
  const here = mine === null || used === null ? mine : Math.min(mine, used);
  return {
    here,
    other: here === null || used === null ? null : used - here,
    used,
    free: total === null || reserved === null || used === null ? null : Math.max(0, total - reserved - used)
  };
}

/** Bytes that the notebook in front holds: as the driver tells the server, else as the kernel itself last said. */
function heldHere({ kernel, usage, front }: GpuNow): number | null {
  const held = kernel?.process_memory ?? null;
  if (usage === null || front === null) {
    return held;
  }
  const holding = usage.holdings.find(each => each.kernel === front);
  if (holding === undefined) {
    const allIsKnown = usage.reason === null && usage.unattributed !== null;
    return held ?? (allIsKnown ? 0 : null);
  }
  // torch's own number leaves out the CUDA context: the rest would be laid at other people's door.
  return holding.source === 'driver' ? (holding.memory ?? held) : held;
}

/** The same without what the kernel held when it last answered: what it holds by now, nobody knows. */
export function withoutMemory(state: KernelState): KernelState {
  return { ...state, gpus: state.gpus.map(gpu => ({ ...gpu, process_memory: null })) };
}

/** Whether this GPU does something now or is held by the notebook in front. */
export function inUse({ reading, kernel }: GpuNow): boolean {
  return (reading.utilization ?? 0) > 0 || kernel?.context === true;
}

/**
 * Which GPUs are shown as cards where the user has not said so, by UUID: those of the notebook, all of few, the busy
 * ones of some, and one at least. Asked when GPUs are first seen and when the notebook's hold on them changes, and not
 * for each value, so that nothing jumps.
 */
export function openByThemselves(gpus: readonly GpuNow[], chosen: string | null): ReadonlySet<string> {
  const mine = ({ kernel }: GpuNow): boolean =>
    kernel?.context === true || (chosen !== null && kernel?.torch_device === chosen);
  const open = gpus.filter(now => mine(now) || gpus.length <= FEW || (gpus.length <= SOME && inUse(now)));
  const one = gpus.find(inUse) ?? gpus[0];
  const shown = open.length > 0 || one === undefined ? open : [one];
  return new Set(shown.map(({ gpu }) => gpu.uuid));
}
