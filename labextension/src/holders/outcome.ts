import { Signal, type ISignal } from '@lumino/signaling';

/** What came of the user's last action, as a sentence; it stands until the next one or until it is put away. */
export class Outcome {
  private text = '';
  private waits = false;
  private readonly changes = new Signal<this, void>(this);

  /** Emitted when it is another. */
  get changed(): ISignal<this, void> {
    return this.changes;
  }

  /** The sentence, empty where there is nothing to say. */
  get sentence(): string {
    return this.text;
  }

  /** Whether it is still at work, and another sentence follows. */
  get pending(): boolean {
    return this.waits;
  }

  /** Say `sentence`; an empty one puts away what was said. */
  say(sentence: string, pending = false): void {
    this.text = sentence;
    this.waits = pending;
    this.changes.emit();
  }
}
