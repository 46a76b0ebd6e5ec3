import { Signal, type ISignal } from '@lumino/signaling';

/** What came of the user's last action, as a sentence; it stands until the next one or until it is put away. */
export class Outcome {
  private text = '';
  private readonly changes = new Signal<this, void>(this);

  /** Emitted when it is another. */
  get changed(): ISignal<this, void> {
    return this.changes;
  }

  /** The sentence, empty where there is nothing to say. */
  get sentence(): string {
    return this.text;
  }

  /** Say `sentence`; an empty one puts away what was said. */
  say(sentence: string): void {
    this.text = sentence;
    this.changes.emit();
  }
}
