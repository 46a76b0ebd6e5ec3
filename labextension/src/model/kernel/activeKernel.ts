import { Signal, type ISignal } from '@lumino/signaling';

import type { ActiveNotebook, Kernel, LoadResult, Phase } from './kernel';
import type { ParsedReply } from '../../wire/kernelReply';
import type { Clock } from '../clock';
import { KERNEL_SCHEMA, type KernelRequest, type KernelState } from '../../wire/wire';

/** The interval between queries while the panel is visible, in milliseconds. */
export const POLL_MS = 3000;
/** The interval between queries while a cell runs and only the status item is visible, in milliseconds. */
export const STATUS_POLL_MS = 5000;
/** Maximum time that a kernel may take to reply to a request for a diagnosis of its environment. */
const DIAGNOSIS_TIMEOUT_MS = 75_000;
/**
 * If an idle kernel does not reply to this many consecutive queries, its condition changes from `ready` or
 * `loading` to another one. Fewer missing replies change nothing, because they may be chance.
 */
const MAX_MISSES = 2;

/** What is known about gpuwidget in the kernel of the active notebook. */
export type Condition =
  | { readonly kind: 'no-notebook' | 'no-kernel' }
  | { readonly kind: 'starting' | 'restarting' | 'dead' | 'unreachable' }
  | {
      readonly kind: 'querying' | 'not-loaded' | 'unanswered' | 'loading' | 'not-installed' | 'other-package';
    }
  | { readonly kind: 'not-python'; readonly language: string }
  | { readonly kind: 'other-version'; readonly version: string | null }
  /** gpuwidget was not loaded, because Python would import `path`, which is not an installed package. */
  | { readonly kind: 'refused'; readonly path: string }
  | { readonly kind: 'failed'; readonly reason: string }
  | { readonly kind: 'ready'; readonly state: KernelState };

/**
 * Changes that were requested and to which the kernel has not replied yet. Views show them as applied, so
 * that a control does not jump back to its old value.
 */
export interface RequestedChanges {
  /**
   * The requested default device; null for torch's own default, undefined if no change of the device is
   * pending.
   */
  readonly device: string | null | undefined;
  readonly watching: boolean | undefined;
  /** The requested values, keyed by the name of the switch. */
  readonly switches: ReadonlyMap<string, string>;
}

/** A request that the kernel rejected. */
export interface Rejection {
  readonly ask: KernelRequest['ask'];
  /** The reason, as a sentence to display. */
  readonly reason: string;
}

/** The data about the active notebook and its kernel that views show. */
export interface KernelView {
  readonly notebook: string | null;
  readonly kernel: Kernel | null;
  readonly condition: Condition;
  readonly busy: boolean;
  /**
   * Whether the kernel was restarted while this page was connected. It is false again once the kernel has
   * replied to a requested change.
   */
  readonly restarted: boolean;
  /** Seconds since the last reply of a kernel that has stopped replying; null for any other kernel. */
  readonly silentFor: number | null;
  readonly rejection: Rejection | null;
  readonly requested: RequestedChanges;
}

/** The data about one kernel. They are kept while another notebook is active. */
interface TrackedKernel {
  condition: Condition | null;
  language: string | null;
  /** The kernel's last known phase. */
  phase: Phase | null;
  /** When the kernel last replied, in milliseconds of this page's clock; null if it never did. */
  replied: number | null;
  silent: boolean;
  /** The version of gpuwidget that this page has loaded in the kernel. */
  version: string | null;
  /** Number of consecutive queries without a reply although the kernel was idle. */
  misses: number;
  restarted: boolean;
  rejection: TrackedRejection | null;
  /**
   * The changes that were requested and to which the kernel has not replied yet, keyed by what they change.
   */
  readonly requested: Map<string, ChangeRequest>;
  /**
   * Whether the kernel's notebook contains gpuwidget's name or magic. If so, the kernel is queried for the
   * status item even before a reply has shown that gpuwidget is loaded.
   */
  mentionsGpuwidget: boolean;
  /** The pending query; null if there is none. */
  query: Promise<void> | null;
  /** The pending load; null if there is none. Until it has ended, a missing reply shows nothing. */
  load: Promise<void> | null;
  /** Number of pending requests. */
  inFlight: number;
  /** Whether the kernel's state may have changed since the pending request was sent. */
  stale: boolean;
  /** The promise of the last toggle of cell watching. The next toggle starts after it has resolved. */
  toggle: Promise<void>;
}

type ChangeRequest = Extract<KernelRequest, { ask: 'set_device' | 'watch' | 'set_switch' }>;

/**
 * A rejection, with the kernel's settings at that time. Once the settings differ, the rejection is outdated.
 */
interface TrackedRejection extends Rejection {
  readonly settings: string;
}

const STATE_REQUEST: KernelRequest = { schema: KERNEL_SCHEMA, ask: 'state' };

/**
 * Queries and changes the state of gpuwidget in the active notebook's kernel. Kernels are polled only while a
 * view is visible.
 */
export class ActiveKernel {
  private active: ActiveNotebook = { name: null, kernel: null, phase: null };
  private readonly trackedKernels = new WeakMap<Kernel, TrackedKernel>();
  private timer: number | null = null;
  private panelVisible = false;
  private statusVisible = false;
  private withoutPolling = false;
  private readonly changes = new Signal<this, void>(this);

  constructor(private readonly clock: Clock) {}

  /** Emitted when the view may have changed. */
  get changed(): ISignal<this, void> {
    return this.changes;
  }

  /** The current data about the active notebook and its kernel. */
  get view(): KernelView {
    const { name, kernel, phase } = this.active;
    const tracked = kernel === null ? null : this.tracked(kernel);
    const silent = tracked?.silent === true && tracked.replied !== null;
    return {
      notebook: name,
      kernel,
      condition: this.condition(tracked),
      busy: phase === 'busy',
      restarted: tracked?.restarted ?? false,
      silentFor: silent ? this.secondsSince(tracked.replied) : null,
      rejection: tracked?.rejection ?? null,
      requested: requestedChanges(tracked?.requested.values() ?? [])
    };
  }

  /** The last state that the kernel sent; null unless the kernel is ready. */
  get state(): KernelState | null {
    const { condition } = this.view;
    return condition.kind === 'ready' ? condition.state : null;
  }

  /** Whether every cell is watched. A requested change counts even before the kernel has replied. */
  get watching(): boolean {
    return this.view.requested.watching ?? this.state?.watching ?? false;
  }

  /** Seconds since the kernel last replied; null if it never did. */
  get age(): number | null {
    const { kernel } = this.active;
    return kernel === null ? null : this.secondsSince(this.tracked(kernel).replied);
  }

  /**
   * Whether polling is disabled, because this version of JupyterLab shows each query as kernel activity.
   * Without polling, the kernel is queried only when its state may have changed, such as after a cell has
   * run.
   */
  get pollingDisabled(): boolean {
    return this.withoutPolling;
  }

  /** Set whether the panel is visible. While it is, the kernel is polled. */
  setPanelVisible(visible: boolean): void {
    this.panelVisible = visible;
    if (visible) {
      this.refresh();
    } else {
      this.schedule();
    }
  }

  /**
   * Set whether the status item is visible. While it is, the kernel is queried after each cell and polled
   * slowly while a cell runs, but an idle kernel is not polled.
   */
  setStatusVisible(visible: boolean): void {
    if (visible !== this.statusVisible) {
      this.statusVisible = visible;
      this.refresh();
      this.schedule();
    }
  }

  /** Record that the kernel's notebook contains gpuwidget's name or magic. */
  setMentionsGpuwidget(kernel: Kernel): void {
    this.tracked(kernel).mentionsGpuwidget = true;
  }

  /** Stop polling permanently. From now on, query the kernel only if its state may have changed. */
  disablePolling(): void {
    this.withoutPolling = true;
    this.unschedule();
  }

  /** Record that the kernel's process has ended or was replaced: nothing that was known applies any more. */
  setEnded(kernel: Kernel): void {
    const { language, phase } = this.tracked(kernel);
    this.trackedKernels.set(kernel, { ...newKernel(), language, phase, restarted: true });
    if (kernel === this.active.kernel) {
      this.refresh();
    }
  }

  /** Set the active notebook and the current phase of its kernel. */
  setActive(notebook: ActiveNotebook): void {
    const before = this.active;
    this.active = notebook;
    const { kernel, phase } = notebook;
    if (kernel !== null) {
      this.tracked(kernel).phase = phase;
      if (kernel !== before.kernel || this.mayHaveChanged(kernel, before.phase, phase)) {
        this.refresh();
      } else if (phase !== before.phase && this.timer === null) {
        this.schedule();
      }
    }
    this.changes.emit();
  }

  /**
   * Query the kernel if a view is visible. If a request is pending, send the query after that request has
   * ended.
   */
  refresh(): void {
    const { kernel } = this.active;
    if (kernel === null || !this.isAlive || !(this.panelVisible || this.isQueriedForStatus(kernel))) {
      return;
    }
    const tracked = this.tracked(kernel);
    if (tracked.load !== null) {
      return; // The state is requested once gpuwidget is loaded.
    }
    if (tracked.inFlight > 0) {
      tracked.stale = true;
    } else {
      void this.query(kernel);
    }
  }

  /** Set the default device. Null restores the default device from before the user first chose one. */
  setDevice(device: string | null, newTensors: boolean): Promise<void> {
    return this.change({ schema: KERNEL_SCHEMA, ask: 'set_device', device, new_tensors: newTensors });
  }

  /** Turn watching of every cell on or off. */
  setWatching(on: boolean): Promise<void> {
    return this.change({ schema: KERNEL_SCHEMA, ask: 'watch', on });
  }

  /**
   * Set one of torch's switches. The value takes effect immediately, or before the next cell if a cell is
   * running.
   */
  setSwitch(name: string, value: string): Promise<void> {
    return this.change({ schema: KERNEL_SCHEMA, ask: 'set_switch', name, value });
  }

  /**
   * Toggle the watching of every cell. The kernel's state is queried first, since a cell may have turned
   * watching on or off while no view was visible. Calls in quick succession are executed one after the
   * other.
   */
  async toggleWatching(): Promise<void> {
    const { kernel } = this.active;
    if (kernel === null || !this.isAlive) {
      return;
    }
    const tracked = this.tracked(kernel);
    tracked.toggle = tracked.toggle.then(async () => {
      await this.query(kernel);
      const { condition } = this.tracked(kernel);
      if (condition?.kind === 'ready') {
        const on = !condition.state.watching;
        await this.request(kernel, { schema: KERNEL_SCHEMA, ask: 'watch', on });
      }
    });
    await tracked.toggle;
  }

  /** Request a diagnosis of the kernel's environment. Return null if the kernel does not reply. */
  async diagnose(): Promise<ParsedReply | null> {
    const { kernel } = this.active;
    if (kernel === null || !this.isAlive) {
      return null;
    }
    try {
      return await kernel.request({ schema: KERNEL_SCHEMA, ask: 'doctor' }, DIAGNOSIS_TIMEOUT_MS);
    } catch {
      return null; // The kernel was shut down or restarted meanwhile.
    }
  }

  /** Load gpuwidget in the kernel. If it is already being loaded, wait for that instead. */
  async load(): Promise<void> {
    const { kernel } = this.active;
    if (kernel === null || !this.isAlive) {
      return;
    }
    const tracked = this.tracked(kernel);
    tracked.load ??= this.loadIn(kernel, tracked);
    await tracked.load;
  }

  private async loadIn(kernel: Kernel, tracked: TrackedKernel): Promise<void> {
    tracked.condition = { kind: 'loading' };
    this.changes.emit();
    const result = await kernel.load();
    tracked.load = null;
    if (this.tracked(kernel) !== tracked) {
      return; // The kernel was restarted meanwhile.
    }
    if (result.outcome !== 'loaded') {
      tracked.condition = failure(result);
      this.changes.emit();
      return;
    }
    tracked.version = result.version;
    tracked.misses = 0;
    await this.request(kernel, STATE_REQUEST);
  }

  private async change(request: ChangeRequest): Promise<void> {
    const { kernel } = this.active;
    if (kernel !== null && this.isAlive) {
      await this.request(kernel, request);
    }
  }

  /** Query the kernel's state. If a query is already pending, wait for its reply instead. */
  private query(kernel: Kernel): Promise<void> {
    const tracked = this.tracked(kernel);
    if (tracked.query !== null) {
      return tracked.query;
    }
    const query = this.request(kernel, STATE_REQUEST).finally(() => {
      if (tracked.query === query) {
        tracked.query = null;
      }
    });
    tracked.query = query;
    return query;
  }

  private async request(kernel: Kernel, request: KernelRequest): Promise<void> {
    const tracked = this.tracked(kernel);
    const busyBefore = tracked.phase === 'busy';
    this.unschedule();
    tracked.inFlight++;
    if (isChange(request)) {
      tracked.requested.set(changedBy(request), request);
      this.changes.emit();
    }
    let reply: ParsedReply | null = null;
    try {
      tracked.language ??= await kernel.language();
      if (tracked.language.toLowerCase() === 'python') {
        reply = await kernel.request(request);
      }
    } catch {
      // The kernel was shut down or restarted meanwhile, so there is no reply.
    }
    tracked.inFlight--;
    if (isChange(request) && tracked.requested.get(changedBy(request)) === request) {
      tracked.requested.delete(changedBy(request));
    }
    if (tracked.language !== null && tracked.language.toLowerCase() !== 'python') {
      tracked.condition = { kind: 'not-python', language: tracked.language };
      this.changes.emit();
      return;
    }
    if (this.tracked(kernel) === tracked) {
      if (reply === null) {
        this.miss(tracked, busyBefore || tracked.phase === 'busy');
      } else {
        this.accept(tracked, request, reply);
      }
    }
    this.changes.emit();
    if (tracked.stale && tracked.inFlight === 0) {
      tracked.stale = false;
      tracked.query = null;
      this.refresh();
    } else {
      this.schedule();
    }
  }

  private accept(tracked: TrackedKernel, request: KernelRequest, reply: ParsedReply): void {
    tracked.silent = false;
    tracked.misses = 0;
    tracked.replied = this.clock.now();
    tracked.restarted &&= request.ask === 'state';
    if (reply.status === 'incompatible') {
      tracked.rejection = null;
      tracked.condition = { kind: 'other-version', version: reply.version ?? tracked.version };
      return;
    }
    const before = tracked.condition?.kind === 'ready' ? tracked.condition.state : null;
    tracked.rejection = rejection(tracked.rejection, request, reply, reply.state ?? before);
    if (reply.state !== null) {
      tracked.condition = { kind: 'ready', state: reply.state };
    } else if (tracked.condition?.kind !== 'ready') {
      tracked.condition = { kind: 'failed', reason: tracked.rejection?.reason ?? '' };
    }
  }

  /**
   * Handle a request without a reply. `busy` is whether a cell was running, which may have delayed the reply.
   */
  private miss(tracked: TrackedKernel, busy: boolean): void {
    if (tracked.load !== null) {
      return;
    }
    tracked.silent = true;
    const kind = tracked.condition?.kind;
    if (busy) {
      tracked.misses = 0;
      if (kind === undefined || kind === 'loading') {
        tracked.condition = { kind: 'unanswered' };
        tracked.stale ||= tracked.phase !== 'busy'; // The cell has ended meanwhile.
      }
      return;
    }
    tracked.misses++;
    if (kind === undefined || kind === 'unanswered' || (kind === 'ready' && tracked.misses >= MAX_MISSES)) {
      tracked.condition = { kind: 'not-loaded' };
      tracked.replied = null;
    } else if (kind === 'loading' && tracked.misses >= MAX_MISSES) {
      // gpuwidget is loaded but does not reply to these requests, so it must be an older version.
      tracked.condition = { kind: 'other-version', version: tracked.version };
    }
  }

  /**
   * Return whether the kernel must be queried after a change of its phase, since a cell may have loaded
   * gpuwidget or allocated memory.
   */
  private mayHaveChanged(kernel: Kernel, before: Phase | null, now: Phase | null): boolean {
    if (now === before || (now !== 'idle' && now !== 'busy')) {
      return false;
    }
    const kind = this.tracked(kernel).condition?.kind;
    return kind === undefined || (now === 'idle' && (kind === 'ready' || kind === 'unanswered'));
  }

  private condition(tracked: TrackedKernel | null): Condition {
    const { name, phase } = this.active;
    if (name === null) {
      return { kind: 'no-notebook' };
    }
    if (phase === null) {
      return { kind: 'no-kernel' };
    }
    if (phase !== 'idle' && phase !== 'busy') {
      return { kind: phase };
    }
    const condition = tracked?.condition ?? null;
    // A cell that has ended no longer explains why a query had no reply: the kernel is queried again.
    return condition === null || (condition.kind === 'unanswered' && phase === 'idle')
      ? { kind: 'querying' }
      : condition;
  }

  private get isAlive(): boolean {
    return this.active.phase === 'idle' || this.active.phase === 'busy';
  }

  /**
   * Return whether the kernel is queried for the status item. Without gpuwidget, a kernel logs an error for
   * each query. Therefore, the status item causes queries only if gpuwidget is loaded or the notebook
   * contains its name or magic.
   */
  private isQueriedForStatus(kernel: Kernel): boolean {
    const { condition, mentionsGpuwidget } = this.tracked(kernel);
    return this.statusVisible && (mentionsGpuwidget || condition?.kind === 'ready');
  }

  private schedule(): void {
    this.unschedule();
    const interval = this.pollInterval();
    if (interval !== null) {
      this.timer = this.clock.after(interval, () => {
        this.timer = null;
        this.refresh();
      });
    }
  }

  /**
   * Return the milliseconds until the next poll; null for no poll. Only a kernel in which gpuwidget is loaded
   * or being loaded is polled.
   */
  private pollInterval(): number | null {
    const { kernel, phase } = this.active;
    const missed = kernel !== null && this.tracked(kernel).misses > 0;
    const ready = this.state !== null;
    const polled = missed || !this.withoutPolling;
    if (this.panelVisible) {
      return this.view.condition.kind === 'loading' || (ready && polled) ? POLL_MS : null;
    }
    const running = missed || (phase === 'busy' && polled);
    return this.statusVisible && ready && running ? STATUS_POLL_MS : null;
  }

  private unschedule(): void {
    if (this.timer !== null) {
      this.clock.cancel(this.timer);
      this.timer = null;
    }
  }

  private secondsSince(time: number | null): number | null {
    return time === null ? null : (this.clock.now() - time) / 1000;
  }

  private tracked(kernel: Kernel): TrackedKernel {
    let tracked = this.trackedKernels.get(kernel);
    if (tracked === undefined) {
      tracked = newKernel();
      this.trackedKernels.set(kernel, tracked);
    }
    return tracked;
  }
}

function newKernel(): TrackedKernel {
  return {
    condition: null,
    language: null,
    phase: null,
    replied: null,
    silent: false,
    version: null,
    misses: 0,
    restarted: false,
    rejection: null,
    requested: new Map(),
    mentionsGpuwidget: false,
    query: null,
    load: null,
    inFlight: 0,
    stale: false,
    toggle: Promise.resolve()
  };
}

function isChange(request: KernelRequest): request is ChangeRequest {
  return request.ask === 'set_device' || request.ask === 'watch' || request.ask === 'set_switch';
}

/**
 * Return a key for what a request changes. Of two requests with the same key, the later one replaces the
 * earlier one.
 */
function changedBy(request: ChangeRequest): string {
  return request.ask === 'set_switch' ? `${request.ask} ${request.name}` : request.ask;
}

function requestedChanges(requests: Iterable<ChangeRequest>): RequestedChanges {
  let device: string | null | undefined;
  let watching: boolean | undefined;
  const switches = new Map<string, string>();
  for (const request of requests) {
    switch (request.ask) {
      case 'set_device':
        ({ device } = request);
        break;
      case 'watch':
        watching = request.on;
        break;
      case 'set_switch':
        switches.set(request.name, request.value);
        break;
    }
  }
  return { device, watching, switches };
}

/**
 * Return the rejection to show after a reply; null for none. An earlier rejection is no longer shown once a
 * change has been accepted or the settings have changed.
 */
function rejection(
  before: TrackedRejection | null,
  { ask }: KernelRequest,
  reply: Exclude<ParsedReply, { status: 'incompatible' }>,
  state: KernelState | null
): TrackedRejection | null {
  const switches = state?.switches.map(({ value, pending }) => [value, pending]);
  const settings = JSON.stringify([state?.device.chosen, state?.watching, switches]);
  if (reply.status === 'error') {
    return { reason: reply.reason, ask, settings };
  }
  const isUnchanged =
    ask === 'state' && before !== null && before.ask !== 'state' && before.settings === settings;
  return isUnchanged ? before : null;
}

function failure(result: Exclude<LoadResult, { outcome: 'loaded' }>): Condition {
  switch (result.outcome) {
    case 'failed':
      return { kind: 'failed', reason: result.reason };
    case 'refused':
      return { kind: 'refused', path: result.path };
    default:
      return { kind: result.outcome };
  }
}
