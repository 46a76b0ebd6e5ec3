import type { Outcome } from './outcome';

/** Notifications of the application. */
export interface Notifier {
  /** Show one; what tells it from others. `pending` ones stay until they are changed. */
  show(text: string, pending: boolean): string;
  /** Have it say something else; false where it is there no more. */
  change(id: string, text: string, pending: boolean): boolean;
}

/** What came of an action, as a notification where nobody sees the panel's foot: one for an action. */
export class Unseen {
  private id: string | null = null;

  constructor(
    outcome: Outcome,
    private readonly seen: () => boolean,
    private readonly notifier: Notifier
  ) {
    outcome.changed.connect(this.tell, this);
  }

  private tell({ sentence, pending }: Outcome): void {
    const { id } = this;
    this.id = null;
    if (sentence === '' || (id === null && this.seen())) {
      return;
    }
    const told =
      id !== null && this.notifier.change(id, sentence, pending) ? id : this.notify(sentence, pending);
    this.id = pending ? told : null;
  }

  private notify(sentence: string, pending: boolean): string | null {
    return this.seen() ? null : this.notifier.show(sentence, pending);
  }
}
