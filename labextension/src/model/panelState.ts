import { DisposableDelegate, type IDisposable } from '@lumino/disposable';
import { Signal, type ISignal } from '@lumino/signaling';
import type { IStateDB } from '@jupyterlab/statedb';
import type { ReadonlyPartialJSONValue } from '@lumino/coreutils';

import { COLUMNS, NOTEBOOK_ORDER, type Sort } from './cells/runTable';

/**
 * Maximum number of parts whose expanded or collapsed state is saved. The oldest entries are dropped, since
 * on some machines the GPUs keep changing.
 */
const MAX_PARTS = 200;

/** The state that the panel saves. */
export interface SavedPanelState {
  /**
   * For each part of the panel that the user has expanded or collapsed, whether it is expanded. Keyed by the
   * part's name, with the part that was changed longest ago first.
   */
  readonly expanded: Readonly<Record<string, boolean>>;
  /** The sort order of the list of cells. */
  readonly sort: Sort;
  /** Whether a chosen device also applies to new tensors. */
  readonly newTensors: boolean;
}

/** Storage for the panel's state, which survives a reload of the page. */
export interface PanelStateStore {
  /** Return the stored value. It may have any shape, because an older version may have written it. */
  fetch(): Promise<unknown>;
  save(state: SavedPanelState): Promise<unknown>;
}

/** Return a store under `key` in JupyterLab's state database. */
export function databaseStore(database: IStateDB, key: string): PanelStateStore {
  return {
    fetch: () => database.fetch(key),
    save: state => database.save(key, state as unknown as ReadonlyPartialJSONValue)
  };
}

/** What the panel's sections read and set. */
export type IPanelState = Pick<PanelState, keyof PanelState>;

/**
 * The panel's expanded parts, sort order and option for new tensors, as the user has set them. They apply to
 * all notebooks and survive a reload of the page.
 */
export class PanelState {
  private parts = new Map<string, boolean>();
  private order: Sort = NOTEBOOK_ORDER;
  private forNewTensors = true;
  /** The values that the user has changed on this page. A stored value does not replace them. */
  private readonly changedByUser = new Set<'sort' | 'newTensors' | 'expanded'>();
  private isRestored: boolean;
  private readonly changes = new Signal<this, void>(this);

  constructor(private readonly store: PanelStateStore | null) {
    this.isRestored = store === null;
    void this.restore();
  }

  /** Whether the stored state has been read. */
  get restored(): boolean {
    return this.isRestored;
  }

  /** Emitted when the user has changed something, and when the stored state has been read. */
  get changed(): ISignal<unknown, void> {
    return this.changes;
  }

  /**
   * Return whether the user has left the part called `name` expanded; null if the user has never expanded or
   * collapsed it.
   */
  isExpanded(name: string): boolean | null {
    return this.parts.get(name) ?? null;
  }

  /** Record that the user has expanded or collapsed the part called `name`. */
  setExpanded(name: string, expanded: boolean): void {
    this.parts.delete(name);
    this.parts.set(name, expanded); // The part that was changed last is at the end.
    this.onUserChange('expanded');
  }

  get sort(): Sort {
    return this.order;
  }

  set sort(sort: Sort) {
    this.order = sort;
    this.onUserChange('sort');
  }

  get newTensors(): boolean {
    return this.forNewTensors;
  }

  set newTensors(newTensors: boolean) {
    this.forNewTensors = newTensors;
    this.onUserChange('newTensors');
  }

  /**
   * Bind the open state of a `details` element to the part called `name`. `onToggle` is called when the
   * element is toggled; its argument is whether the user toggled it. Dispose of the returned object together
   * with the element.
   */
  bindDetails(node: HTMLDetailsElement, name: string, onToggle: (byUser: boolean) => void): IDisposable {
    const expanded = (): boolean => this.isExpanded(name) ?? false;
    const restore = (): void => {
      node.open = expanded();
    };
    node.ontoggle = () => {
      const byUser = node.open !== expanded();
      if (byUser) {
        this.setExpanded(name, node.open);
      }
      onToggle(byUser);
    };
    restore();
    this.changed.connect(restore);
    return new DisposableDelegate(() => {
      node.ontoggle = null;
      this.changed.disconnect(restore);
    });
  }

  private async restore(): Promise<void> {
    if (this.store === null) {
      return;
    }
    const stored: unknown = await this.store.fetch().catch(() => undefined);
    const { expanded, sort, newTensors } = fields(stored);
    const parts = Object.entries(fields(expanded)).filter(
      (entry): entry is [string, boolean] => typeof entry[1] === 'boolean' && !this.parts.has(entry[0])
    );
    this.parts = new Map([...parts, ...this.parts]);
    if (!this.changedByUser.has('sort')) {
      this.order = parsedSort(sort);
    }
    if (!this.changedByUser.has('newTensors')) {
      this.forNewTensors = newTensors !== false;
    }
    this.isRestored = true;
    if (this.changedByUser.size > 0) {
      this.save();
    }
    this.changes.emit();
  }

  private onUserChange(value: 'sort' | 'newTensors' | 'expanded'): void {
    this.changedByUser.add(value);
    this.save();
    this.changes.emit();
  }

  private save(): void {
    if (!this.isRestored) {
      return; // restore() merges the stored state into the current state and then saves the result.
    }
    this.parts = new Map([...this.parts].slice(-MAX_PARTS));
    const saved = {
      expanded: Object.fromEntries(this.parts),
      sort: this.order,
      newTensors: this.forNewTensors
    };
    // If the state cannot be saved, it lasts until the page is closed.
    void this.store?.save(saved).catch(() => undefined);
  }
}

function fields(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}

function parsedSort(value: unknown): Sort {
  const { column, descending } = fields(value);
  const known = COLUMNS.find(each => each === column);
  return known === undefined ? NOTEBOOK_ORDER : { column: known, descending: descending === true };
}
