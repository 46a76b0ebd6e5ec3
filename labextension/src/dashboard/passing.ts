import type { Timers } from '../timers';

/** A sentence that stands for a while, however often the rest is written meanwhile. */
export class Passing {
  private sentence: string | null = null;
  private timer: number | null = null;

  /** `changed` is called when it is another. */
  constructor(
    private readonly timers: Timers,
    private readonly milliseconds: number,
    private readonly changed: () => void
  ) {}

  /** What is said now, or null. */
  get text(): string | null {
    return this.sentence;
  }

  /** Say this from now on; null puts away what was said. */
  say(text: string | null): void {
    if (this.timer !== null) {
      this.timers.cancel(this.timer);
      this.timer = null;
    }
    this.sentence = text;
    if (text !== null) {
      this.timer = this.timers.after(this.milliseconds, () => {
        this.timer = null;
        this.say(null);
      });
    }
    this.changed();
  }
}
