import { Signal, type ISignal } from '@lumino/signaling';

/**
 * A sentence about the result of the user's last action. It stays until the next action or until it is
 * dismissed.
 */
export class StatusMessage {
  private sentence = '';
  private readonly changes = new Signal<this, void>(this);

  /** Emitted when the text was set. */
  get changed(): ISignal<this, void> {
    return this.changes;
  }

  /** The sentence, empty if there is none. */
  get text(): string {
    return this.sentence;
  }

  /** Set the sentence; an empty one dismisses it. */
  set(sentence: string): void {
    this.sentence = sentence;
    this.changes.emit();
  }
}
