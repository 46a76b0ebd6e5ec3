import { Signal, type ISignal } from '@lumino/signaling';

import type { StateStore } from '../stateStore';
import { NOTEBOOK_ORDER, type Column, type Sort } from './rows';

const COLUMNS: readonly Column[] = ['cell', 'delta', 'peak', 'time', 'energy'];

/** How the user has set up the list. */
export interface Wishes {
  readonly sort: Sort;
}

/** How the list is set up, for all notebooks and after a reload. */
export class Preferences {
  private wishes: Wishes = { sort: NOTEBOOK_ORDER };
  private touched = false;
  private readonly changes = new Signal<this, void>(this);

  constructor(private readonly store: StateStore<Wishes> | null) {
    void this.restore();
  }

  /** As it is now. */
  get now(): Wishes {
    return this.wishes;
  }

  /** Emitted when it is another. */
  get changed(): ISignal<this, void> {
    return this.changes;
  }

  /** Set it up so, and keep it. */
  set(wishes: Wishes): void {
    this.touched = true;
    this.wishes = wishes;
    this.changes.emit();
    // Where it can't be kept it holds until the page is left.
    void this.store?.save(this.wishes).catch(() => undefined);
  }

  private async restore(): Promise<void> {
    const kept: unknown = await this.store?.fetch().catch(() => undefined);
    if (this.touched || typeof kept !== 'object' || kept === null) {
      return;
    }
    const { sort } = kept as { sort?: Partial<Sort> | null };
    const column = COLUMNS.find(known => known === sort?.column);
    this.wishes = {
      sort: column === undefined ? NOTEBOOK_ORDER : { column, descending: sort?.descending === true }
    };
    this.changes.emit();
  }
}
