import { DisposableDelegate, type IDisposable } from '@lumino/disposable';
import { Poll } from '@lumino/polling';
import { Signal, type ISignal } from '@lumino/signaling';

import type { Clock } from '../clock';
import type { Fresh } from '../freshness';
import { CancelablePoll } from '../cancelablePoll';
import type { Result } from '../server/result';
import type { ServerClient } from '../server/serverClient';
import type { ClusterSnapshot } from '../../wire/wire';

/** Seconds until the next request after a failed one. */
const RETRY_S = 5;
/** Minimum seconds between two requests. */
const MIN_INTERVAL_S = 1;
/** A snapshot is old if the next one is late by more than this, for example because no view was visible. */
const GRACE_MS = 5000;

/** The newest snapshot, or why there is no current one: a request failed, or the server's own query did. */
export type ClusterData = Fresh<
  ClusterSnapshot,
  { readonly failure: string | null; readonly problem: string | null }
>;

/** The parts of a `ClusterModel` that views use. */
export type ICluster = Pick<ClusterModel, 'changed' | 'data' | 'addView' | 'wake'>;

/** The newest snapshot of the cluster. It is requested repeatedly, but only while a view is visible. */
export class ClusterModel {
  /** After a failure, the previous snapshot stays. */
  private snapshot: ClusterSnapshot | null = null;
  /** Why the last request failed; null if it succeeded. */
  private failure: string | null = null;
  private readonly views = new Set<() => boolean>();
  /** When the next snapshot is due, in milliseconds of the clock. */
  private due = -Infinity;
  /** The timer that tells the views that the snapshot has become old. */
  private overdue: number | null = null;
  private readonly poll: CancelablePoll<Result<ClusterSnapshot>>;
  private readonly changes = new Signal<this, void>(this);

  constructor(
    server: Pick<ServerClient, 'cluster'>,
    private readonly clock: Clock
  ) {
    this.poll = new CancelablePoll(
      signal => server.cluster(signal),
      result => this.handleResult(result)
    );
  }

  /** Emitted after a response or a failure, and when the snapshot has become old. */
  get changed(): ISignal<unknown, void> {
    return this.changes;
  }

  /** The newest snapshot. */
  get data(): ClusterData {
    const { snapshot, failure } = this;
    if (snapshot === null) {
      return { kind: 'none', reason: { failure, problem: null } };
    }
    const { problem } = snapshot;
    const isOverdue = this.clock.now() >= this.due + GRACE_MS;
    return failure === null && problem === null && !isOverdue
      ? { kind: 'live', value: snapshot }
      : { kind: 'stale', value: snapshot, reason: { failure, problem } };
  }

  /** Add a view. `isVisible` returns whether the view is visible now. Dispose of the result to remove it. */
  addView(isVisible: () => boolean): IDisposable {
    this.views.add(isVisible);
    return new DisposableDelegate(() => {
      this.views.delete(isVisible);
      this.wake();
    });
  }

  /** Request snapshots while a view is visible. Views call this when they are shown or hidden. */
  wake(): void {
    if (!this.isVisible) {
      this.poll.stop();
    } else if (!this.poll.isRunning) {
      this.poll.start(Math.max(0, this.due - this.clock.now()));
    }
    this.setOverdueTimer();
  }

  private setOverdueTimer(): void {
    if (this.overdue !== null) {
      this.clock.cancel(this.overdue);
      this.overdue = null;
    }
    const milliseconds = this.due + GRACE_MS - this.clock.now();
    if (this.isVisible && milliseconds > 0) {
      this.overdue = this.clock.after(milliseconds, () => {
        this.changes.emit();
      });
    }
  }

  private get isVisible(): boolean {
    return [...this.views].some(isVisible => isVisible());
  }

  private handleResult(result: Result<ClusterSnapshot>): number {
    let seconds = RETRY_S;
    if (result.kind === 'ok') {
      this.snapshot = result.value;
      this.failure = null;
      seconds = Math.max(MIN_INTERVAL_S, result.value.interval_s);
    } else {
      this.failure = result.reason;
    }
    this.due = this.clock.now() + 1000 * seconds;
    this.changes.emit();
    this.setOverdueTimer();
    return this.isVisible ? 1000 * seconds : Poll.NEVER;
  }
}
