/** Two clocks may differ by this much: on one time axis the difference is too small to be seen. */
const TOLERANCE_S = 2;
/** How many of the latest observations count. */
const WINDOW = 16;

/** The offset of one remote clock from this page's. A message that arrives late makes it look slow, never fast. */
class ClockOffset {
  private readonly offsets: number[] = [];

  /** Add an observation: the clock showed `time` when this page's showed `now`. */
  observe(time: number, now: number): void {
    if (Number.isFinite(time)) {
      this.offsets.push(time - now);
      this.offsets.splice(0, this.offsets.length - WINDOW);
    }
  }

  /** Seconds by which it is ahead of this page's clock, null before the first observation. */
  get seconds(): number | null {
    return this.offsets.length === 0 ? null : Math.max(...this.offsets);
  }
}

/** Compares the kernel's clock, which dates the runs, with the server's, which dates the samples. Epoch seconds. */
export class ClockSkew {
  private kernel = new ClockOffset();
  private readonly server = new ClockOffset();
  private lastSample = NaN;

  /** Forget the kernel's clock, since another kernel may run on another machine. */
  resetKernel(): void {
    this.kernel = new ClockOffset();
  }

  /** Observe a message of the kernel with this `date`. */
  observeKernel(date: string, now: number): void {
    this.kernel.observe(Date.parse(date) / 1000, now);
  }

  /** Observe the newest sample, taken at `time`. Repeated calls with one sample count once. */
  observeServer(time: number, now: number): void {
    if (time !== this.lastSample) {
      this.lastSample = time;
      this.server.observe(time, now);
    }
  }

  /** Seconds by which the kernel's clock is ahead of the server's, null if they agree or that is unknown. */
  get seconds(): number | null {
    const [kernel, server] = [this.kernel.seconds, this.server.seconds];
    if (kernel === null || server === null || Math.abs(kernel - server) <= TOLERANCE_S) {
      return null;
    }
    return kernel - server;
  }
}
