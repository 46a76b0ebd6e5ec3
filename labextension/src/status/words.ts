import type { TranslationBundle } from '@jupyterlab/translation';

import type { KernelView } from '../kernel/kernels';
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
  const held = holding(trans, state, device);
  const whose = trans.__('What %1 holds on its GPUs', view.notebook ?? trans.__('this notebook'));
  return {
    text: `${held.name ?? device ?? 'GPU'} · ${known ? memory(held.bytes) : UNKNOWN}`,
    title: [whose, ...(known ? details(trans, state, held.bytes) : [silence(trans, view)])].join('\n')
  };
}

/** On the default device where that is a GPU, else wherever it holds anything. */
function holding(
  trans: TranslationBundle,
  state: KernelState,
  device: string | null
): { name: string | null; bytes: number | null } {
  const chosen = state.gpus.find(gpu => gpu.torch_device !== null && gpu.torch_device === device);
  if (chosen !== undefined) {
    return { name: device, bytes: chosen.process_memory };
  }
  const [first, ...others] = state.gpus.filter(holds);
  if (first === undefined) {
    return { name: null, bytes: state.gpus.some(({ process_memory: held }) => held === null) ? null : 0 };
  }
  const all = [first, ...others].map(({ process_memory: held }) => held);
  return {
    name: others.length === 0 ? first.torch_device : trans._n('%1 GPU', '%1 GPUs', all.length),
    bytes: all.some(held => held === null) ? null : all.reduce<number>((sum, held) => sum + (held ?? 0), 0)
  };
}

function holds({ context, process_memory: held }: KernelGpu): boolean {
  return context || (held ?? 0) > 0;
}

function details(trans: TranslationBundle, state: KernelState, bytes: number | null): readonly string[] {
  const lines = state.gpus
    .filter(holds)
    .map(gpu => `${gpu.torch_device ?? gpu.uuid}: ${memory(gpu.process_memory)}`);
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
