import { Signal, type ISignal } from '@lumino/signaling';

import type { Clock } from '../clock';
import type { SampleServer } from '../stream/serverApi';
import type { IMonitor } from '../tokens';
import { SAMPLE_SCHEMA, type Sample } from '../wire';

/** Milliseconds between two requests for a sample while no stream is open. */
export const SAMPLE_POLL_MS = 5000;
/** Milliseconds until the next request if the server has failed or has no GPU. */
export const RETRY_MS = 30_000;

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
    if (this.isStreamed) {
      this.requested = this.monitor.model.sample;
    }
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

  /** Request a sample. Return the milliseconds until the next request; null for no further requests. */
  private async requestSample(): Promise<number | null> {
    const { signal } = (this.pending = new AbortController());
    let sample: Sample | null = null;
    let refused = false;
    try {
      sample = await this.server.sample(signal);
      refused = sample?.schema !== SAMPLE_SCHEMA;
    } catch {
      // The server is unreachable or has no sample. The previous sample would be outdated.
    }
    if (signal.aborted) {
      return null;
    }
    this.requested = refused ? null : sample;
    this.changes.emit();
    if (refused) {
      return null;
    }
    return (sample?.gpus.length ?? 0) > 0 ? SAMPLE_POLL_MS : RETRY_MS;
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
