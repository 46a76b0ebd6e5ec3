import type { Outcome } from './outcome';

/** Notifications of the application. */
export interface Notifier {
  /** Show one; what tells it from others. `pending` ones stay until they are put away. */
  show(text: string, pending: boolean): string;
  /** Put one away. */
  dismiss(id: string): void;
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
    if (this.id !== null) {
      this.notifier.dismiss(this.id);
      this.id = null;
    }
    if (sentence !== '' && !this.seen()) {
      const id = this.notifier.show(sentence, pending);
      this.id = pending ? id : null;
    }
  }
}
