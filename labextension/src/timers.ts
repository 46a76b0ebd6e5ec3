/** The clock and the timers, which tests replace by their own. */
export interface Timers {
  /** Milliseconds since some start; never goes back. */
  now(): number;
  /** Call `action` once, `milliseconds` from now. */
  after(milliseconds: number, action: () => void): number;
  /** Call `action` no more. */
  cancel(timer: number): void;
}

/** The browser's own. */
export const BROWSER: Timers = {
  now: () => performance.now(),
  after: (milliseconds, action) => window.setTimeout(action, milliseconds),
  cancel: timer => {
    window.clearTimeout(timer);
  }
};
