import { Signal, type ISignal } from '@lumino/signaling';

import type { Timers } from '../timers';
import {
  STREAM_SCHEMA,
  type ActivityRequest,
  type SampleChanges,
  type RateRequest,
  type ReceivedMessage,
  type Sample,
  type StreamMessage
} from '../wire';

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;
/** A connection that is dead without a close would leave a request waiting for minutes. */
const STATUS_WITHIN_MS = 10_000;

/**
 * How it stands with the server:
 * `off` nobody looks, `opening` not yet, `open` samples come, `lost` it was there and is tried again,
 * `absent` its extension is not enabled, `refused` the login is over, `blocked` it answers but a websocket does
 * not come through, `foreign` it speaks another version.
 */
export type Link = 'off' | 'opening' | 'open' | 'lost' | 'absent' | 'refused' | 'blocked' | 'foreign';

/** What is needed of a WebSocket. */
export type Socket = Pick<WebSocket, 'onmessage' | 'onclose' | 'close' | 'send'>;

/** How the server is reached. */
export interface Server {
  /** Open the stream. */
  stream(): Socket;
  /** The HTTP status of a route beside it: a browser hides why a websocket failed. Rejects when unreachable. */
  status(): Promise<number>;
}

/** The stream of samples: opened while somebody looks, opened again when it broke off. */
export class Connection {
  private link: Link = 'off';
  private socket: Socket | null = null;
  private timer: number | null = null;
  private attempts = 0;
  private activity = false;
  private interval = 0;
  private readonly stateChanges = new Signal<this, Link>(this);
  /** The newest sample of this stream, which the next message may change. */
  private sample: Sample | null = null;
  private readonly messages = new Signal<this, ReceivedMessage>(this);

  constructor(
    private readonly server: Server,
    private readonly timers: Timers,
    private readonly random: () => number
  ) {}

  /** How it stands with the server. */
  get state(): Link {
    return this.link;
  }

  /** Emitted when that changes. */
  get changed(): ISignal<this, Link> {
    return this.stateChanges;
  }

  /** Every message of the stream, with changes applied: samples are whole. */
  get received(): ISignal<this, ReceivedMessage> {
    return this.messages;
  }

  /** Somebody looks: open the stream. */
  start(): void {
    if (this.link === 'off') {
      this.attempts = 0;
      this.become('opening');
      this.open();
    }
  }

  /** Nobody looks: close it, and forget every timer. */
  stop(): void {
    this.release();
    this.become('off');
  }

  /** Close it and open it anew, as after a change of what is asked for. */
  restart(): void {
    if (this.link !== 'off') {
      this.stop();
      this.start();
    }
  }

  /** Whether somebody looks at the hardware's counters: the server reads them only then. */
  wantActivity(wanted: boolean): void {
    if (wanted !== this.activity) {
      this.activity = wanted;
      if (this.link === 'open') {
        this.sayActivity();
      }
    }
  }

  /** So many seconds are to lie between two samples at least; 0 for as few as the server's. */
  wantInterval(seconds: number): void {
    if (seconds !== this.interval) {
      this.interval = seconds;
      if (this.link === 'open') {
        this.sayInterval();
      }
    }
  }

  private sayActivity(): void {
    const request: ActivityRequest = { type: 'activity', wanted: this.activity };
    this.socket?.send(JSON.stringify(request));
  }

  private sayInterval(): void {
    const request: RateRequest = { type: 'rate', interval_s: this.interval };
    this.socket?.send(JSON.stringify(request));
  }

  private open(): void {
    this.timer = null;
    this.sample = null;
    const socket = this.server.stream();
    this.socket = socket;
    socket.onmessage = event => {
      this.read(event.data);
    };
    socket.onclose = () => {
      this.closed();
    };
  }

  private read(data: unknown): void {
    const message = JSON.parse(String(data)) as StreamMessage;
    if (message.type === 'hello') {
      if (message.schema !== STREAM_SCHEMA) {
        this.release();
        this.become('foreign');
        return;
      }
      this.attempts = 0;
      this.sample = message.sample;
      if (this.activity) {
        this.sayActivity();
      }
      if (this.interval > 0) {
        this.sayInterval();
      }
      this.messages.emit(message);
      this.become('open');
    } else if (message.type === 'changes') {
      if (this.sample !== null) {
        this.sample = applyChanges(this.sample, message);
        this.messages.emit({ type: 'sample', sample: this.sample });
      }
    } else {
      if (message.type === 'sample') {
        this.sample = message.sample;
      }
      this.messages.emit(message);
    }
  }

  private closed(): void {
    this.socket = null;
    if (this.link === 'open') {
      this.become('lost');
    }
    const wait = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** this.attempts);
    this.attempts++;
    // Spread, so that a server that comes back does not meet all its tabs at once.
    this.timer = this.timers.after(wait * (0.5 + this.random() / 2), () => {
      void this.retry();
    });
  }

  private async retry(): Promise<void> {
    // The timer's own number marks this attempt: stop() in between makes it another's.
    const mine = this.timer;
    const answer = await this.status();
    if (mine === null || this.timer !== mine) {
      return;
    }
    this.become(this.meaning(answer));
    this.open();
  }

  private status(): Promise<number | null> {
    return new Promise(resolve => {
      const timer = this.timers.after(STATUS_WITHIN_MS, () => {
        resolve(null);
      });
      void this.server
        .status()
        .catch(() => null)
        .then(status => {
          this.timers.cancel(timer);
          resolve(status);
        });
    });
  }

  private meaning(status: number | null): Link {
    if (status === 404) {
      return 'absent';
    }
    if (status === 401 || status === 403) {
      return 'refused';
    }
    // The server is back and the stream has failed more than once since: it is what stands between.
    if (status !== null && status < 500 && this.attempts > 3) {
      return 'blocked';
    }
    return 'lost';
  }

  private release(): void {
    if (this.timer !== null) {
      this.timers.cancel(this.timer);
      this.timer = null;
    }
    if (this.socket !== null) {
      this.socket.onmessage = null;
      this.socket.onclose = null;
      this.socket.close();
      this.socket = null;
    }
  }

  private become(link: Link): void {
    if (link !== this.link) {
      this.link = link;
      this.stateChanges.emit(link);
    }
  }
}

function applyChanges(before: Sample, { time, readings: changes }: SampleChanges): Sample {
  const readings = before.readings.map((reading, index) => ({ ...reading, ...changes[index] }));
  return { ...before, time, readings };
}
