import type { IStateDB } from '@jupyterlab/statedb';
import type { ReadonlyPartialJSONValue } from '@lumino/coreutils';

/** Storage for one value that survives a reload of the page. */
export interface StateStore<Value> {
  /** Return the stored value, which may be of any shape: an older version may have written it. */
  fetch(): Promise<unknown>;
  save(value: Value): Promise<unknown>;
}

/** Return a store in JupyterLab's state database under `key`, or null without a database. */
export function stateStore<Value>(database: IStateDB | null, key: string): StateStore<Value> | null {
  return (
    database && {
      fetch: () => database.fetch(key),
      save: value => database.save(key, value as unknown as ReadonlyPartialJSONValue)
    }
  );
}
