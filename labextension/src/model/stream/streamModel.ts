import type {
  Gpu,
  GpuMemoryOwnership,
  KernelGpu,
  KernelState,
  Reading,
  ReceivedMessage,
  Sample,
  MemoryOwnership
} from '../../wire/wire';
import type { ConnectionState } from './connection';
import { HistoryBuffer } from './historyBuffer';

/**
 * The capacity of the history buffer, relative to the number of samples that it needs at the server's rate.
 * It is more than 1 because the server may sample faster while it watches a cell in its own process.
 */
const CAPACITY_FACTOR = 1.25;
const MIN_CAPACITY = 64;
const MIN_GAP_S = 2;
/**
 * The server sends a sample to a client even if the client's minimum interval has not quite passed: the sample may
 * be early by up to this fraction of the server's sampling interval.
 */
const EARLY_SHARE = 0.25;
/** With up to this many GPUs, a new panel shows all of them expanded. */
const FEW_GPUS = 4;

/** The current data of one GPU. */
export interface GpuNow {
  readonly gpu: Gpu;
  readonly reading: Reading;
  /** How the kernel of the active notebook uses the GPU; null if unknown. */
  readonly kernel: KernelGpu | null;
  /** Who holds the GPU's memory; null before the server has sent this. */
  readonly usage: GpuMemoryOwnership | null;
  /** Jupyter's id of the active notebook's kernel; null if there is none. */
  readonly activeKernelId: string | null;
}

/** Properties of the server from the first message of the stream. */
export interface ServerInfo {
  readonly version: string;
  /** Seconds between two samples of this stream. */
  readonly interval: number;
  /** The command that installs gpuwidget; null if none is configured. */
  readonly install: string | null;
  /** The URL of the documentation; null if there is none. */
  readonly documentation: string | null;
  /** Whether the server stores samples even without pages; null if pages can't change that. */
  readonly alwaysOn: boolean | null;
}

/**
 * Memory of a GPU in bytes: held by the active notebook, held by other processes, used in total, and free.
 */
export interface MemoryShares {
  readonly here: number | null;
  readonly other: number | null;
  readonly used: number | null;
  readonly free: number | null;
}

/** Why the stream delivers no current sample. */
export interface Outage {
  readonly link: ConnectionState;
  /** Seconds since the last sample or since the stream was opened; null if that is not unusually long. */
  readonly seconds: number | null;
  /** Whether the present stream has delivered a sample. */
  readonly hasSample: boolean;
}

/** The parts of a `StreamModel` that views read. */
export type IStreamModel = Readonly<
  Pick<StreamModel, 'server' | 'sample' | 'usage' | 'history' | 'seconds' | 'gap' | 'gpus'>
>;

/** The stream's data after the first sample. */
export type StreamData = IStreamModel & { readonly sample: Sample };

/** The newest data of the stream and the recent history. They stay when the stream ends: see `IMonitor.data`. */
export class StreamModel {
  /** Null before the first message. */
  server: ServerInfo | null = null;
  /** The server's own interval between two samples in seconds; NaN before the first message. */
  ownInterval = NaN;
  sample: Sample | null = null;
  /** Who holds memory; null until the current stream has sent this, because older data may be hours old. */
  usage: MemoryOwnership | null = null;
  history = new HistoryBuffer(MIN_CAPACITY);
  /** The number of seconds of history to keep. A change takes effect with the next stream. */
  seconds = 0;
  /** Minimum seconds between two samples. */
  minInterval = 0;
  private longestInterval = 0;

  /** Return whether a sample has ever arrived. */
  hasSample(): this is this & StreamData {
    return this.sample !== null;
  }

  /** Set the minimum number of seconds between two samples that this page requests from the server. */
  setMinInterval(seconds: number): void {
    this.minInterval = seconds;
    if (this.server !== null) {
      this.server = { ...this.server, interval: this.interval };
      this.longestInterval = Math.max(this.longestInterval, this.interval);
    }
  }

  /** A curve is interrupted between two samples that are more than this many seconds apart. */
  get gap(): number {
    return Math.max(MIN_GAP_S, 3 * this.longestInterval);
  }

  /**
   * Seconds between two samples of this stream. They are a multiple of the server's own interval, because the
   * server respects the minimum interval by leaving out samples.
   */
  private get interval(): number {
    const steps = Math.ceil(this.minInterval / this.ownInterval - EARLY_SHARE);
    return Math.max(1, steps) * this.ownInterval;
  }

  /** Update the model with a message of the stream. */
  take(message: ReceivedMessage): void {
    if (message.type === 'sample') {
      this.sample = message.sample;
      this.history.add(message.sample);
      return;
    }
    if (message.type === 'usage') {
      this.usage = message;
      return;
    }
    if (message.type === 'always_on') {
      this.server &&= { ...this.server, alwaysOn: message.always_on };
      return;
    }
    this.ownInterval = message.interval_s;
    const { version, install, documentation, always_on: alwaysOn } = message;
    this.server = { version, interval: this.interval, install, documentation, alwaysOn };
    this.longestInterval = this.interval;
    const capacity = Math.ceil((CAPACITY_FACTOR * this.seconds) / message.interval_s) + MIN_CAPACITY;
    this.history = new HistoryBuffer(capacity);
    this.history.restart(message.history);
    this.sample = message.sample ?? this.sample;
    this.usage = null;
  }

  /**
   * Return the current data of every GPU in the newest sample. `state` and `activeKernelId` are the state and
   * the id of the active notebook's kernel. The GPUs in `state` are matched by their UUIDs.
   */
  gpus(state: KernelState | null = null, activeKernelId: string | null = null): GpuNow[] {
    const usage = new Map(this.usage?.gpus.map(gpu => [gpu.uuid, gpu]));
    const kernel = new Map(state?.gpus.map(gpu => [gpu.uuid, gpu]));
    const { gpus = [], readings = [] } = this.sample ?? {};
    return gpus.flatMap((gpu, index) => {
      const reading = readings[index];
      if (reading === undefined) {
        return [];
      }
      const { uuid } = gpu;
      return [
        { gpu, reading, kernel: kernel.get(uuid) ?? null, usage: usage.get(uuid) ?? null, activeKernelId }
      ];
    });
  }
}

/** Return how the memory of a GPU is divided. Unknown shares are null. */
export function memoryShares(now: GpuNow): MemoryShares {
  const { gpu, reading, usage } = now;
  // The shares add up, because the holders were found for this reading. It may be older than the newest one.
  const used = reading.memory_used === null ? null : (usage?.memory_used ?? reading.memory_used);
  const { memory_total: total, memory_reserved: reserved } = gpu;
  const own = usage?.older === true ? null : memoryOfNotebook(now);
  // The kernel's figure, which is used if the driver has none, is from another time, so it may be larger.
  const here = own === null || used === null ? own : Math.min(own, used);
  return {
    here,
    other: here === null || used === null ? null : used - here,
    used,
    free: total === null || reserved === null || used === null ? null : Math.max(0, total - reserved - used)
  };
}

/**
 * Return the bytes that the active notebook holds according to the driver or, if the driver has no figure,
 * according to its kernel.
 */
function memoryOfNotebook({ kernel, usage, activeKernelId }: GpuNow): number | null {
  const reported = kernel?.process_memory ?? null;
  if (usage === null || activeKernelId === null) {
    return reported;
  }
  const holding = usage.holdings.find(each => each.kernel === activeKernelId);
  if (holding === undefined) {
    const complete = usage.reason === null && usage.unattributed !== null;
    return reported ?? (complete ? 0 : null);
  }
  // Do not use torch's own figure: it does not include the CUDA context, which would then count as memory of
  // other processes.
  return holding.source === 'driver' ? (holding.memory ?? reported) : reported;
}

/**
 * Return the state of the active notebook's kernel. If the kernel has stopped replying, the state has no memory
 * figures, because these may have changed since the last reply.
 */
export function currentState({
  state,
  view
}: {
  readonly state: KernelState | null;
  readonly view: { readonly silentFor: number | null };
}): KernelState | null {
  return state === null || view.silentFor === null
    ? state
    : { ...state, gpus: state.gpus.map(gpu => ({ ...gpu, process_memory: null })) };
}

/**
 * Return the UUIDs of the GPUs that are expanded unless the user has chosen otherwise: all GPUs if there are
 * at most `FEW_GPUS`, otherwise the GPUs of the active notebook, or the first GPU if the notebook uses none,
 * and the lost GPUs, because only the card has the reason.
 *
 * GPUs are not chosen by utilization, because it changes with every sample: which GPUs a new panel expands
 * would depend on the moment at which the panel was opened.
 */
export function expandedByDefault(gpus: readonly GpuNow[], chosen: string | null): ReadonlySet<string> {
  const usedByNotebook = gpus.filter(
    ({ kernel }) => kernel?.context === true || (chosen !== null && kernel?.torch_device === chosen)
  );
  const lost = gpus.filter(({ reading }) => reading.lost_since !== null);
  const many = [...(usedByNotebook.length > 0 ? usedByNotebook : gpus.slice(0, 1)), ...lost];
  return new Set((gpus.length <= FEW_GPUS ? gpus : many).map(({ gpu }) => gpu.uuid));
}
