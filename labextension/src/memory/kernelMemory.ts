import type { TranslationBundle } from '@jupyterlab/translation';

import { withoutMigParents } from './hints';
import { kernelKind, kernelName } from './holders';
import type { StreamModel } from '../stream/streamModel';
import { gpuNumber, memory } from '../ui/format';
import type { Gpu, MemoryHolder, KernelGpu, ServerKernel } from '../wire';

/** The memory that a kernel holds, according to the kernel itself. */
export interface HeldMemory {
  /** Memory in bytes; null if unknown. */
  readonly bytes: number | null;
  /** Whether `bytes` is what torch has reserved, which does not include the CUDA context. */
  readonly torch: boolean;
}

/**
 * Return the driver's figure for a kernel's memory, or torch's figure if the driver has none, as in a
 * container.
 */
export function heldMemory({ process_memory: process, torch_reserved: torch }: KernelGpu): HeldMemory {
  return process === null && torch !== null
    ? { bytes: torch, torch: true }
    : { bytes: process, torch: false };
}

/** Return the sum of several figures; its bytes are null if one of them is unknown. */
export function sumOfHeldMemory(all: readonly HeldMemory[]): HeldMemory {
  return {
    bytes: all.some(({ bytes }) => bytes === null)
      ? null
      : all.reduce((sum, { bytes }) => sum + (bytes ?? 0), 0),
    torch: all.some(({ torch }) => torch)
  };
}

/** What a kernel holds on one GPU, according to the server. */
export interface HoldingOnGpu {
  readonly gpu: Gpu;
  readonly holding: MemoryHolder;
}

/** Return what a kernel holds on each GPU. Memory in a MIG slice is listed once. */
export function holdingsOf({ usage, sample }: StreamModel, kernel: string): HoldingOnGpu[] {
  const gpus = new Map(sample?.gpus.map(gpu => [gpu.uuid, gpu]));
  const holdings = (usage?.gpus ?? []).flatMap(({ uuid, holdings }): HoldingOnGpu[] => {
    const gpu = gpus.get(uuid);
    const holding = holdings.find(each => each.kernel === kernel);
    return gpu === undefined || holding === undefined ? [] : [{ gpu, holding }];
  });
  return withoutMigParents(holdings);
}

/** Return holdings as text, such as `18.0 GiB on GPU 0, 3.1 GiB on GPU 2`; empty if there are none. */
export function holdingsText(trans: TranslationBundle, holdings: readonly HoldingOnGpu[]): string {
  return holdings
    .filter(({ holding }) => holding.memory !== 0)
    .map(({ gpu, holding }) => {
      const text = trans.__('%1 on GPU %2', memory(holding.memory), gpuNumber(gpu));
      return holding.source === 'torch' ? trans.__('%1 (torch’s own number)', text) : text;
    })
    .join(', ');
}

/**
 * Return what is lost when a kernel is shut down, one sentence per loss. `others` are the names of other
 * documents that share the kernel.
 */
export function shutdownLosses(
  trans: TranslationBundle,
  kernel: ServerKernel | null,
  busy: boolean,
  held: string,
  others: readonly string[]
): string[] {
  const running =
    kernelKind(kernel) === 'notebook'
      ? trans.__('the cell that runs now, and those that wait')
      : trans.__('what it runs now');
  return [
    trans.__('all its variables'),
    ...(busy ? [running] : []),
    ...(held === '' ? [] : [trans.__('what it holds: %1', held)]),
    ...(others.length === 0 ? [] : [trans.__('the kernel of %1 too, which is the same', others.join(', '))])
  ];
}

/** Return the name of the kernel with this id, or `fallback` if the server does not list the kernel. */
export function kernelNameById(
  trans: TranslationBundle,
  { usage }: StreamModel,
  id: string,
  fallback: string | null
): string {
  const kernel = usage?.kernels.find(each => each.id === id);
  if (usage === null || kernel === undefined) {
    return fallback ?? trans.__('kernel %1', id.slice(0, 8));
  }
  return kernelName(trans, kernel, usage.kernels);
}
