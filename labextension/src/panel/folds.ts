import { Signal, type ISignal } from '@lumino/signaling';

import type { StateStore } from '../stateStore';

/** So many are kept: where every server has other GPUs, the oldest go. */
const MOST = 200;

/** Folds by their names, and whether the user left them unfolded. */
export type Wishes = Readonly<Record<string, boolean>>;

/** What the user folded and unfolded stays so, for all notebooks and after a reload. */
export class Folds {
  private wishes = new Map<string, boolean>();
  private known: boolean;
  private readonly changes = new Signal<this, void>(this);

  constructor(private readonly store: StateStore<Wishes> | null) {
    this.known = store === null;
    void this.restore();
  }

  /** Whether it is known by now what was kept. */
  get restored(): boolean {
    return this.known;
  }

  /** Emitted when the user has wished something, or what was kept is known. */
  get changed(): ISignal<this, void> {
    return this.changes;
  }

  /** Whether the user left the fold of that name unfolded; null where it was never touched. */
  wish(name: string): boolean | null {
    return this.wishes.get(name) ?? null;
  }

  /** The user folds or unfolds it. */
  set(name: string, open: boolean): void {
    this.wishes.delete(name);
    this.wishes.set(name, open); // The newest is the last.
    this.save();
    this.changes.emit();
  }

  /** Have `node` stand as the user left it. `turned` is told when it has turned, and whether by the user now. */
  hold(node: HTMLDetailsElement, name: string, turned: (byUser: boolean) => void): void {
    const wished = (): boolean => this.wish(name) ?? false;
    node.ontoggle = () => {
      const byUser = node.open !== wished();
      if (byUser) {
        this.set(name, node.open);
      }
      turned(byUser);
    };
    node.open = wished();
    this.changed.connect(() => {
      node.open = wished();
    });
  }

  private async restore(): Promise<void> {
    const kept: unknown = await this.store?.fetch().catch(() => undefined);
    if (this.store === null) {
      return;
    }
    const told = typeof kept === 'object' && kept !== null ? Object.entries(kept) : [];
    const touched = this.wishes.size > 0;
    const before = told.filter(([name, open]) => typeof open === 'boolean' && !this.wishes.has(name));
    this.wishes = new Map([...(before as [string, boolean][]), ...this.wishes]);
    this.known = true;
    if (touched) {
      this.save();
    }
    this.changes.emit();
  }

  private save(): void {
    if (this.known) {
      this.wishes = new Map([...this.wishes].slice(-MOST));
      // Where it can't be kept it holds until the page is left.
      void this.store?.save(Object.fromEntries(this.wishes)).catch(() => undefined);
    }
  }
}
