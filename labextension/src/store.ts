import type { IStateDB } from '@jupyterlab/statedb';
import type { ReadonlyPartialJSONValue } from '@lumino/coreutils';

/** Where something of the user's is kept, with the rest of the workspace. */
export interface Store<Kept> {
  fetch(): Promise<unknown>;
  save(kept: Kept): Promise<unknown>;
}

/** Kept under that `key`; null where the page keeps nothing. */
export function storeIn<Kept>(database: IStateDB | null, key: string): Store<Kept> | null {
  return (
    database && {
      fetch: () => database.fetch(key),
      save: kept => database.save(key, kept as unknown as ReadonlyPartialJSONValue)
    }
  );
}
