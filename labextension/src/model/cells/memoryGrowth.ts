import { withoutDividedGpus } from '../memory/holders';
import type { Gpu, KernelGpu, KernelState } from '../../wire/wire';

/** How much a kernel's memory on one GPU has grown since the running cell began. */
export interface GpuGrowth {
  readonly uuid: string;
  readonly torchDevice: string | null;
  /** Growth in bytes; null if unknown. */
  readonly bytes: number | null;
  /**
   * Whether `bytes` is the growth of torch's reserved memory, which is used if the driver has no figure for
   * the kernel's memory.
   */
  readonly torch: boolean;
}

/**
 * Computes how much the kernel's memory has grown since the running cell began, from the kernel's states
 * before and during the cell.
 *
 * The state before a cell is known only if the kernel replied after the previous cell had ended. If several
 * cells run without a pause, only the state before the first of them is known.
 */
export class MemoryGrowth {
  private newest: KernelState | null = null;
  /** The newest state that was received while no cell was running. */
  private idle: KernelState | null = null;
  private before: KernelState | null = null;
  private now: KernelState | null = null;
  private running = false;
  private gpusOfServer: readonly Gpu[] = [];

  /**
   * Set the kernel's newest state; null if the kernel no longer replies. `gpus` are the server's GPUs, which
   * tell which GPUs are divided into MIG slices.
   */
  setState(state: KernelState | null, gpus: readonly Gpu[]): void {
    this.gpusOfServer = gpus;
    if (state === this.newest) {
      return;
    }
    this.newest = state;
    if (this.running) {
      this.now = state;
    } else {
      this.idle = state;
    }
  }

  /** Start measuring the growth when a cell begins. */
  begin(): void {
    this.running = true;
    this.before = this.idle;
    this.idle = this.now = null;
  }

  /** Stop measuring the growth when the running cell ends. */
  end(): void {
    this.running = false;
    this.before = this.now = this.idle = null;
  }

  /** Forget all states when another notebook becomes active. */
  reset(): void {
    this.end();
    this.newest = null;
  }

  /** The memory growth on each GPU; empty if unknown. */
  get gpus(): readonly GpuGrowth[] {
    if (this.before === null || this.before.pid !== this.now?.pid) {
      return [];
    }
    const { cuda_initialized: initialized } = this.before;
    const before = new Map(this.before.gpus.map(gpu => [gpu.uuid, gpu]));
    return withoutDividedGpus(this.now.gpus, this.gpusOfServer).map(gpu => {
      const earlier = before.get(gpu.uuid);
      const process = earlier === undefined ? null : difference(earlier.process_memory, gpu.process_memory);
      const torch =
        earlier === undefined ? null : difference(reserved(earlier, initialized), gpu.torch_reserved);
      return {
        uuid: gpu.uuid,
        torchDevice: gpu.torch_device,
        bytes: process ?? torch,
        torch: process === null && torch !== null
      };
    });
  }

  /**
   * The memory growth on all GPUs together; null if unknown. If torch's figures are used for some GPU, only
   * the GPUs that torch can use are included.
   */
  get bytes(): number | null {
    const all = this.gpus;
    const gpus = all.some(({ torch }) => torch) ? all.filter(({ torchDevice }) => torchDevice !== null) : all;
    return gpus.length === 0 || gpus.some(({ bytes }) => bytes === null)
      ? null
      : gpus.reduce((sum, { bytes }) => sum + (bytes ?? 0), 0);
  }
}

function difference(before: number | null, now: number | null): number | null {
  return before === null || now === null ? null : now - before;
}

/** Return the bytes that torch has reserved on a GPU, which are 0 before torch has initialized CUDA. */
function reserved(gpu: KernelGpu, initialized: boolean): number | null {
  return initialized ? gpu.torch_reserved : 0;
}
