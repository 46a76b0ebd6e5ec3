import { Poll } from '@lumino/polling';
import { Signal, type ISignal } from '@lumino/signaling';

import type { Clock } from '../clock';
import { CancelablePoll } from '../cancelablePoll';
import type { Result } from '../server/result';
import type { ServerClient, Socket } from '../server/serverClient';
import type { ActivityRequest, RateRequest, ReceivedMessage, Sample } from '../../wire/wire';
import { applyChanges, parseStreamMessage } from '../../wire/streamMessages';

const FIRST_RETRY_MS = 500;
const MAX_RETRY_MS = 10_000;
/** Time until the next attempt if the server limits the number of connections or of messages. */
const LIMIT_RETRY_MS = 30_000;
/** Close code of a server that has received too many messages from this page. */
const POLICY_VIOLATION = 1008;
/** Timeout of the websocket's handshake, since a proxy may accept a websocket and never complete it. */
const HANDSHAKE_TIMEOUT_MS = 15_000;
/**
 * If more attempts than this fail while gpuwidget answers, something between the page and the server is
 * assumed to block websockets.
 */
const MAX_UNEXPLAINED_FAILURES = 3;
/** After an unreadable message, the next attempt waits as long as after this many failed ones. */
const ATTEMPTS_AFTER_UNREADABLE = 2;

/**
 * The state of the connection to the server:
 *
 * `off`: no connection is wanted. `opening`: the first attempt is being made. `open`: samples arrive. `lost`:
 * the connection was open and is being retried. `absent`: the server extension is not enabled. `refused`: the
 * login has expired. `full`: the server has too many clients. `limited`: the server has received too many
 * messages from this page. `blocked`: the server responds, but websockets do not get through. `foreign`: the
 * server has another version of gpuwidget.
 */
export type ConnectionState =
  'off' | 'opening' | 'open' | 'lost' | 'absent' | 'refused' | 'full' | 'limited' | 'blocked' | 'foreign';

/**
 * The connection for the stream of samples. It opens the websocket on `start()` and reopens it after each
 * failure until `stop()`.
 */
export class Connection {
  private currentState: ConnectionState = 'off';
  private socket: Socket | null = null;
  /** The timer of the handshake while a websocket is opening. */
  private timer: number | null = null;
  /** Finds out why the websocket has closed, and opens the next one. */
  private readonly retry: CancelablePoll<Result<null>>;
  private attempts = 0;
  /** Number of consecutive attempts that failed although gpuwidget answered. */
  private unexplained = 0;
  private wantsActivity = false;
  private minInterval = 0;
  private readonly stateChanges = new Signal<this, ConnectionState>(this);
  /** The newest sample of this websocket, to which the next `changes` message is relative. */
  private sample: Sample | null = null;
  private readonly messages = new Signal<this, ReceivedMessage>(this);

  constructor(
    private readonly server: Pick<ServerClient, 'stream' | 'probe'>,
    private readonly clock: Clock,
    private readonly random: () => number
  ) {
    this.retry = new CancelablePoll(
      signal => server.probe(signal),
      result => this.handleProbe(result)
    );
  }

  /** The current state. */
  get state(): ConnectionState {
    return this.currentState;
  }

  /** Emitted when the state changes. */
  get changed(): ISignal<this, ConnectionState> {
    return this.stateChanges;
  }

  /**
   * Emitted for every message of the stream. `changes` messages are already applied, so every sample is
   * complete.
   */
  get received(): ISignal<this, ReceivedMessage> {
    return this.messages;
  }

  /** Open the stream. */
  start(): void {
    if (this.currentState === 'off') {
      this.attempts = this.unexplained = 0;
      this.open();
      this.setState('opening');
    }
  }

  /** Close the stream and cancel all timers. */
  stop(): void {
    this.release();
    this.setState('off');
  }

  /** Reopen the stream if it has been started, for example after a change of its parameters. */
  restart(): void {
    if (this.currentState !== 'off') {
      this.stop();
      this.start();
    }
  }

  /** Set whether the server should read the hardware counters for this client. */
  setActivity(wanted: boolean): void {
    if (wanted !== this.wantsActivity) {
      this.wantsActivity = wanted;
      if (this.currentState === 'open') {
        this.sendActivity();
      }
    }
  }

  /** Set the minimum number of seconds between two samples; 0 uses the server's own rate. */
  setInterval(seconds: number): void {
    if (seconds !== this.minInterval) {
      this.minInterval = seconds;
      if (this.currentState === 'open') {
        this.sendInterval();
      }
    }
  }

  private sendActivity(): void {
    const request: ActivityRequest = { type: 'activity', wanted: this.wantsActivity };
    this.socket?.send(JSON.stringify(request));
  }

  private sendInterval(): void {
    const request: RateRequest = { type: 'rate', interval_s: this.minInterval };
    this.socket?.send(JSON.stringify(request));
  }

  private open(): void {
    this.sample = null;
    const socket = this.server.stream();
    this.socket = socket;
    socket.onmessage = event => {
      this.handleMessage(event.data);
    };
    socket.onclose = event => {
      this.handleClose(event.code);
    };
    this.timer = this.clock.after(HANDSHAKE_TIMEOUT_MS, () => {
      this.release();
      this.handleClose();
    });
  }

  private handleMessage(data: unknown): void {
    const message = parseStreamMessage(data);
    if (message === null) {
      this.handleUnreadable();
    } else if (message.type === 'hello') {
      this.cancelTimer();
      this.attempts = this.unexplained = 0;
      this.sample = message.sample;
      if (this.wantsActivity) {
        this.sendActivity();
      }
      if (this.minInterval > 0) {
        this.sendInterval();
      }
      const { socket } = this;
      this.messages.emit(message);
      if (this.socket === socket) {
        this.setState('open'); // No listener has stopped or restarted the stream.
      }
    } else if (message.type === 'changes') {
      if (this.sample !== null) {
        this.sample = applyChanges(this.sample, message);
        if (this.sample === null) {
          this.handleUnreadable();
        } else {
          this.messages.emit({ type: 'sample', sample: this.sample });
        }
      }
    } else {
      if (message.type === 'sample') {
        this.sample = message.sample;
      }
      this.messages.emit(message);
    }
  }

  /**
   * Handle a message that this page cannot read. If it is the first message, the server has another version of
   * gpuwidget. Otherwise, the following changes would apply to an unknown sample, so the stream is reopened.
   */
  private handleUnreadable(): void {
    this.release();
    if (this.currentState === 'open') {
      this.attempts = ATTEMPTS_AFTER_UNREADABLE;
      this.handleClose();
    } else {
      this.setState('foreign');
    }
  }

  private handleClose(code?: number): void {
    this.cancelTimer();
    this.socket = null;
    // Before the stream is open, this page has sent no messages: a proxy must have closed the websocket.
    const isLimited = code === POLICY_VIOLATION && this.currentState === 'open';
    const wait = isLimited ? LIMIT_RETRY_MS : Math.min(MAX_RETRY_MS, FIRST_RETRY_MS * 2 ** this.attempts++);
    if (this.currentState === 'open') {
      this.setState(isLimited ? 'limited' : 'lost');
    }
    if (this.needsSocket) {
      this.retry.start(this.withJitter(wait));
    }
  }

  /** Whether the stream has no websocket, and no listener has stopped or restarted it meanwhile. */
  private get needsSocket(): boolean {
    return this.currentState !== 'off' && this.socket === null;
  }

  /** Return a random part of a time, so that the open pages do not all reconnect to a restarted server at once. */
  private withJitter(milliseconds: number): number {
    return milliseconds * (0.5 + this.random() / 2);
  }

  /** Open the next websocket, unless the server has too many clients. */
  private handleProbe({ kind }: Result<null>): number {
    // An attempt that failed while the server was unreachable does not show that a proxy blocks websockets.
    this.unexplained = kind === 'ok' ? this.unexplained + 1 : 0;
    if (kind === 'busy') {
      this.attempts = 0;
      this.setState('full');
      return this.withJitter(LIMIT_RETRY_MS);
    }
    const isBlocked = this.unexplained > MAX_UNEXPLAINED_FAILURES;
    this.setState(kind === 'absent' || kind === 'refused' ? kind : isBlocked ? 'blocked' : 'lost');
    if (this.needsSocket) {
      this.open();
    }
    return Poll.NEVER;
  }

  private cancelTimer(): void {
    if (this.timer !== null) {
      this.clock.cancel(this.timer);
      this.timer = null;
    }
  }

  private release(): void {
    this.retry.stop();
    this.cancelTimer();
    if (this.socket !== null) {
      this.socket.onmessage = null;
      this.socket.onclose = null;
      this.socket.close();
      this.socket = null;
    }
  }

  private setState(state: ConnectionState): void {
    if (state !== this.currentState) {
      this.currentState = state;
      this.stateChanges.emit(state);
    }
  }
}
