import { Signal, type ISignal } from '@lumino/signaling';

import { NOTEBOOK_ORDER, type Column, type Sort } from './rows';

const COLUMNS: readonly Column[] = ['cell', 'delta', 'peak', 'time', 'energy'];

/** How the user has set up the list. */
export interface Wishes {
  readonly sort: Sort;
  /** Whether it is unfolded. */
  readonly open: boolean;
}

/** Where that is kept, with the rest of the workspace. */
export interface Store {
  fetch(): Promise<unknown>;
  save(wishes: Wishes): Promise<unknown>;
}

/** How the list is set up, for all notebooks and after a reload. */
export class Preferences {
  private wishes: Wishes = { sort: NOTEBOOK_ORDER, open: true };
  private touched = false;
  private readonly changes = new Signal<this, void>(this);

  constructor(private readonly store: Store | null) {
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

  /** Set up some of it, and keep it. */
  set(wishes: Partial<Wishes>): void {
    this.touched = true;
    this.wishes = { ...this.wishes, ...wishes };
    this.changes.emit();
    // Where it can't be kept it holds until the page is left.
    void this.store?.save(this.wishes).catch(() => undefined);
  }

  private async restore(): Promise<void> {
    const kept: unknown = await this.store?.fetch().catch(() => undefined);
    if (this.touched || typeof kept !== 'object' || kept === null) {
      return;
    }
    const { sort, open } = kept as { sort?: Partial<Sort> | null; open?: unknown };
    const column = COLUMNS.find(known => known === sort?.column);
    this.wishes = {
      sort: column === undefined ? NOTEBOOK_ORDER : { column, descending: sort?.descending === true },
      open: open !== false
    };
    this.changes.emit();
  }
}
