import type { TranslationBundle } from '@jupyterlab/translation';

import { withoutParents } from './hints';
import { kernelKind, type Holder } from './holders';
import type { Model } from '../stream/model';
import { gpuNumber, memory } from '../ui/format';
import { kernelName } from './words';
import type { Gpu, MemoryHolder, ServerKernel } from '../wire';

/** What an action is about: one of the server's kernels or terminals; nobody else's process can be touched. */
export interface Target {
  readonly kernel: string | null;
  readonly terminal: string | null;
}

/** What can be done about a holder; each says what came of it. */
export interface Actions {
  /** Bring its tab to the front, opened if need be. */
  goTo(target: Target): Promise<void>;
  /** Have the kernel give torch's cache back. */
  freeCache(kernel: string): Promise<void>;
  /** End the kernel, once the user has confirmed it. */
  shutDown(kernel: string): Promise<void>;
}

/** What an action on `holder` would be about, null where there is none. */
export function targetOf({ kernel, holding }: Holder): Target | null {
  if (kernel !== null) {
    return { kernel: kernel.id, terminal: null };
  }
  const terminal = holding?.terminal ?? null;
  return terminal === null ? null : { kernel: null, terminal };
}

/** What one kernel holds on one GPU. */
export interface Held {
  readonly gpu: Gpu;
  readonly holding: MemoryHolder;
}

/** What a kernel holds on each GPU, as far as the server has said; what is in a MIG slice once. */
export function heldBy({ usage, sample }: Model, kernel: string): Held[] {
  const gpus = new Map(sample?.gpus.map(gpu => [gpu.uuid, gpu]));
  const held = (usage?.gpus ?? []).flatMap(({ uuid, holdings }): Held[] => {
    const gpu = gpus.get(uuid);
    const holding = holdings.find(each => each.kernel === kernel);
    return gpu === undefined || holding === undefined ? [] : [{ gpu, holding }];
  });
  return withoutParents(held);
}

/** The same in words: `18.0 GiB on GPU 0, 3.1 GiB on GPU 2`; empty for nothing. */
export function heldWords(trans: TranslationBundle, held: readonly Held[]): string {
  return held
    .filter(({ holding }) => holding.memory !== 0)
    .map(({ gpu, holding }) => {
      const place = trans.__('%1 on GPU %2', memory(holding.memory), gpuNumber(gpu));
      return holding.source === 'torch' ? trans.__('%1 (torch’s own number)', place) : place;
    })
    .join(', ');
}

/** What ending a kernel takes with it, a sentence each; `others` are what else is connected to it. */
export function losses(
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

/** What a kernel is called: as the server tells it, else as `fallback`. */
export function nameOf(
  trans: TranslationBundle,
  { usage }: Model,
  id: string,
  fallback: string | null
): string {
  const kernel = usage?.kernels.find(each => each.id === id);
  if (usage === null || kernel === undefined) {
    return fallback ?? trans.__('kernel %1', id.slice(0, 8));
  }
  return kernelName(trans, kernel, usage.kernels);
}
