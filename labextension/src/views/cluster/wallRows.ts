/** Filters, groups and sorts the GPUs of a snapshot, and finds free ones. */

import { model as modelName } from '../../model/format';
import type { ClusterGpu, ClusterNode, ClusterSnapshot } from '../../wire/wire';
import { isXidOfProgram } from '../../wire/xids';
import { hasErrors, quantity, summarize } from './quantities';
import type { FreeSearch, Grouping, WallState } from './wallState';

/**
 * Up to this many bytes, a GPU's memory does not count as held: the driver itself uses some. The server's
 * `idle_s` has the same limit.
 */
const HELD_BYTES = 1e9;

/** The GPUs of one node within one group. */
export interface WallRow {
  readonly node: ClusterNode;
  readonly gpus: readonly ClusterGpu[];
  /** How many of `gpus` match the search for free GPUs; null without a search. */
  readonly found: number | null;
}

/** A group of rows. */
export interface WallGroup {
  /** What the GPUs have in common: a model, user, notebook or job; null if that is unknown or none. */
  readonly name: string | null;
  readonly rows: readonly WallRow[];
}

/** The result of a search for free GPUs. */
export interface FreeResult {
  /** Names of the nodes with at least the wanted number of free GPUs. */
  readonly nodes: readonly string[];
  /** Number of free GPUs on all nodes, and the number of nodes that have any. */
  readonly total: number;
  readonly spread: number;
}

const COLLATOR = new Intl.Collator(undefined, { numeric: true });

/**
 * Whether nobody uses the GPU: it is known to have no utilization and no memory to speak of held. A GPU
 * without these values, such as a MIG slice, does not count as free, and neither does one with an error of its
 * own in the last hour.
 */
export function isFree(gpu: ClusterGpu): boolean {
  const { lost, utilization, memory_used: used, xid, ecc_uncorrected: ecc } = gpu;
  const healthy = !lost && (xid === null || isXidOfProgram(xid)) && (ecc ?? 0) === 0;
  return healthy && utilization === 0 && used !== null && used <= HELD_BYTES;
}

/** Whether the GPU matches a search. */
export function isFound(gpu: ClusterGpu, { model }: FreeSearch): boolean {
  return isFree(gpu) && (model === '' || gpu.model === model);
}

/** Return where the wanted free GPUs are. */
export function findFree(snapshot: ClusterSnapshot, search: FreeSearch): FreeResult {
  const counts = new Map<string, number>();
  const up = nodesUp(snapshot);
  for (const gpu of snapshot.gpus) {
    if (isFound(gpu, search) && up.has(gpu.node)) {
      counts.set(gpu.node, (counts.get(gpu.node) ?? 0) + 1);
    }
  }
  return {
    nodes: [...counts]
      .filter(([, count]) => count >= search.count)
      .map(([name]) => name)
      .sort((a, b) => COLLATOR.compare(a, b)),
    total: [...counts.values()].reduce((sum, count) => sum + count, 0),
    spread: counts.size
  };
}

/** Return the names of the nodes that are up. */
export function nodesUp({ nodes }: ClusterSnapshot): ReadonlySet<string> {
  return new Set(nodes.filter(node => node.up).map(({ name }) => name));
}

/** Return the product names of all GPUs, sorted. */
export function models({ gpus }: ClusterSnapshot): string[] {
  const names = new Set(gpus.map(gpu => gpu.model).filter(name => name !== null));
  return [...names].sort((a, b) => COLLATOR.compare(a, b));
}

/** Return the groups that a wall shows, and the rows of each, in their order. */
export function wallGroups(snapshot: ClusterSnapshot, state: WallState): WallGroup[] {
  const nodes = nodesByName(snapshot);
  const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
  const groups = new Map<string | null, Map<string, ClusterGpu[]>>();
  for (const gpu of snapshot.gpus) {
    if (words.length > 0 && !matches(gpu, words)) {
      continue;
    }
    for (const name of groupNames(gpu, state.grouping)) {
      const group = groups.get(name) ?? new Map<string, ClusterGpu[]>();
      groups.set(name, group);
      const row = group.get(gpu.node);
      if (row === undefined) {
        group.set(gpu.node, [gpu]);
      } else {
        row.push(gpu);
      }
    }
  }
  if (state.grouping === 'node') {
    addEmptyNodes(groups, snapshot.nodes, words);
  }
  const result = [...groups].map(([name, rows]) => ({
    name,
    rows: sortedRows(
      [...rows].map(([node, gpus]) => row(nodes, node, gpus, state.search)),
      state
    )
  }));
  return result.sort(
    (a, b) =>
      Number(hasEnough(b, state)) - Number(hasEnough(a, state)) ||
      Number(a.name === null) - Number(b.name === null) ||
      COLLATOR.compare(a.name ?? '', b.name ?? '')
  );
}

/** Whether the row has as many free GPUs as the search wants. */
export function isEnough({ found }: WallRow, search: FreeSearch | null): boolean {
  return search !== null && found !== null && found >= search.count;
}

function hasEnough({ rows }: WallGroup, { search }: WallState): boolean {
  return rows.some(one => isEnough(one, search));
}

/** Add the nodes of which no GPU is known, such as one that was lost before its GPUs were seen. */
function addEmptyNodes(
  groups: Map<string | null, Map<string, ClusterGpu[]>>,
  nodes: readonly ClusterNode[],
  words: readonly string[]
): void {
  const shown = groups.get(null) ?? new Map<string, ClusterGpu[]>();
  for (const { name } of nodes) {
    const text = name.toLowerCase();
    if (!shown.has(name) && words.every(word => text.includes(word))) {
      shown.set(name, []);
    }
  }
  if (shown.size > 0) {
    groups.set(null, shown);
  }
}

function row(
  nodes: ReadonlyMap<string, ClusterNode>,
  name: string,
  gpus: readonly ClusterGpu[],
  search: FreeSearch | null
): WallRow {
  const node = nodes.get(name) ?? { name, up: false, last_seen: null };
  const found = node.up && search !== null ? gpus.filter(gpu => isFound(gpu, search)).length : 0;
  return { node, gpus, found: search === null ? null : found };
}

function sortedRows(rows: WallRow[], { sorting, search, quantity: name }: WallState): WallRow[] {
  const keys = new Map(rows.map(one => [one, sortKey(one, sorting, name)]));
  return rows.sort(
    (a, b) =>
      Number(isEnough(b, search)) - Number(isEnough(a, search)) ||
      (b.found ?? 0) - (a.found ?? 0) ||
      (keys.get(a) ?? 0) - (keys.get(b) ?? 0) ||
      COLLATOR.compare(a.node.name, b.node.name)
  );
}

/** Return a number by which rows are sorted, lowest first. Rows without a value are last. */
function sortKey(
  { node, gpus }: WallRow,
  sorting: WallState['sorting'],
  name: WallState['quantity']
): number {
  switch (sorting) {
    case 'name':
      return 0;
    case 'free':
      return node.up ? -gpus.filter(isFree).length : 1;
    case 'problems':
      return node.up ? -gpus.filter(gpu => gpu.lost || hasErrors(gpu)).length : -Infinity;
    default: {
      const value = summarize(quantity(name), gpus);
      return value === null ? Infinity : sorting === 'highest' ? -value : value;
    }
  }
}

function matches(gpu: ClusterGpu, words: readonly string[]): boolean {
  const model = gpu.model === null ? [] : [modelName(gpu.model)];
  const job = gpu.job === null ? [] : [gpu.job];
  const text = [gpu.node, gpu.uuid, ...model, ...job, ...gpu.users, ...gpu.notebooks]
    .join('\n')
    .toLowerCase();
  return words.every(word => text.includes(word));
}

/** Return the names of the groups of a GPU. A GPU that two users share is in the group of each. */
function groupNames(gpu: ClusterGpu, grouping: Grouping): readonly (string | null)[] {
  switch (grouping) {
    case 'node':
      return [null];
    case 'model':
      return [gpu.model];
    case 'user':
      return gpu.users.length > 0 ? gpu.users : [null];
    case 'notebook':
      return gpu.notebooks.length > 0 ? gpu.notebooks : [null];
    case 'job':
      return [gpu.job];
  }
}

function nodesByName({ nodes }: ClusterSnapshot): Map<string, ClusterNode> {
  return new Map(nodes.map(node => [node.name, node]));
}
