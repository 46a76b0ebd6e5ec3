import type { TranslationBundle } from '@jupyterlab/translation';
import { DisposableDelegate, type IDisposable } from '@lumino/disposable';
import { Signal, type ISignal } from '@lumino/signaling';

import type { Clock } from '../clock';
import type { ClusterServer } from '../stream/serverApi';
import { errorText } from '../format';
import {
  amount,
  count,
  each,
  flag,
  known,
  list,
  nullable,
  number,
  object,
  oneOf,
  optionalText,
  orNull,
  parsed,
  text,
  time,
  validItems
} from '../../wire/parsing';
import type { ClusterGpu, ClusterNode, ClusterSnapshot } from '../../wire/wire';

/** Maximum number of GPUs, and of machines, of a cluster. */
const MAX_GPUS = 100_000;
/** Seconds until the next request after a failed one. */
const RETRY_S = 5;
/** Minimum seconds between two requests. */
const MIN_INTERVAL_S = 1;
/** The server answers within a few seconds, even if Prometheus does not. */
const TIMEOUT_MS = 20_000;

/** The newest snapshot of the cluster. It is requested repeatedly, but only while a view is visible. */
export class ClusterModel {
  /** Null before the first response. After a failure, it stays. */
  snapshot: ClusterSnapshot | null = null;
  /** Why the last request failed; null if it succeeded. */
  failure: string | null = null;
  private readonly views = new Set<() => boolean>();
  private pending: AbortController | null = null;
  private timer: number | null = null;
  private readonly changes = new Signal<this, void>(this);

  constructor(
    private readonly trans: TranslationBundle,
    private readonly server: ClusterServer,
    private readonly clock: Clock
  ) {}

  /** Emitted after a response or a failure. */
  get changed(): ISignal<this, void> {
    return this.changes;
  }

  /** Add a view. `isVisible` returns whether the view is visible now. Dispose of the result to remove it. */
  addView(isVisible: () => boolean): IDisposable {
    this.views.add(isVisible);
    return new DisposableDelegate(() => {
      this.views.delete(isVisible);
    });
  }

  /** Request a snapshot if a view is visible and the current one is due. Views call this when shown. */
  wake(): void {
    if (this.timer === null && this.pending === null && [...this.views].some(isVisible => isVisible())) {
      void this.request();
    }
  }

  private async request(): Promise<void> {
    const request = (this.pending = new AbortController());
    const timeout = this.clock.after(TIMEOUT_MS, () => {
      request.abort(new Error(this.trans.__('The server does not answer.')));
    });
    let seconds = RETRY_S;
    try {
      const snapshot = parseSnapshot(await this.server.cluster(request.signal));
      if (snapshot === null) {
        throw new Error(
          this.trans.__('The server and this page have different versions of gpuwidget: restart the server.')
        );
      }
      this.snapshot = snapshot;
      this.failure = null;
      seconds = Math.max(MIN_INTERVAL_S, snapshot.interval_s);
    } catch (error) {
      this.failure = errorText(request.signal.aborted ? request.signal.reason : error);
    }
    this.clock.cancel(timeout);
    this.pending = null;
    this.timer = this.clock.after(1000 * seconds, () => {
      this.timer = null;
      this.wake();
    });
    this.changes.emit();
  }
}

const snapshot = object<ClusterSnapshot>({
  time: nullable(time),
  interval_s: known(amount),
  problem: nullable(text),
  nodes: list(object<ClusterNode>({ name: text, up: flag, last_seen: orNull(time) }), MAX_GPUS),
  gpus: list(
    object<ClusterGpu>({
      ...each(text, 'uuid', 'node'),
      index: count,
      ...each(optionalText, 'model', 'mig', 'job'),
      ...each(list(text), 'users', 'notebooks'),
      exporters: validItems(oneOf('gpuwidget', 'dcgm', 'nvidia_gpu')),
      ...each(amount, 'utilization', 'memory_used', 'memory_total', 'power_w', 'power_limit_w', 'idle_s'),
      ...each(count, 'xid', 'ecc_uncorrected'),
      temperature_c: number,
      lost: flag
    }),
    MAX_GPUS
  )
});

/**
 * Return the snapshot; null if the reply does not have its format. Values of an unexpected type are null, which
 * means unknown.
 */
export function parseSnapshot(reply: unknown): ClusterSnapshot | null {
  return parsed(snapshot, reply);
}
