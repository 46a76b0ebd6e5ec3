import { Signal, type ISignal } from '@lumino/signaling';

import type { Clock } from '../clock';
import type { SampleServer } from './serverApi';
import type { IMonitor } from '../../tokens';
import { SAMPLE_SCHEMA, type Sample } from '../../wire/wire';

/** Milliseconds between two requests for a sample while no stream is open. */
export const SAMPLE_POLL_MS = 5000;
/** Milliseconds until the next request if the server has failed or has no GPU. */
export const RETRY_MS = 30_000;
/** Milliseconds until the next request if the server has no gpuwidget: it logs each of these requests. */
export const ABSENT_MS = 300_000;
/** Maximum time for a request. On a dead connection, it would otherwise be pending for minutes. */
const TIMEOUT_MS = 10_000;

/** The part of `IMonitor` that is used here. */
export interface SampleStream extends Pick<
  IMonitor,
  'connectionState' | 'hasSample' | 'model' | 'silentFor'
> {
  readonly changed: ISignal<unknown, void>;
}

/**
 * The newest sample of the server: that of the stream while a view keeps it open, otherwise one that is
 * requested every five seconds.
 *
 * A stream would make the server sample five times per second for as long as the page is visible, so it is
 * not opened for the status item alone.
 */
export class NewestSample {
  private wanted = false;
  private requested: Sample | null = null;
  /** When `requested` was set, in milliseconds of this page's clock. */
  private received = -Infinity;
  /** Whether the stream delivered the last sample. */
  private wasStreamed = false;
  private pending: AbortController | null = null;
  private timer: number | null = null;
  private readonly changes = new Signal<this, void>(this);

  constructor(
    private readonly server: SampleServer,
    private readonly monitor: SampleStream,
    private readonly clock: Clock
  ) {
    monitor.changed.connect(this.onMonitorChanged, this);
  }

  /** The newest sample; null if there is none. */
  get sample(): Sample | null {
    return this.isStreamed ? this.monitor.model.sample : this.requested;
  }

  /** Emitted when `sample` may have changed. */
  get changed(): ISignal<this, void> {
    return this.changes;
  }

  /** Set whether the sample is displayed. Only then are samples requested. */
  setWanted(wanted: boolean): void {
    if (wanted === this.wanted) {
      return;
    }
    this.wanted = wanted;
    if (wanted) {
      if (this.clock.now() - this.received > RETRY_MS) {
        this.requested = null; // The page was hidden for a long time.
      }
      void this.request();
    } else {
      this.stop();
    }
  }

  /** Stop all requests and disconnect all signals. */
  dispose(): void {
    this.wanted = false;
    this.stop();
    this.monitor.changed.disconnect(this.onMonitorChanged, this);
    Signal.clearData(this);
  }

  private get isStreamed(): boolean {
    const { connectionState, hasSample, silentFor } = this.monitor;
    return connectionState === 'open' && hasSample && silentFor === null;
  }

  private onMonitorChanged(): void {
    const { isStreamed } = this;
    if (isStreamed) {
      this.keep(this.monitor.model.sample);
    } else if (this.wasStreamed && this.wanted) {
      this.stop();
      void this.request(); // The stream's last sample is not current any more.
    }
    this.wasStreamed = isStreamed;
    this.changes.emit();
  }

  /** Request a sample, unless the stream delivers samples, and schedule the next request. */
  private async request(): Promise<void> {
    this.timer = null;
    const delay = this.isStreamed ? SAMPLE_POLL_MS : await this.requestSample();
    if (this.wanted && delay !== null) {
      this.timer = this.clock.after(delay, () => void this.request());
    }
  }

  /** Request a sample. Return the milliseconds until the next request; null if this one was canceled. */
  private async requestSample(): Promise<number | null> {
    const request = (this.pending = new AbortController());
    const timeout = this.clock.after(TIMEOUT_MS, () => {
      request.abort();
    });
    let sample: Sample | null = null;
    let absent = false;
    try {
      sample = await this.server.sample(request.signal);
      absent = sample?.schema !== SAMPLE_SCHEMA;
    } catch {
      // The server is unreachable or has no sample. The previous sample would be outdated.
    }
    this.clock.cancel(timeout);
    if (this.pending !== request) {
      return null;
    }
    this.keep(absent ? null : sample);
    this.changes.emit();
    if (absent) {
      return ABSENT_MS;
    }
    return (sample?.gpus.length ?? 0) > 0 ? SAMPLE_POLL_MS : RETRY_MS;
  }

  private keep(sample: Sample | null): void {
    this.requested = sample;
    this.received = this.clock.now();
  }

  private stop(): void {
    this.pending?.abort();
    this.pending = null;
    if (this.timer !== null) {
      this.clock.cancel(this.timer);
      this.timer = null;
    }
  }
}
