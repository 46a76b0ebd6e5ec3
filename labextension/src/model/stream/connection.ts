import { Signal, type ISignal } from '@lumino/signaling';

import type { Clock } from '../clock';
import type { ActivityRequest, RateRequest, ReceivedMessage, Sample } from '../../wire/wire';
import { applyChanges, parseStreamMessage } from '../../wire/streamMessages';

const FIRST_RETRY_MS = 500;
const MAX_RETRY_MS = 10_000;
/** Time until the next attempt if the server limits the number of connections or of messages. */
const LIMIT_RETRY_MS = 30_000;
/** HTTP status of a server that has too many clients. */
const TOO_MANY_REQUESTS = 429;
/**
 * HTTP statuses that only gpuwidget sends: it would accept a websocket, or it has less history than requested. Any
 * other status may come from a proxy, such as that of a JupyterHub whose server is stopped (424).
 */
const ANSWERS: readonly (number | null)[] = [426, 400];
/** Close code of a server that has received too many messages from this page. */
const POLICY_VIOLATION = 1008;
/** Timeout of a status request. On a dead connection it would otherwise be pending for minutes. */
const STATUS_TIMEOUT_MS = 10_000;
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

/** The part of a WebSocket that is used here. */
export type Socket = Pick<WebSocket, 'onmessage' | 'onclose' | 'close' | 'send'>;

/** The part of the server that a `Connection` uses. */
export interface StreamServer {
  /** Open the websocket. */
  stream(): Socket;
  /**
   * Return the HTTP status of a request that opens no websocket: it may explain why a websocket failed, which a
   * browser does not report. Rejects if the server is unreachable.
   */
  status(): Promise<number>;
}

/**
 * The connection for the stream of samples. It opens the websocket on `start()` and reopens it after each
 * failure until `stop()`.
 */
export class Connection {
  private currentState: ConnectionState = 'off';
  private socket: Socket | null = null;
  /** The timer of the next attempt, or of the handshake while a websocket is opening. */
  private timer: number | null = null;
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
    private readonly server: StreamServer,
    private readonly clock: Clock,
    private readonly random: () => number
  ) {}

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
    if (code === POLICY_VIOLATION && this.currentState === 'open') {
      this.scheduleRetry(LIMIT_RETRY_MS);
      this.setState('limited');
      return;
    }
    const wait = Math.min(MAX_RETRY_MS, FIRST_RETRY_MS * 2 ** this.attempts);
    this.attempts++;
    this.scheduleRetry(wait);
    if (this.currentState === 'open') {
      this.setState('lost');
    }
  }

  /** Schedule the next attempt. This is done before listeners learn the state, as one of them may stop the stream. */
  private scheduleRetry(wait: number): void {
    // Add random jitter, so that the open pages do not all reconnect at the same time when the server becomes
    // reachable again.
    this.timer = this.clock.after(wait * (0.5 + this.random() / 2), () => {
      void this.retry();
    });
  }

  private async retry(): Promise<void> {
    // The timer's id identifies this attempt: `stop()` clears it, and a later attempt has another one.
    const attempt = this.timer;
    const status = await this.requestStatus();
    if (attempt === null || this.timer !== attempt) {
      return;
    }
    // An attempt that failed while the server was unreachable does not show that a proxy blocks websockets.
    this.unexplained = ANSWERS.includes(status) ? this.unexplained + 1 : 0;
    if (status === TOO_MANY_REQUESTS) {
      this.attempts = 0;
      this.scheduleRetry(LIMIT_RETRY_MS);
      this.setState('full');
      return;
    }
    this.setState(this.stateFor(status));
    if (this.timer === attempt) {
      this.open();
    }
  }

  private requestStatus(): Promise<number | null> {
    return new Promise(resolve => {
      const timer = this.clock.after(STATUS_TIMEOUT_MS, () => {
        resolve(null);
      });
      void this.server
        .status()
        .catch(() => null)
        .then(status => {
          this.clock.cancel(timer);
          resolve(status);
        });
    });
  }

  private stateFor(status: number | null): ConnectionState {
    if (status === 404) {
      return 'absent';
    }
    if (status === 401 || status === 403) {
      return 'refused';
    }
    return this.unexplained > MAX_UNEXPLAINED_FAILURES ? 'blocked' : 'lost';
  }

  private cancelTimer(): void {
    if (this.timer !== null) {
      this.clock.cancel(this.timer);
      this.timer = null;
    }
  }

  private release(): void {
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
