import type { KernelGpu } from '../wire';

/** What a kernel holds on a GPU. */
export interface Held {
  /** null where nobody says. */
  readonly bytes: number | null;
  /** Whether it is torch's own number, what it has reserved without the CUDA context. */
  readonly torch: boolean;
}

/** As the driver's list of processes says; where it can't be told from that, as in a container, as torch says. */
export function held({ process_memory: process, torch_reserved: torch }: KernelGpu): Held {
  return process === null && torch !== null
    ? { bytes: torch, torch: true }
    : { bytes: process, torch: false };
}

/** Of several together. */
export function together(all: readonly Held[]): Held {
  return {
    bytes: all.some(({ bytes }) => bytes === null)
      ? null
      : all.reduce((sum, { bytes }) => sum + (bytes ?? 0), 0),
    torch: all.some(({ torch }) => torch)
  };
}
