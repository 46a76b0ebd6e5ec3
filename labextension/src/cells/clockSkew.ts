/**
 * Clocks that differ by at most this much count as equal, since the difference cannot be seen on a time axis.
 */
const TOLERANCE_S = 2;
/** Number of the latest observations from which an offset is computed. */
const WINDOW = 16;

/**
 * The offset of a remote clock from this page's clock. A late message makes the remote clock look slow, never
 * fast.
 */
class ClockOffset {
  private readonly offsets: number[] = [];

  /** Add an observation: the remote clock showed `time` when this page's clock showed `now`. */
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

/**
 * Compares the kernel's clock, which dates the runs, with the server's clock, which dates the samples. Times
 * are in epoch seconds.
 */
export class ClockSkew {
  private kernel = new ClockOffset();
  private readonly server = new ClockOffset();
  private lastSample = NaN;

  /** Forget the kernel's clock when the kernel changes, since the new kernel may run on another machine. */
  resetKernel(): void {
    this.kernel = new ClockOffset();
  }

  /** Observe the kernel's clock in a message with the date `date` that arrived at `now`. */
  observeKernel(date: string, now: number): void {
    this.kernel.observe(Date.parse(date) / 1000, now);
  }

  /**
   * Observe the server's clock in the newest sample, taken at `time`. Repeated calls with the same sample
   * count once.
   */
  observeServer(time: number, now: number): void {
    if (time !== this.lastSample) {
      this.lastSample = time;
      this.server.observe(time, now);
    }
  }

  /**
   * Seconds by which the kernel's clock is ahead of the server's; null if the clocks agree or one of them is
   * unknown.
   */
  get seconds(): number | null {
    const [kernel, server] = [this.kernel.seconds, this.server.seconds];
    if (kernel === null || server === null || Math.abs(kernel - server) <= TOLERANCE_S) {
      return null;
    }
    return kernel - server;
  }
}
