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
