import type { GpuMemoryOwnership, MemoryHolder, ServerKernel, MemoryOwnership } from '../wire';

/** What kind of thing holds memory. */
export type HolderKind = 'notebook' | 'console' | 'kernel' | 'terminal' | 'process' | 'unattributed';

/** One that holds memory on one GPU. */
export interface Holder {
  /** Tells it apart from all others, also in the next message. */
  readonly key: string;
  readonly kind: HolderKind;
  /** Whether it is the notebook in front. */
  readonly here: boolean;
  /** The server's kernel, null where it is none or is not known any more. */
  readonly kernel: ServerKernel | null;
  /** What was said of it, null for what belongs to nobody known. */
  readonly holding: MemoryHolder | null;
  /** Bytes, null where nobody says. */
  readonly memory: number | null;
}

/** Two of about the same size keep their places until one is larger by so much of the other, and so many bytes. */
const CLEARLY = 1.1;
const CLEARLY_BYTES = 64 * 1024 ** 2;

/** All that hold memory on one GPU, as the server listed them; what belongs to nobody known comes last. */
export function holdersOf(
  { holdings, unattributed, reason }: GpuMemoryOwnership,
  kernels: ReadonlyMap<string, ServerKernel>,
  front: string | null
): Holder[] {
  const holders = holdings.map((holding, place): Holder => {
    const kernel = holding.kernel === null ? null : (kernels.get(holding.kernel) ?? null);
    return {
      key: keyOf(holding, place),
      kind: kindOf(holding, kernel),
      here: holding.kernel !== null && holding.kernel === front,
      kernel,
      holding,
      memory: holding.memory
    };
  });
  // None at all is not worth a line; some that can't be told is.
  if (unattributed === null ? reason !== null : unattributed > 0) {
    holders.push({
      key: 'unattributed',
      kind: 'unattributed',
      here: false,
      kernel: null,
      holding: null,
      memory: unattributed
    });
  }
  return holders;
}

/**
 * The notebook in front first, what is nobody's last, and between them the largest first; two that are about the
 * same stay in the order of `before`, the keys as they were shown.
 */
export function arranged(holders: readonly Holder[], before: readonly string[]): Holder[] {
  const places = new Map(before.map((key, place) => [key, place]));
  const old = holders.filter(({ key }) => places.has(key));
  old.sort((a, b) => (places.get(a.key) ?? 0) - (places.get(b.key) ?? 0));
  const order = [...old, ...holders.filter(({ key }) => !places.has(key))];
  // An insertion sort: each moves up past those that it clearly exceeds, and no further.
  for (let place = 1; place < order.length; place++) {
    for (let at = place; at > 0; at--) {
      const [above, below] = [order[at - 1], order[at]];
      if (above === undefined || below === undefined || !outranks(below, above)) {
        break;
      }
      order[at - 1] = below;
      order[at] = above;
    }
  }
  return order;
}

/** The kernels of `usage` by their id. */
export function kernelsOf(usage: MemoryOwnership | null): ReadonlyMap<string, ServerKernel> {
  return new Map(usage?.kernels.map(kernel => [kernel.id, kernel]));
}

/** What a kernel is to its user. */
export function kernelKind(kernel: ServerKernel | null): 'notebook' | 'console' | 'kernel' {
  return kernel?.kind === 'notebook' || kernel?.kind === 'console' ? kernel.kind : 'kernel';
}

function outranks(one: Holder, other: Holder): boolean {
  const [rank, otherRank] = [rankOf(one), rankOf(other)];
  if (rank !== otherRank) {
    return rank < otherRank;
  }
  // What nobody knows the size of stands behind what is known.
  const [size, otherSize] = [one.memory ?? -1, other.memory ?? -1];
  return otherSize < 0 ? size >= 0 : size > CLEARLY * otherSize && size > otherSize + CLEARLY_BYTES;
}

function rankOf({ here, kind }: Holder): number {
  return here ? 0 : kind === 'unattributed' ? 2 : 1;
}

function keyOf({ kernel, terminal, pid }: MemoryHolder, place: number): string {
  if (kernel !== null) {
    return `kernel ${kernel}`;
  }
  if (terminal !== null) {
    return `terminal ${terminal}`;
  }
  return pid === null ? `place ${String(place)}` : `pid ${String(pid)}`;
}

function kindOf(holding: MemoryHolder, kernel: ServerKernel | null): HolderKind {
  if (holding.kernel !== null) {
    return kernelKind(kernel);
  }
  return holding.terminal === null ? 'process' : 'terminal';
}
