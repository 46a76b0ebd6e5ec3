import { Signal, type ISignal } from '@lumino/signaling';

import type { Clock } from '../clock';

/** What a message is about: an action that is still running, or its result, or why it failed. */
export type MessageKind = 'progress' | 'result' | 'error';

/** How long a message is shown, in milliseconds. The result of the action replaces the message about its progress. */
export const SHOWN_MS: Readonly<Record<MessageKind, number | null>> = {
  progress: null,
  result: 20_000,
  error: 60_000
};

/** What views read of a `StatusMessage`, and how they set it. */
export type IStatusMessage = Readonly<
  Pick<StatusMessage, 'kernel' | 'kind' | 'text' | 'changed' | 'set' | 'clear'>
>;

/**
 * A sentence about the user's last action. It disappears after a while, with the next action, or when it is
 * dismissed.
 */
export class StatusMessage {
  /** The id of the kernel that the message is about; null if it is about none. */
  kernel: string | null = null;
  kind: MessageKind = 'result';
  private sentence = '';
  private timer: number | null = null;
  private readonly changes = new Signal<this, void>(this);

  constructor(private readonly clock: Clock) {}

  /** Emitted after the text has been set. */
  get changed(): ISignal<unknown, void> {
    return this.changes;
  }

  /** The text of the message; empty without a message. */
  get text(): string {
    return this.sentence;
  }

  /** Show a sentence. `kernel` is the id of the kernel that it is about. */
  set(sentence: string, kind: MessageKind = 'result', kernel: string | null = null): void {
    if (this.timer !== null) {
      this.clock.cancel(this.timer);
      this.timer = null;
    }
    const milliseconds = sentence === '' ? null : SHOWN_MS[kind];
    if (milliseconds !== null) {
      this.timer = this.clock.after(milliseconds, () => {
        this.clear();
      });
    }
    this.sentence = sentence;
    this.kernel = kernel;
    this.kind = kind;
    this.changes.emit();
  }

  /** Dismiss the message. */
  clear(): void {
    this.set('');
  }
}

/** The message about the last action on a kernel, which is shown once, at a line of that kernel. */
export class ActionResult {
  private line: object | null = null;

  constructor(
    private readonly kernel: string,
    private readonly text: string
  ) {}

  /** Whether a line shows the message. */
  get shown(): boolean {
    return this.line !== null;
  }

  /**
   * Return the message for a line of `kernel`; empty if another line shows it, or if it is about another kernel.
   * A line keeps the message when it is updated again.
   */
  at(line: object, kernel: string | null): string {
    if (kernel !== this.kernel) {
      return '';
    }
    this.line ??= line;
    return this.line === line ? this.text : '';
  }
}
