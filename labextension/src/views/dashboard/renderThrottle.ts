import type { Clock } from '../../model/clock';

/** Minimum time between two drawings. Values that change faster are unreadable. */
const MIN_INTERVAL_MS = 450;
/**
 * Maximum time between two drawings, except on a slow machine. With a longer time, the values above the
 * curves would be outdated.
 */
const MAX_INTERVAL_MS = 1000;
/** A curve that has moved by less than this fraction of its length looks unchanged. */
const MIN_MOVE = 1 / 400;
/** Maximum fraction of the time that is spent on drawing. */
const MAX_LOAD = 1 / 40;

/**
 * Limits how often the charts are drawn.
 *
 * A fixed limit, as in Lumino's `Throttler`, does not suit all dashboards. With the limit that a time range
 * of one minute needs, the charts of 16 GPUs or of an hour would be drawn too often, and a slow machine would
 * spend much of its time on drawing.
 */
export class RenderThrottle {
  /** The visible time range in seconds; Infinity if the curves do not move. */
  seconds = 0;
  /** Whether to always use the longest interval, because there are many curves. */
  slow = false;
  private lastStart = -Infinity;
  private lastCost = 0;
  private timer: number | null = null;

  constructor(
    private readonly clock: Clock,
    private readonly draw: () => void
  ) {}

  /** Draw now, or once the limit allows it. */
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
