import type { KernelGpu, KernelState } from '../wire';

/** How much more a kernel holds on one GPU than before, in bytes; null where nobody knows. */
export interface GpuGrowth {
  readonly uuid: string;
  readonly torchDevice: string | null;
  readonly bytes: number | null;
  /** Whether it is of torch's own numbers, where whose memory it is can't be told otherwise. */
  readonly torch: boolean;
}

/**
 * What the running cell has taken so far, from what the kernel answers. What it held before is known only where it was
 * asked after the cell before had ended: of cells that run one after the other without a pause, of the first.
 */
export class Growth {
  private newest: KernelState | null = null;
  /** What held when no cell ran. */
  private rest: KernelState | null = null;
  private before: KernelState | null = null;
  private now: KernelState | null = null;
  private running = false;

  /** The kernel said so, or says nothing any more. */
  heard(state: KernelState | null): void {
    if (state === this.newest) {
      return;
    }
    this.newest = state;
    if (this.running) {
      this.now = state;
    } else {
      this.rest = state;
    }
  }

  /** A cell begins. */
  began(): void {
    this.running = true;
    this.before = this.rest;
    this.rest = this.now = null;
  }

  /** It has ended. */
  ended(): void {
    this.running = false;
    this.before = this.now = this.rest = null;
  }

  /** Another notebook: nothing is known of it. */
  forget(): void {
    this.ended();
    this.newest = null;
  }

  /** Of each GPU; empty where it is not known. */
  get gpus(): readonly GpuGrowth[] {
    if (this.before === null || this.before.pid !== this.now?.pid) {
      return [];
    }
    const { cuda_initialized: initialized } = this.before;
    const before = new Map(this.before.gpus.map(gpu => [gpu.uuid, gpu]));
    return this.now.gpus.map(gpu => {
      const had = before.get(gpu.uuid);
      const process = had === undefined ? null : difference(had.process_memory, gpu.process_memory);
      const torch = had === undefined ? null : difference(reserved(had, initialized), gpu.torch_reserved);
      return {
        uuid: gpu.uuid,
        torchDevice: gpu.torch_device,
        bytes: process ?? torch,
        torch: process === null && torch !== null
      };
    });
  }

  /** Of all GPUs together, of which torch may not have all; null where it is not known. */
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

/** Before CUDA is up torch has nothing. */
function reserved(gpu: KernelGpu, initialized: boolean): number | null {
  return initialized ? gpu.torch_reserved : 0;
}
