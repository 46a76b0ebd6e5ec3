import type { IStateDB } from '@jupyterlab/statedb';
import type { ReadonlyPartialJSONValue } from '@lumino/coreutils';

/** Storage for one value that survives a reload of the page. */
export interface StateStore<Value> {
  /** Return the stored value. It may have any shape, because an older version may have written it. */
  fetch(): Promise<unknown>;
  save(value: Value): Promise<unknown>;
}

/** Return a store under `key` in JupyterLab's state database, or null if there is no database. */
export function stateStore<Value>(database: IStateDB | null, key: string): StateStore<Value> | null {
  return (
    database && {
      fetch: () => database.fetch(key),
      save: value => database.save(key, value as unknown as ReadonlyPartialJSONValue)
    }
  );
}
