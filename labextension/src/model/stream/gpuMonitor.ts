import { Signal, type ISignal } from '@lumino/signaling';

import type { Connection, ConnectionState } from './connection';
import type { ActiveKernel } from '../kernel/activeKernel';
import { KernelActivities } from '../kernel/kernelActivity';
import type { Outage, StreamData, StreamModel } from './streamModel';
import { CancelablePoll } from '../cancelablePoll';
import type { Clock } from '../clock';
import type { Fresh } from '../freshness';
import type { IMonitor } from '../../tokens';
import type { ReceivedMessage } from '../../wire/wire';

/** After this many seconds without a sample the views report that the server is silent. */
const SILENT_S = 3;
/**
 * After this many seconds without a message, the websocket may be dead although it was never closed, for
 * example because the computer was suspended.
 */
const DEAD_S = 15;
/** Minimum seconds between two restarts of a silent stream. */
const RESTART_S = 30;
const CHECK_MS = 1000;
/**
 * Minimum time between two updates of the views: nobody can read faster changes, and each update costs a
 * layout.
 */
const UPDATE_MS = 450;
/** With more GPUs than this, users read the values one after another, so the views are updated less often. */
const MANY_GPUS = 4;
const UPDATE_MANY_MS = 900;

/**
 * The live data that the views display. Keeps the stream open while at least one view or the alerts need it.
 */
export class GpuMonitor implements IMonitor {
  readonly activities: KernelActivities;
  private panelVisible = false;
  /** Who needs samples without a visible view. */
  private readonly backgroundUsers = new Set<object>();
  private readonly visibleDashboards = new Set<object>();
  private minInterval = 0;
  private lastMessage = NaN;
  private silentSince = NaN;
  private lastRestart = -Infinity;
  private sampled = false;
  /** Whether new data about the holders of memory has arrived and the views have not been notified yet. */
  private usagePending = false;
  private lastUpdate = -Infinity;
  private readonly check = new CancelablePoll(
    () => Promise.resolve(),
    () => this.checkSilence()
  );
  private readonly changes = new Signal<this, void>(this);

  constructor(
    readonly model: StreamModel,
    readonly kernels: ActiveKernel,
    private readonly connection: Connection,
    private readonly clock: Clock
  ) {
    this.activities = new KernelActivities(clock);
    connection.received.connect(this.handleMessage, this);
    connection.changed.connect(this.notify, this);
  }

  get changed(): ISignal<this, void> {
    return this.changes;
  }

  get connectionState(): ConnectionState {
    return this.connection.state;
  }

  get data(): Fresh<StreamData, Outage> {
    const { model, silentFor: seconds, connectionState: link, sampled: hasSample } = this;
    const reason = { link, seconds, hasSample };
    if (!model.hasSample()) {
      return { kind: 'none', reason };
    }
    return link === 'open' && hasSample && seconds === null
      ? { kind: 'live', value: model }
      : { kind: 'stale', value: model, reason };
  }

  /** Seconds since the last sample or since the stream was opened; null while samples arrive. */
  private get silentFor(): number | null {
    const seconds = (this.clock.now() - this.silentSince) / 1000;
    const limit = Math.max(SILENT_S, 3 * (this.model.server?.interval ?? 0));
    const expected = this.connectionState === 'open' || this.connectionState === 'opening';
    return expected && seconds > limit ? seconds : null;
  }

  get received(): ISignal<unknown, ReceivedMessage> {
    return this.connection.received;
  }

  setPanelVisible(visible: boolean): void {
    if (visible === this.panelVisible) {
      return;
    }
    this.panelVisible = visible;
    if (visible) {
      this.silentSince = this.clock.now();
    }
    this.kernels.setPanelVisible(visible);
    this.updateStream();
  }

  setBackground(user: object, wanted: boolean): void {
    if (wanted) {
      this.backgroundUsers.add(user);
    } else {
      this.backgroundUsers.delete(user);
    }
    this.updateStream();
  }

  hasOtherUsers(user: object): boolean {
    const others = [...this.backgroundUsers].filter(each => each !== user);
    return this.panelVisible || this.visibleDashboards.size > 0 || others.length > 0;
  }

  setDashboardVisible(dashboard: object, visible: boolean): void {
    if (visible) {
      this.visibleDashboards.add(dashboard);
    } else {
      this.visibleDashboards.delete(dashboard);
    }
    this.connection.setActivity(this.visibleDashboards.size > 0);
    this.updateInterval();
    this.updateStream();
  }

  setHistorySeconds(seconds: number): void {
    if (seconds !== this.model.seconds) {
      this.model.seconds = seconds;
      this.connection.restart();
    }
  }

  setSampleInterval(seconds: number): void {
    this.minInterval = seconds;
    this.updateInterval();
    this.notify();
  }

  /**
   * Update the minimum interval between samples. It is 0 while a dashboard is visible, because a dashboard
   * displays the minimum and maximum of all samples.
   */
  private updateInterval(): void {
    const seconds = this.visibleDashboards.size > 0 ? 0 : this.minInterval;
    this.model.setMinInterval(seconds);
    this.connection.setInterval(seconds);
  }

  /** Open the stream if it is needed, otherwise close it. */
  private updateStream(): void {
    const wanted = this.panelVisible || this.backgroundUsers.size > 0 || this.visibleDashboards.size > 0;
    if (wanted === this.check.isRunning) {
      return;
    }
    if (wanted) {
      this.lastMessage = this.silentSince = this.clock.now();
      this.check.start(CHECK_MS);
      this.connection.start();
    } else {
      this.check.stop();
      this.connection.stop();
      this.model.usage = null; // It would be hours old by the time that someone asks for it.
    }
  }

  private handleMessage(_: Connection, message: ReceivedMessage): void {
    this.lastMessage = this.clock.now();
    if (message.type === 'usage') {
      this.activities.receive(message);
      const first = this.model.usage === null;
      this.model.take(message);
      // The views display this data together with the next sample, so that the page is painted only once.
      this.usagePending = true;
      if (first) {
        this.notify();
      }
      return;
    }
    if (message.type === 'always_on') {
      this.model.take(message);
      this.notify();
      return;
    }
    const first = message.type === 'hello' && this.lastRestart < this.silentSince;
    this.sampled = message.type === 'sample' || message.sample !== null;
    if (this.sampled || first) {
      this.silentSince = this.lastMessage;
    }
    this.model.take(message);
    const many = (this.model.sample?.gpus.length ?? 0) > MANY_GPUS;
    const minimum = many ? UPDATE_MANY_MS : UPDATE_MS;
    if (message.type === 'hello' || this.lastMessage - this.lastUpdate >= minimum) {
      this.notify();
    }
  }

  private checkSilence(): number {
    if (this.silentFor !== null) {
      this.restartIfDead();
      this.notify();
    } else if (this.usagePending) {
      this.notify();
    }
    return CHECK_MS;
  }

  private restartIfDead(): void {
    const now = this.clock.now();
    const limit = Math.max(DEAD_S, 5 * (this.model.server?.interval ?? 0));
    const dead = this.connectionState === 'open' && now - this.lastMessage > 1000 * limit;
    if (dead && now - this.lastRestart > 1000 * RESTART_S) {
      this.lastRestart = now;
      this.connection.restart();
    }
  }

  private notify(): void {
    this.lastUpdate = this.clock.now();
    this.usagePending = false;
    this.changes.emit();
  }
}
