import { Signal, type ISignal } from '@lumino/signaling';

import type { Connection, Link } from './connection';
import type { ActiveKernel } from '../kernel/activeKernel';
import type { Model } from './model';
import type { Timers } from '../timers';
import type { ReceivedMessage } from '../wire';

/** So long without a word of the server, and the panel says so. */
const QUIET_S = 3;
/** So long without a word, and the stream may be dead without a close: after sleep, or behind a proxy. */
const DEAD_S = 15;
/** So often at most it is then opened anew. */
const RENEW_S = 30;
/** Nobody reads figures that change more often; the page would be laid out and painted for each. */
const READABLE_MS = 450;
/** Those of more GPUs than these are read one after the other: they stand for a second. */
const AT_A_GLANCE = 4;
const READABLE_OF_MANY_MS = 900;

/** What a view needs: the samples, the kernel of the notebook in front, and a way to say that it looks. */
export class Monitor {
  private looking = false;
  private overhearing = false;
  private readonly dashboards = new Set<object>();
  private wishedInterval = 0;
  private heard = NaN;
  private quietSince = NaN;
  private renewed = -Infinity;
  private sampledSince = false;
  /** Whether it was said who holds what, and nobody was told. */
  private untold = false;
  private told = -Infinity;
  private timer: number | null = null;
  private readonly changes = new Signal<this, void>(this);

  constructor(
    readonly model: Model,
    readonly kernels: ActiveKernel,
    private readonly connection: Connection,
    private readonly timers: Timers
  ) {
    connection.received.connect(this.take, this);
    connection.changed.connect(this.tell, this);
    kernels.changed.connect(this.tell, this);
  }

  /** Emitted when anything shown may have changed. */
  get changed(): ISignal<this, void> {
    return this.changes;
  }

  /** How it stands with the server. */
  get link(): Link {
    return this.connection.state;
  }

  /** Whether a sample has come since the stream was opened. */
  get sampled(): boolean {
    return this.sampledSince;
  }

  /** Seconds since the last sample, or since one was asked for; null while they come. */
  get quietFor(): number | null {
    const seconds = (this.timers.now() - this.quietSince) / 1000;
    const patience = Math.max(QUIET_S, 3 * (this.model.server?.interval ?? 0));
    return (this.link === 'open' || this.link === 'opening') && seconds > patience ? seconds : null;
  }

  /** Every message of the stream, before `changed` is emitted for it. */
  get received(): ISignal<unknown, ReceivedMessage> {
    return this.connection.received;
  }

  /** Whether the panel is looked at; nothing is done while nobody looks at anything. */
  look(looking: boolean): void {
    if (looking === this.looking) {
      return;
    }
    this.looking = looking;
    if (looking) {
      this.quietSince = this.timers.now();
      this.kernels.setPanelVisible(true);
    } else {
      this.kernels.setPanelVisible(false);
    }
    this.settle();
  }

  /** Whether samples are to come though nobody looks; no kernel is asked anything for it. */
  overhear(overhearing: boolean): void {
    this.overhearing = overhearing;
    this.settle();
  }

  /** Whether a dashboard is looked at: it needs the hardware's counters, and asks no kernel. */
  follow(dashboard: object, looking: boolean): void {
    if (looking) {
      this.dashboards.add(dashboard);
    } else {
      this.dashboards.delete(dashboard);
    }
    this.connection.wantActivity(this.dashboards.size > 0);
    this.settlePace();
    this.settle();
  }

  /** Keep so many seconds of the past. */
  keep(seconds: number): void {
    if (seconds !== this.model.seconds) {
      this.model.seconds = seconds;
      this.connection.restart();
    }
  }

  /** Have so many seconds from one sample to the next, as the server's own are the least. */
  pace(seconds: number): void {
    this.wishedInterval = seconds;
    this.settlePace();
    this.tell();
  }

  /** A dashboard tells the highest and the lowest of all: it has every sample. */
  private settlePace(): void {
    const seconds = this.dashboards.size > 0 ? 0 : this.wishedInterval;
    this.model.pace(seconds);
    this.connection.wantInterval(seconds);
  }

  /** Have the stream open while there is a reason to. */
  private settle(): void {
    const wanted = this.looking || this.overhearing || this.dashboards.size > 0;
    if (wanted === (this.timer !== null)) {
      return;
    }
    if (wanted) {
      this.heard = this.quietSince = this.timers.now();
      this.connection.start();
      this.listen();
    } else if (this.timer !== null) {
      this.timers.cancel(this.timer);
      this.timer = null;
      this.connection.stop();
    }
  }

  private take(_: Connection, message: ReceivedMessage): void {
    this.heard = this.timers.now();
    if (message.type === 'usage') {
      const first = this.model.usage === null;
      this.model.take(message);
      // Written with the next sample: the page is painted once for both. A view that has none yet waits for it.
      this.untold = true;
      if (first) {
        this.tell();
      }
      return;
    }
    const first = message.type === 'hello' && this.renewed < this.quietSince;
    this.sampledSince = message.type === 'sample' || message.sample !== null;
    if (this.sampledSince || first) {
      this.quietSince = this.heard;
    }
    this.model.take(message);
    const many = (this.model.sample?.gpus.length ?? 0) > AT_A_GLANCE;
    const readable = many ? READABLE_OF_MANY_MS : READABLE_MS;
    if (message.type === 'hello' || this.heard - this.told >= readable) {
      this.tell();
    }
  }

  /** Look once a second whether the stream has fallen silent. */
  private listen(): void {
    this.timer = this.timers.after(1000, () => {
      if (this.quietFor !== null) {
        this.renewIfDead();
        this.tell();
      } else if (this.untold) {
        this.tell();
      }
      this.listen();
    });
  }

  private renewIfDead(): void {
    const now = this.timers.now();
    const patience = Math.max(DEAD_S, 5 * (this.model.server?.interval ?? 0));
    if (this.link === 'open' && now - this.heard > 1000 * patience && now - this.renewed > 1000 * RENEW_S) {
      this.renewed = now;
      this.connection.restart();
    }
  }

  private tell(): void {
    this.told = this.timers.now();
    this.untold = false;
    this.changes.emit();
  }
}
