import { Signal, type ISignal } from '@lumino/signaling';

/** A cell that runs now. */
export interface Run {
  readonly cellId: string;
  readonly executionCount: number | null;
  /** Epoch seconds of the kernel's machine. */
  readonly started: number;
  /** When this page heard of it, in milliseconds of its own clock. */
  readonly heard: number;
}

interface Begun {
  readonly message: string;
  readonly run: Run;
}

/** Which cell of each notebook runs, from what their kernels say; a queued one does not run yet. */
export class Runs {
  private readonly begun = new WeakMap<object, Begun>();
  private readonly changes = new Signal<this, object>(this);

  /** Emitted with the notebook when another of its cells runs, or none any more. */
  get changed(): ISignal<this, object> {
    return this.changes;
  }

  /** The cell of `notebook` that runs, or null. */
  of(notebook: object): Run | null {
    return this.begun.get(notebook)?.run ?? null;
  }

  /** The kernel has begun with a cell; `message` asked it to. */
  began(notebook: object, message: string, run: Run): void {
    this.begun.set(notebook, { message, run });
    this.changes.emit(notebook);
  }

  /** The kernel is done with what `message` asked for; null where it is done with all, as after a restart. */
  ended(notebook: object, message: string | null): void {
    const begun = this.begun.get(notebook);
    if (begun !== undefined && (message === null || begun.message === message)) {
      this.begun.delete(notebook);
      this.changes.emit(notebook);
    }
  }
}
