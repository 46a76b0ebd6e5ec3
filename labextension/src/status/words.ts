import type { TranslationBundle } from '@jupyterlab/translation';

import { heldMemory, sumOfHeldMemory, type HeldMemory } from '../memory/kernelMemory';
import type { KernelView } from '../kernel/activeKernel';
import { duration, memory, UNKNOWN } from '../ui/format';
import type { KernelGpu, KernelState } from '../wire';

/** What the item says, and what a pointer that rests there reads. */
export interface StatusText {
  readonly text: string;
  readonly title: string;
}

/**
 * The device of the notebook in front and what it holds there; null where there is no notebook, no GPU, or no
 * gpuwidget in its kernel that could say. `stale` where the kernel is not asked while its cell runs.
 */
export function statusText(trans: TranslationBundle, view: KernelView, stale: boolean): StatusText | null {
  if (view.condition.kind !== 'ready' || view.condition.state.gpus.length === 0) {
    return null;
  }
  const { state } = view.condition;
  const device = state.device.chosen ?? state.device.present;
  const known = view.silentFor === null && !stale;
  const { name, bytes, torch } = holding(trans, state, device);
  const whose = trans.__('What %1 holds on its GPUs', view.notebook ?? trans.__('this notebook'));
  return {
    text: `${name ?? device ?? 'GPU'} · ${known ? figure(trans, { bytes, torch }) : UNKNOWN}`,
    title: [whose, ...(known ? details(trans, state, bytes) : [silence(trans, view)])].join('\n')
  };
}

/** On the default device where that is a GPU, else wherever it holds anything. */
function holding(
  trans: TranslationBundle,
  state: KernelState,
  device: string | null
): HeldMemory & { readonly name: string | null } {
  const chosen = state.gpus.find(gpu => gpu.torch_device !== null && gpu.torch_device === device);
  if (chosen !== undefined) {
    return { name: device, ...heldMemory(chosen) };
  }
  const [first, ...others] = state.gpus.filter(holds);
  if (first === undefined) {
    return { name: null, ...sumOfHeldMemory(state.gpus.map(heldMemory)) };
  }
  const all = [first, ...others];
  return {
    name: others.length === 0 ? first.torch_device : trans._n('%1 GPU', '%1 GPUs', all.length),
    ...sumOfHeldMemory(all.map(heldMemory))
  };
}

function holds(gpu: KernelGpu): boolean {
  return gpu.context || (heldMemory(gpu).bytes ?? 0) > 0;
}

/** Memory, labelled where it is torch's own number. */
function figure(trans: TranslationBundle, { bytes, torch }: HeldMemory): string {
  return torch && bytes !== null ? trans.__('%1 (torch)', memory(bytes)) : memory(bytes);
}

function details(trans: TranslationBundle, state: KernelState, bytes: number | null): readonly string[] {
  const holding = state.gpus.filter(holds);
  const lines = holding.map(gpu => `${gpu.torch_device ?? gpu.uuid}: ${figure(trans, heldMemory(gpu))}`);
  if (holding.some(gpu => heldMemory(gpu).torch)) {
    lines.push(trans.__('torch’s own number: what it has reserved, without the CUDA context'));
  }
  if (bytes === null) {
    return [...lines, trans.__('Which part of a GPU’s memory is this notebook’s is not known')];
  }
  return lines.length > 0 ? lines : [trans.__('It holds no memory there')];
}

function silence(trans: TranslationBundle, view: KernelView): string {
  return view.silentFor === null
    ? trans.__('Not known while a cell runs: the kernel is asked again when it has ended')
    : trans.__('The kernel has not answered for %1: a long call holds it.', duration(view.silentFor));
}
