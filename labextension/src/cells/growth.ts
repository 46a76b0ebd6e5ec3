import type { KernelState } from '../wire';

/** How much more a kernel holds on one GPU than before, in bytes; null where nobody knows. */
export interface GpuGrowth {
  readonly uuid: string;
  readonly torchDevice: string | null;
  readonly bytes: number | null;
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
    const before = new Map(this.before.gpus.map(gpu => [gpu.uuid, gpu.process_memory]));
    return this.now.gpus.map(({ uuid, torch_device, process_memory: held }) => {
      const had = before.get(uuid) ?? null;
      return { uuid, torchDevice: torch_device, bytes: held === null || had === null ? null : held - had };
    });
  }

  /** Of all GPUs together; null where it is not known. */
  get bytes(): number | null {
    const { gpus } = this;
    return gpus.length === 0 || gpus.some(({ bytes }) => bytes === null)
      ? null
      : gpus.reduce((sum, { bytes }) => sum + (bytes ?? 0), 0);
  }
}
