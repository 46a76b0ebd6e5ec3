/** So many seconds two clocks may differ: what is told of both on one axis is then off by less than can be seen. */
const TOLERANCE_S = 2;
const KEPT = 16;

/** One clock beside this page's. What arrives late makes it look slow, never fast: the fastest look counts. */
class Beside {
  private readonly looks: number[] = [];

  /** It showed `time` when this page's showed `now`. */
  note(time: number, now: number): void {
    if (Number.isFinite(time)) {
      this.looks.push(time - now);
      this.looks.splice(0, this.looks.length - KEPT);
    }
  }

  /** Seconds by which it is ahead of this page's; null before anything was heard. */
  get ahead(): number | null {
    return this.looks.length === 0 ? null : Math.max(...this.looks);
  }
}

/** The clock of the kernel's machine and that of the server's, whose samples the charts show. */
export class Clocks {
  private kernel = new Beside();
  private readonly server = new Beside();
  private lastSample = NaN;

  /** Another kernel, another clock. */
  forgetKernel(): void {
    this.kernel = new Beside();
  }

  /** A message of the kernel's, dated `date`, has come. All times here are epoch seconds. */
  heardKernel(date: string, now: number): void {
    this.kernel.note(Date.parse(date) / 1000, now);
  }

  /** The newest sample is of `time`; once for each. */
  heardServer(time: number, now: number): void {
    if (time !== this.lastSample) {
      this.lastSample = time;
      this.server.note(time, now);
    }
  }

  /** Seconds by which the kernel's is ahead of the server's; null where they agree, or nobody knows. */
  get disagreement(): number | null {
    const [kernel, server] = [this.kernel.ahead, this.server.ahead];
    if (kernel === null || server === null || Math.abs(kernel - server) <= TOLERANCE_S) {
      return null;
    }
    return kernel - server;
  }
}
