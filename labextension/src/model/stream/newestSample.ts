import { Signal, type ISignal } from '@lumino/signaling';

import type { Clock } from '../clock';
import { CancelablePoll } from '../cancelablePoll';
import { liveValue } from '../freshness';
import type { Result } from '../server/result';
import type { ServerClient } from '../server/serverClient';
import type { IMonitor } from '../../tokens';
import type { Sample } from '../../wire/wire';

/** Milliseconds between two requests for a sample while no stream is open. */
export const SAMPLE_POLL_MS = 5000;
/** Milliseconds until the next request if the server has failed or has no GPU. */
export const RETRY_MS = 30_000;
/** Milliseconds until the next request if the server has no gpuwidget: it logs each of these requests. */
export const ABSENT_MS = 300_000;

/** The part of `IMonitor` that is used here. */
export interface SampleStream extends Pick<IMonitor, 'data'> {
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
  private readonly poll: CancelablePoll<Result<Sample>>;
  private readonly changes = new Signal<this, void>(this);

  constructor(
    server: Pick<ServerClient, 'sample'>,
    private readonly monitor: SampleStream,
    private readonly clock: Clock
  ) {
    this.poll = new CancelablePoll(
      signal => server.sample(signal),
      result => this.handleResult(result)
    );
    monitor.changed.connect(this.onMonitorChanged, this);
  }

  /** The newest sample; null if there is none. */
  get sample(): Sample | null {
    return this.streamed ?? this.requested;
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
    if (wanted && this.clock.now() - this.received > RETRY_MS) {
      this.requested = null; // The page was hidden for a long time.
    }
    this.updatePoll();
  }

  /** Stop all requests and disconnect all signals. */
  dispose(): void {
    this.setWanted(false);
    this.monitor.changed.disconnect(this.onMonitorChanged, this);
    Signal.clearData(this);
  }

  private get streamed(): Sample | null {
    return liveValue(this.monitor.data)?.sample ?? null;
  }

  private onMonitorChanged(): void {
    if (this.streamed !== null) {
      this.keep(this.streamed);
    }
    this.updatePoll();
    this.changes.emit();
  }

  /** Request samples while one is wanted and the stream delivers none. */
  private updatePoll(): void {
    if (!this.wanted || this.streamed !== null) {
      this.poll.stop();
    } else if (!this.poll.isRunning) {
      this.poll.start();
    }
  }

  /** Keep the result of a request. Return the milliseconds until the next one. */
  private handleResult(result: Result<Sample>): number {
    const sample = result.kind === 'ok' ? result.value : null;
    this.keep(sample); // After a failure, the previous sample would be outdated.
    this.changes.emit();
    if (result.kind === 'absent' || result.kind === 'foreign') {
      return ABSENT_MS;
    }
    return (sample?.gpus.length ?? 0) > 0 ? SAMPLE_POLL_MS : RETRY_MS;
  }

  private keep(sample: Sample | null): void {
    this.requested = sample;
    this.received = this.clock.now();
  }
}
