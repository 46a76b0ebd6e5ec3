import { Signal, type ISignal } from '@lumino/signaling';

import type { Clock } from '../clock';
import type { ServerClient } from '../server/serverClient';
import type { MetricHistory, Sample } from '../../wire/wire';
import type { TimeRange } from './dashboardState';
import type { MetricName } from '../../wire/metricTable';
import { TimeSeries } from './timeSeries';

const RETRY_MS = 5000;
/**
 * If another part of the history is wanted while a request is pending, the pending request may take this
 * much longer. After that time, it is aborted, and the other part is requested.
 */
const REQUEST_TIMEOUT_MS = 10_000;
/** Maximum number of the stream's samples that are kept while a request is pending. */
const MAX_PENDING = 1000;
/** Minimum time between two requests for a live part of the history that no stream continues. */
const MIN_RELOAD_MS = 5000;
const SPARE_CAPACITY = 64;

/** A request for a part of the history: either the last `seconds` or a fixed time range. */
export interface LoadRequest {
  readonly span: { readonly seconds: number } | TimeRange;
  readonly metrics: readonly MetricName[];
  /** Maximum number of steps. */
  readonly points: number;
  /** Name of a machine of the cluster; null for the server's own machine. */
  readonly node: string | null;
  /**
   * Whether the samples of the stream are appended to the last `seconds`. Otherwise, these are loaded again
   * after each step.
   */
  readonly streams: boolean;
}

/** Loads the displayed part of the history from the server and appends the samples of the stream to it. */
export class HistoryLoader {
  private current: TimeSeries | null = null;
  private wanted: LoadRequest | null = null;
  private pending: AbortController | null = null;
  /** Whether `wanted` has changed since the pending request was sent. */
  private outdated = false;
  private samples: Sample[] = [];
  private error: string | null = null;
  private timer: number | null = null;
  private readonly changes = new Signal<this, void>(this);

  constructor(
    private readonly server: Pick<ServerClient, 'history'>,
    private readonly clock: Clock
  ) {}

  /** Emitted when `series` is replaced or `failure` changes. */
  get changed(): ISignal<this, void> {
    return this.changes;
  }

  /**
   * The history that was loaded last; null before the first response. While a request is pending, it is the
   * result of an earlier request.
   */
  get series(): TimeSeries | null {
    return this.current;
  }

  /** Why the last request failed; null if it succeeded. */
  get failure(): string | null {
    return this.error;
  }

  /**
   * Load a part of the history. Only one request is pending at a time. Of the calls made while it is pending,
   * only the last one leads to a further request.
   */
  load(wanted: LoadRequest): void {
    this.wanted = wanted;
    if (this.pending === null) {
      this.request();
      return;
    }
    this.outdated = true;
    this.timer ??= this.clock.after(REQUEST_TIMEOUT_MS, () => {
      this.request();
    });
  }

  /** Abort the pending request, cancel the timer and drop all data. */
  stop(): void {
    this.cancelTimer();
    this.pending?.abort();
    this.pending = null;
    this.current = this.wanted = this.error = null;
    this.outdated = false;
    this.samples = [];
  }

  /** Append the next sample of the stream to the history, if the history is live. */
  append(sample: Sample): void {
    if (this.wanted === null || !this.wanted.streams || !isLive(this.wanted.span)) {
      return;
    }
    if (this.pending !== null) {
      if (this.samples.length < MAX_PENDING) {
        this.samples.push(sample);
      }
    } else if (this.current?.add(sample, sample.time - this.wanted.span.seconds) === false) {
      this.request();
    }
  }

  private request(): void {
    const { wanted } = this;
    if (wanted === null) {
      return;
    }
    this.cancelTimer();
    this.pending?.abort();
    const request = (this.pending = new AbortController());
    this.outdated = false;
    this.samples = [];
    const { span, metrics, points, node } = wanted;
    const part = isLive(span) ? span : { since: span.from, until: span.to };
    void this.server.history({ part, metrics, points, node }, request.signal).then(result => {
      if (this.pending !== request) {
        return;
      }
      if (result.kind === 'ok') {
        this.handleResponse(result.value, wanted);
      } else {
        this.finish(result.reason);
      }
    });
  }

  private handleResponse(history: MetricHistory, { span, metrics, points }: LoadRequest): void {
    // While the user holds down a key that moves or zooms, show the intermediate ranges; without them,
    // nothing would change until the key is released.
    const isIntermediate = !isLive(span) && this.wanted !== null && !isLive(this.wanted.span);
    if (this.outdated && !isIntermediate) {
      this.request();
      return;
    }
    const series = new TimeSeries(2 * points + SPARE_CAPACITY, metrics);
    series.restart(history);
    for (const sample of this.samples) {
      if (isLive(span) && sample.time > series.newest) {
        series.add(sample, sample.time - span.seconds);
      }
    }
    this.current = series;
    this.finish(null);
  }

  private finish(error: string | null): void {
    this.error = error;
    this.pending = null;
    if (this.outdated) {
      this.request();
    } else {
      this.cancelTimer();
      this.samples = [];
      const pause = error === null ? this.reloadMs : RETRY_MS;
      if (pause !== null) {
        this.timer = this.clock.after(pause, () => {
          this.request();
        });
      }
    }
    this.changes.emit();
  }

  /** Milliseconds until the part is loaded again; null if that is not necessary. */
  private get reloadMs(): number | null {
    return this.wanted === null || this.wanted.streams || !isLive(this.wanted.span)
      ? null
      : Math.max(MIN_RELOAD_MS, 1000 * (this.current?.stepSeconds ?? 0));
  }

  private cancelTimer(): void {
    if (this.timer !== null) {
      this.clock.cancel(this.timer);
      this.timer = null;
    }
  }
}

function isLive(span: LoadRequest['span']): span is { readonly seconds: number } {
  return 'seconds' in span;
}
