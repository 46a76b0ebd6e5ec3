import { QUANTITY_NAMES, type QuantityName } from './quantities';

export const GROUPINGS = ['node', 'model', 'user', 'notebook', 'job'] as const;
export type Grouping = (typeof GROUPINGS)[number];

/** The orders of the nodes: by name, by the nodes' value, by the number of free GPUs, or problems first. */
export const SORTINGS = ['name', 'highest', 'lowest', 'free', 'problems'] as const;
export type Sorting = (typeof SORTINGS)[number];

/** A search for nodes with free GPUs. */
export interface FreeSearch {
  /** How many free GPUs a node must have. */
  readonly count: number;
  /** The GPUs' product name, as in `ClusterGpu.model`; empty for any model. */
  readonly model: string;
}

/** What a wall shows, as plain data that is saved with the workspace. */
export interface WallState {
  /** What the cells are colored by. */
  readonly quantity: QuantityName;
  readonly grouping: Grouping;
  readonly sorting: Sorting;
  /** Words that a shown GPU must all contain. */
  readonly filter: string;
  /** The search for free GPUs; null if there is none. */
  readonly search: FreeSearch | null;
}

/** The state of a new wall. */
export const DEFAULT_WALL: WallState = {
  quantity: 'utilization',
  grouping: 'node',
  sorting: 'name',
  filter: '',
  search: null
};

/** The largest number of free GPUs for which one can search. */
export const MAX_COUNT = 64;

/** Return the state saved in a workspace, with defaults in place of invalid values. */
export function restoreWall(saved: unknown): WallState {
  const { quantity, grouping, sorting, filter, search } = asRecord(saved);
  const { count, model } = asRecord(search);
  return {
    quantity: QUANTITY_NAMES.find(name => name === quantity) ?? DEFAULT_WALL.quantity,
    grouping: GROUPINGS.find(name => name === grouping) ?? DEFAULT_WALL.grouping,
    sorting: SORTINGS.find(name => name === sorting) ?? DEFAULT_WALL.sorting,
    filter: typeof filter === 'string' ? filter : DEFAULT_WALL.filter,
    search: isCount(count) && typeof model === 'string' ? { count, model } : null
  };
}

/** Whether `count` is a number of GPUs for which one can search. */
function isCount(count: unknown): count is number {
  return Number.isInteger(count) && (count as number) >= 1 && (count as number) <= MAX_COUNT;
}

function asRecord(value: unknown): Record<string, unknown> {
  return (typeof value === 'object' && value !== null ? value : {}) as Record<string, unknown>;
}
