import { Signal, type ISignal } from '@lumino/signaling';

import type { ClusterServer } from '../stream/serverApi';
import { errorText } from '../ui/format';
import type { ClusterSnapshot } from '../wire';

/** Loads the names of the cluster's machines and their GPUs, once for each call of `load`. */
export class ClusterLoader {
  private current: ClusterSnapshot | null = null;
  private error: string | null = null;
  private pending: AbortController | null = null;
  private readonly changes = new Signal<this, void>(this);

  constructor(private readonly server: ClusterServer) {}

  /** Emitted when `snapshot` or `failure` has changed. */
  get changed(): ISignal<this, void> {
    return this.changes;
  }

  /** The snapshot that was loaded last; null before the first response. */
  get snapshot(): ClusterSnapshot | null {
    return this.current;
  }

  /** Why the last request failed; null if it succeeded. */
  get failure(): string | null {
    return this.error;
  }

  /** Load a new snapshot, unless a request is pending. */
  load(): void {
    if (this.pending !== null) {
      return;
    }
    const request = (this.pending = new AbortController());
    void this.server.cluster(request.signal).then(
      snapshot => {
        this.finish(request, snapshot, null);
      },
      (error: unknown) => {
        this.finish(request, this.current, errorText(error));
      }
    );
  }

  /** Abort the pending request. */
  stop(): void {
    this.pending?.abort();
    this.pending = null;
  }

  private finish(request: AbortController, snapshot: ClusterSnapshot | null, error: string | null): void {
    if (this.pending === request) {
      this.pending = null;
      this.current = snapshot;
      this.error = error;
      this.changes.emit();
    }
  }
}
