import { PathExt } from '@jupyterlab/coreutils';
import type { TranslationBundle } from '@jupyterlab/translation';

import { duration, gpuNumber, memory } from '../format';
import type {
  GpuMemoryOwnership,
  MemoryHolder,
  ServerKernel,
  MemoryOwnership,
  Gpu,
  KernelGpu
} from '../../wire/wire';
import type { IStreamModel } from '../stream/streamModel';

export type HolderKind =
  'notebook' | 'console' | 'kernel' | 'terminal' | 'process' | 'other-users' | 'unattributed';

/** A holder of memory on one GPU. */
export interface Holder {
  /** Identifies the holder across messages of the server. */
  readonly key: string;
  readonly kind: HolderKind;
  /** Whether the holder is the active notebook's kernel. */
  readonly active: boolean;
  /** The server's data about the kernel; null for other processes and after the kernel has ended. */
  readonly kernel: ServerKernel | null;
  /** The server's data about the holder; null for unattributed memory. */
  readonly holding: MemoryHolder | null;
  /** Memory in bytes; null if unknown, also if `holding` is from an older reading than the memory in use. */
  readonly memory: number | null;
}

/** A kernel or terminal of this server, on which the user may act. Other processes offer no actions. */
export interface ActionTarget {
  readonly kernel: string | null;
  readonly terminal: string | null;
}

/**
 * A holder moves up in the list only past holders that are clearly smaller: it must be larger by more than
 * this factor, and by more than `CLEARLY_LARGER_BYTES`.
 */
const CLEARLY_LARGER = 1.1;
const CLEARLY_LARGER_BYTES = 64 * 1024 ** 2;
/** An idle time shorter than this is not shown. */
const MIN_IDLE_S = 60;

/** Return the holders of memory on one GPU in the server's order, unattributed memory last. */
export function holdersOf(
  { holdings, unattributed, reason, older }: GpuMemoryOwnership,
  kernels: ReadonlyMap<string, ServerKernel>,
  activeKernel: string | null
): Holder[] {
  const holders = holdings.map((holding): Holder => {
    const kernel = holding.kernel === null ? null : (kernels.get(holding.kernel) ?? null);
    return {
      key: keyOf(holding),
      kind: kindOf(holding, kernel),
      active: holding.kernel !== null && holding.kernel === activeKernel,
      kernel,
      holding,
      memory: older ? null : holding.memory
    };
  });
  // If there is a reason, the server cannot attribute all memory. Unattributed memory is then listed even if
  // its amount is 0 or unknown, so that nothing moves when the amount changes.
  if (reason !== null || (unattributed ?? 0) > 0) {
    holders.push({
      key: 'unattributed',
      kind: 'unattributed',
      active: false,
      kernel: null,
      holding: null,
      memory: unattributed
    });
  }
  return holders;
}

/**
 * Return the holders in display order: the active notebook first, unattributed memory last, the others by
 * size. `before` contains the holders' keys in the order in which they were last displayed. Holders of
 * about the same size keep that order.
 */
export function sortedHolders(holders: readonly Holder[], before: readonly string[]): Holder[] {
  const positions = new Map(before.map((key, index) => [key, index]));
  const known = holders.filter(({ key }) => positions.has(key));
  known.sort((a, b) => (positions.get(a.key) ?? 0) - (positions.get(b.key) ?? 0));
  const order = [...known, ...holders.filter(({ key }) => !positions.has(key))];
  // An insertion sort: each holder moves up until it reaches one that it does not outrank.
  for (let index = 1; index < order.length; index++) {
    for (let at = index; at > 0; at--) {
      const [above, below] = [order[at - 1], order[at]];
      if (above === undefined || below === undefined || !isBefore(below, above)) {
        break;
      }
      order[at - 1] = below;
      order[at] = above;
    }
  }
  return order;
}

/** Return the kernels in `usage`, keyed by their ids. */
export function kernelsOf(usage: MemoryOwnership | null): ReadonlyMap<string, ServerKernel> {
  return new Map(usage?.kernels.map(kernel => [kernel.id, kernel]));
}

/**
 * Return why it is unknown who holds memory, if the reason is the same for all of several GPUs; otherwise an
 * empty text.
 */
export function sharedReason(usage: MemoryOwnership | null): string {
  const [first, ...others] = (usage?.gpus ?? []).map(({ reason }) => reason);
  return others.length > 0 && others.every(reason => reason === first) ? (first ?? '') : '';
}

/** Return whether a kernel belongs to a notebook, a console or neither. */
export function kernelKind(kernel: ServerKernel | null): 'notebook' | 'console' | 'kernel' {
  return kernel?.kind === 'notebook' || kernel?.kind === 'console' ? kernel.kind : 'kernel';
}

/** Return the kernel or terminal that a holder's actions apply to; null if the holder is neither. */
export function targetOf({ kernel, holding }: Holder): ActionTarget | null {
  if (kernel !== null) {
    return { kernel: kernel.id, terminal: null };
  }
  const terminal = holding?.terminal ?? null;
  return terminal === null ? null : { kernel: null, terminal };
}

/** Return a holder's name and the full text for its tooltip. */
export function holderName(
  trans: TranslationBundle,
  { kind, kernel, holding }: Holder,
  kernels: Iterable<ServerKernel>
): [string, string] {
  switch (kind) {
    case 'notebook':
    case 'console':
    case 'kernel':
      return kernel === null
        ? [trans.__('a kernel that has ended'), holding?.kernel ?? '']
        : [kernelName(trans, kernel, kernels), kernelPath(trans, kernel)];
    case 'terminal': {
      const terminal = trans.__('terminal %1', holding?.terminal ?? '');
      const program = holding?.program ?? '';
      return [program === '' ? terminal : `${terminal} · ${program}`, program];
    }
    case 'process': {
      const { pid = null, user = null, program = null } = holding ?? {};
      const process = pid === null ? trans.__('Unknown process') : trans.__('process %1', String(pid));
      const name = [user, program].filter(part => part !== null && part !== '').join(': ');
      return name === '' ? [process, ''] : [name, `${name} (${process})`];
    }
    case 'other-users':
      return [trans.__('Other users'), trans.__('Memory that processes of other users hold')];
    case 'unattributed':
      return [trans.__('Unknown process'), trans.__('Memory in use that no known process holds')];
  }
}

/**
 * Return the name of a kernel's notebook or console, preceded by its folder if another kernel has the same
 * name.
 */
export function kernelName(
  trans: TranslationBundle,
  kernel: ServerKernel,
  kernels: Iterable<ServerKernel>
): string {
  const name = fileName(kernel);
  if (name === null || name === '') {
    return trans.__('kernel %1 (%2)', kernel.spec, kernel.id.slice(0, 8));
  }
  const { path } = kernel;
  const namesakes = [...kernels].filter(
    other => other.id !== kernel.id && fileName(other) === name && other.path !== path
  );
  if (path === null || kernelKind(kernel) !== 'notebook' || namesakes.length === 0) {
    return name;
  }
  const folder = PathExt.basename(PathExt.dirname(path));
  const short = `${folder}/${name}`;
  const unique = folder !== '' && !namesakes.some(other => `/${other.path ?? ''}`.endsWith(`/${short}`));
  return unique ? short : path;
}

/** Return a kernel's path or name with its kernelspec, for a tooltip. */
export function kernelPath(trans: TranslationBundle, kernel: ServerKernel): string {
  const place = kernelKind(kernel) === 'notebook' ? kernel.path : kernel.name;
  return [place, trans.__('kernel %1 (%2)', kernel.spec, kernel.id.slice(0, 8))]
    .filter(part => part !== null)
    .join(' · ');
}

/**
 * Return a kernel's state, such as `busy` or `idle 3 h`; empty if it is unknown. `now` is in epoch seconds.
 */
export function kernelStateText(trans: TranslationBundle, kernel: ServerKernel | null, now: number): string {
  switch (kernel?.state) {
    case 'idle':
      return kernel.idle_since === null || !(now - kernel.idle_since >= MIN_IDLE_S)
        ? trans.__('idle')
        : trans.__('idle %1', approximateDuration(now - kernel.idle_since));
    case 'busy':
      return trans.__('busy');
    case 'starting':
      return trans.__('starting');
    case 'restarting':
      return trans.__('restarting');
    case 'dead':
      return trans.__('dead');
    default:
      return '';
  }
}

/**
 * Return the kernel's GPUs without those that are divided into MIG slices. `all` are the server's GPUs, which
 * tell which GPUs are divided.
 */
export function withoutDividedGpus(kernelGpus: readonly KernelGpu[], all: readonly Gpu[]): KernelGpu[] {
  const parents = new Set(all.map(gpu => gpu.mig_parent));
  return kernelGpus.filter(({ uuid }) => !parents.has(uuid));
}

/** Return a duration in one unit, rounded down: `12 min`, `3 h`, `2 d`. */
export function approximateDuration(seconds: number): string {
  if (seconds < 3600) {
    return seconds < 60 ? duration(seconds) : `${String(Math.floor(seconds / 60))} min`;
  }
  const hours = Math.floor(seconds / 3600);
  return hours < 48 ? `${String(hours)} h` : `${String(Math.floor(hours / 24))} d`;
}

/** Return a text with the numbers of one or more GPUs, such as `GPU 0` or `GPUs 0, 2`. */
export function gpuNumbers(trans: TranslationBundle, numbers: readonly string[]): string {
  return numbers.length === 1 ? trans.__('GPU %1', numbers[0]) : trans.__('GPUs %1', numbers.join(', '));
}

/** The memory that a kernel holds, according to the kernel itself. */
export interface HeldMemory {
  /** Memory in bytes; null if unknown. */
  readonly bytes: number | null;
  /** Whether `bytes` is what torch has reserved, which does not include the CUDA context. */
  readonly torch: boolean;
}

/**
 * Return the driver's figure for a kernel's memory. If the driver has none, as in a container, return torch's
 * figure.
 */
export function heldMemory({ process_memory: process, torch_reserved: torch }: KernelGpu): HeldMemory {
  return process === null && torch !== null
    ? { bytes: torch, torch: true }
    : { bytes: process, torch: false };
}

/** Return the sum of several amounts of memory. Its `bytes` are null if any amount is unknown. */
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

/**
 * Return what a kernel holds on each GPU. Memory in a MIG slice is listed only for the slice, not for its
 * parent.
 */
export function holdingsOf({ usage, sample }: IStreamModel, kernel: string): HoldingOnGpu[] {
  const gpus = new Map(sample?.gpus.map(gpu => [gpu.uuid, gpu]));
  const holdings = (usage?.gpus ?? []).flatMap(({ uuid, holdings, older }): HoldingOnGpu[] => {
    const gpu = gpus.get(uuid);
    const holding = holdings.find(each => each.kernel === kernel);
    return gpu === undefined || holding === undefined
      ? []
      : [{ gpu, holding: older ? { ...holding, memory: null } : holding }];
  });
  return withoutMigParents(holdings);
}

/** Return holdings as text, such as `18.0 GiB on GPU 0, 3.1 GiB on GPU 2`; empty if there are none. */
export function holdingsText(trans: TranslationBundle, holdings: readonly HoldingOnGpu[]): string {
  return holdings
    .filter(({ holding }) => holding.memory !== 0)
    .map(({ gpu, holding }) => {
      const text = trans.__('%1 on GPU %2', memory(holding.memory), gpuNumber(gpu));
      return holding.source === 'torch' ? trans.__('%1 (reported by PyTorch)', text) : text;
    })
    .join(', ');
}

/**
 * Return what is lost when a kernel is shut down or restarted, one item per loss. `others` are the names of
 * other documents that share the kernel.
 */
export function losses(
  trans: TranslationBundle,
  kernel: ServerKernel | null,
  busy: boolean,
  held: string,
  others: readonly string[]
): string[] {
  const running =
    kernelKind(kernel) === 'notebook'
      ? trans.__('the running cell and the cells in the queue')
      : trans.__('the code that is running now');
  return [
    trans.__('all variables'),
    ...(busy ? [running] : []),
    ...(held === '' ? [] : [trans.__('GPU memory: %1', held)]),
    ...(others.length === 0 ? [] : [trans.__('the kernel of %1 (same kernel)', others.join(', '))])
  ];
}

/** Return the name of the kernel with this id, or `fallback` if the server does not list the kernel. */
export function kernelNameById(
  trans: TranslationBundle,
  usage: MemoryOwnership | null,
  id: string,
  fallback: string | null
): string {
  const kernel = usage?.kernels.find(each => each.id === id);
  if (usage === null || kernel === undefined) {
    return fallback ?? trans.__('kernel %1', id.slice(0, 8));
  }
  return kernelName(trans, kernel, usage.kernels);
}

/** Remove MIG parents: memory in a slice may also be reported for its parent, but must count only once. */
export function withoutMigParents<Item extends { readonly gpu: Gpu }>(items: readonly Item[]): Item[] {
  const parents = new Set(items.map(({ gpu }) => gpu.mig_parent));
  return items.filter(({ gpu }) => !parents.has(gpu.uuid));
}

function isBefore(one: Holder, other: Holder): boolean {
  const [rank, otherRank] = [rankOf(one), rankOf(other)];
  if (rank !== otherRank) {
    return rank < otherRank;
  }
  // Holders of unknown size come after all holders of known size.
  const [size, otherSize] = [one.memory ?? -1, other.memory ?? -1];
  return otherSize < 0
    ? size >= 0
    : size > CLEARLY_LARGER * otherSize && size > otherSize + CLEARLY_LARGER_BYTES;
}

function rankOf({ active, kind }: Holder): number {
  return active ? 0 : kind === 'unattributed' ? 2 : 1;
}

function keyOf({ kernel, terminal, pid, other_users: otherUsers }: MemoryHolder): string {
  if (kernel !== null) {
    return `kernel ${kernel}`;
  }
  if (terminal !== null) {
    return `terminal ${terminal}`;
  }
  return otherUsers ? 'other users' : `pid ${String(pid)}`;
}

function kindOf(holding: MemoryHolder, kernel: ServerKernel | null): HolderKind {
  if (holding.kernel !== null) {
    return kernelKind(kernel);
  }
  if (holding.terminal !== null) {
    return 'terminal';
  }
  return holding.other_users ? 'other-users' : 'process';
}

function fileName({ name, path }: ServerKernel): string | null {
  return name ?? (path === null ? null : PathExt.basename(path));
}
