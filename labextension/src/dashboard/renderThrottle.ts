import type { Clock } from '../clock';

/** Minimum time between two drawings: values that change faster cannot be read. */
const MIN_INTERVAL_MS = 450;
/**
 * Maximum time between two drawings, except on a slow machine: later, the values above the curves would be
 * outdated.
 */
const MAX_INTERVAL_MS = 1000;
/** A curve that has moved by less than this share of its length looks unchanged. */
const MIN_MOVE = 1 / 400;
/** Maximum share of time that is spent on drawing. */
const MAX_LOAD = 1 / 40;

/**
 * Limits how often the charts are drawn.
 *
 * No fixed limit, as of Lumino's `Throttler`, suits all dashboards: the charts of 16 GPUs and those of an hour
 * would be drawn too often with the limit that the charts of one minute need, and a slow machine would spend
 * much of its time on drawing.
 */
export class RenderThrottle {
  /** The visible time range in seconds; Infinity if the curves do not move. */
  seconds = 0;
  /** Whether there are so many curves that the longest interval suffices. */
  slow = false;
  private lastStart = -Infinity;
  private lastCost = 0;
  private timer: number | null = null;

  constructor(
    private readonly clock: Clock,
    private readonly draw: () => void
  ) {}

  /** Draw as soon as the limit allows. */
  invoke(): void {
    if (this.timer !== null) {
      return;
    }
    const wait = this.lastStart + this.interval - this.clock.now();
    if (wait <= 0) {
      this.flush();
    } else {
      this.timer = this.clock.after(wait, () => {
        this.timer = null;
        this.flush();
      });
    }
  }

  /** Draw now, for example after a user action. */
  flush(): void {
    this.stop();
    this.lastStart = this.clock.now();
    this.draw();
    this.lastCost = this.clock.now() - this.lastStart;
  }

  /** Cancel the scheduled drawing. */
  stop(): void {
    if (this.timer !== null) {
      this.clock.cancel(this.timer);
      this.timer = null;
    }
  }

  private get interval(): number {
    const visible = this.slow ? MAX_INTERVAL_MS : Math.min(MAX_INTERVAL_MS, 1000 * this.seconds * MIN_MOVE);
    return Math.max(MIN_INTERVAL_MS, visible, this.lastCost / MAX_LOAD);
  }
}
