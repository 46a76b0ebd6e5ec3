import { Poll } from '@lumino/polling';

/**
 * Repeats an action, such as a request. The time until the next one depends on the last result. After `stop()`,
 * there is no action, no pending request and no late result.
 */
export class CancelablePoll<Value> {
  private pending = new AbortController();
  private readonly poll: Poll<void>;

  /** `handle` returns the milliseconds until the next action; `Poll.NEVER` if there should be none. */
  constructor(act: (signal: AbortSignal) => Promise<Value>, handle: (value: Value) => number) {
    this.poll = new Poll({
      auto: false,
      // In Lumino's standby, a poll keeps its timer. The owners start and stop this poll instead.
      standby: 'never',
      factory: async () => {
        const { signal } = (this.pending = new AbortController());
        const value = await act(signal);
        if (!signal.aborted) {
          this.poll.frequency = { backoff: false, interval: handle(value), max: Poll.NEVER };
        }
      }
    });
  }

  /** Whether an action is pending or scheduled. */
  get isRunning(): boolean {
    return this.poll.state.interval !== Poll.NEVER;
  }

  /** Act after `milliseconds`, in place of the action that is pending or scheduled. */
  start(milliseconds = 0): void {
    this.pending.abort();
    void this.poll.schedule({ interval: milliseconds, phase: 'started' });
  }

  /** Cancel the action that is pending or scheduled. */
  stop(): void {
    this.pending.abort();
    void this.poll.stop();
  }
}
