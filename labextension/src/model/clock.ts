/** A monotonic clock with one-shot timers. Tests replace it with a clock that they advance themselves. */
export interface Clock {
  /** Return the milliseconds since an arbitrary start. The value never decreases. */
  now(): number;
  /** Call `action` once after `milliseconds`. Return the id of the timer. */
  after(milliseconds: number, action: () => void): number;
  /** Cancel a timer. */
  cancel(timer: number): void;
}

/** The browser's clock. */
export const BROWSER_CLOCK: Clock = {
  now: () => performance.now(),
  after: (milliseconds, action) => window.setTimeout(action, milliseconds),
  cancel: timer => {
    window.clearTimeout(timer);
  }
};

/** The offset is computed from this many of the latest observations. */
const WINDOW = 16;

/**
 * The offset of a remote clock from this page's clock, computed from the times in its messages.
 *
 * A delayed message makes the remote clock appear to be behind, never ahead, so the largest offset is the
 * best estimate.
 */
export class ClockOffset {
  private readonly offsets: number[] = [];

  /**
   * Add an observation: the remote clock showed `time` when this page's clock showed `now`, both in epoch
   * seconds.
   */
  observe(time: number, now: number): void {
    if (Number.isFinite(time)) {
      this.offsets.push(time - now);
      this.offsets.splice(0, this.offsets.length - WINDOW);
    }
  }

  /** Seconds by which the remote clock is ahead of this page's clock; null before the first observation. */
  get seconds(): number | null {
    return this.offsets.length === 0 ? null : Math.max(...this.offsets);
  }
}
