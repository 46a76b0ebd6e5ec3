import type { Timers } from '../timers';

/** Nobody reads figures that change more often. */
const READABLE_MS = 450;
/** A curve that has moved by less than this share of its length looks the same. */
const STEP = 1 / 400;
/** What waits longest are the figures above the curves. */
const LONGEST_MS = 1000;
/** At most this share of the time goes into drawing, however slow the machine is. */
const SHARE = 1 / 40;

/** When to draw: no more often than can be seen and read, and than the page can bear. */
export class Pace {
  /** Seconds from one end of the curves to the other; Infinity where they stand still. */
  seconds = 0;
  /** Whether there are so many curves that once a second is enough. */
  calm = false;
  private drawn = -Infinity;
  private cost = 0;
  private timer: number | null = null;

  constructor(
    private readonly timers: Timers,
    private readonly draw: () => void
  ) {}

  /** There is something new: draw it when it is time. */
  ask(): void {
    if (this.timer !== null) {
      return;
    }
    const wait = this.drawn + this.interval - this.timers.now();
    if (wait <= 0) {
      this.now();
    } else {
      this.timer = this.timers.after(wait, () => {
        this.timer = null;
        this.now();
      });
    }
  }

  /** Draw at once, as after a choice of the user's. */
  now(): void {
    this.stop();
    this.drawn = this.timers.now();
    this.draw();
    this.cost = this.timers.now() - this.drawn;
  }

  /** Draw no more until asked. */
  stop(): void {
    if (this.timer !== null) {
      this.timers.cancel(this.timer);
      this.timer = null;
    }
  }

  private get interval(): number {
    const visible = this.calm ? LONGEST_MS : Math.min(LONGEST_MS, 1000 * this.seconds * STEP);
    return Math.max(READABLE_MS, visible, this.cost / SHARE);
  }
}
