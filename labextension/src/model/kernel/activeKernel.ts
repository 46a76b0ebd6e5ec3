import { Signal, type ISignal } from '@lumino/signaling';

import type { Kernel, LoadResult, RequestContent } from './kernel';
import type { ActivityChange } from './kernelActivity';
import { pendingRequest, type Condition, type IKernels, type KernelView, type Rejection } from './kernels';
import type { ParsedReply } from '../../wire/kernelReply';
import type { Clock } from '../clock';
import type { KernelState } from '../../wire/wire';

/** The interval between queries while the panel is visible, in milliseconds. */
export const POLL_MS = 3000;
/** The interval between queries while a cell runs and only the status item is visible, in milliseconds. */
export const STATUS_POLL_MS = 5000;
/**
 * If an idle kernel does not reply to this many consecutive queries, its condition changes from `ready` or
 * `loading` to another one. Fewer missing replies change nothing, because they may be chance.
 */
const MAX_MISSES = 2;

/** The active notebook, which is the current widget of JupyterLab's notebook tracker; null if none is open. */
export type ActiveNotebook =
  | { readonly name: string; readonly kernel: Kernel }
  /** If `phase` is null, the notebook has no kernel. Otherwise its kernel is being started or shut down. */
  | { readonly name: string; readonly kernel: null; readonly phase: 'starting' | 'dead' | null }
  | null;

/** What is known about gpuwidget in a kernel's process. */
type State =
  | Extract<Condition, { kind: 'not-python' | 'other-version' | 'refused' | 'failed' }>
  | { readonly kind: 'querying' | 'not-loaded' | 'not-installed' | 'other-package' }
  /** No reply to the first query, or to the first one after gpuwidget was loaded, while a cell was running. */
  | { readonly kind: 'unanswered'; readonly version: string | null }
  | { readonly kind: 'loading'; readonly load: Promise<void> }
  /** This page has loaded this version of gpuwidget, which has not replied yet. */
  | { readonly kind: 'loaded'; readonly version: string | null; readonly misses: number }
  | Ready;

interface Ready {
  readonly kind: 'ready';
  readonly state: KernelState;
  /** When the kernel last replied, in milliseconds of this page's clock. */
  readonly replied: number;
  readonly rejection: TrackedRejection | null;
  /** Whether the kernel has not replied to the last query. */
  readonly silent: boolean;
  /** Number of consecutive queries without a reply although the kernel was idle. */
  readonly misses: number;
}

/**
 * A rejection, with the kernel's settings at that time. Once the settings differ, the rejection is outdated.
 */
interface TrackedRejection extends Rejection {
  readonly settings: string;
}

/** What is known about one process of a kernel. It is kept while another notebook is active. */
interface TrackedProcess {
  state: State;
  /** Whether the process has replaced another one. */
  restarted: boolean;
  /**
   * Whether the kernel's notebook contains gpuwidget's name or magic. If so, the kernel is queried for the
   * status item even before a reply has shown that gpuwidget is loaded.
   */
  mentionsGpuwidget: boolean;
  /** Whether a cell of any page that may have loaded gpuwidget has ended since the last query. */
  mayBeLoaded: boolean;
  /** The requests without a reply; null if there are none. */
  pending: PendingRequests | null;
  /** The promise of the last toggle of cell watching. The next toggle starts after it has resolved. */
  toggle: Promise<void>;
}

interface PendingRequests {
  readonly requests: RequestContent[];
  /** The query among them; null if there is none. */
  query: Promise<void> | null;
  /** Whether the kernel's state may have changed since the requests were sent. */
  stale: boolean;
}

const QUERY: RequestContent = { ask: 'state' };

/**
 * Queries and changes the state of gpuwidget in the active notebook's kernel. Kernels are polled only while a
 * view is visible.
 */
export class ActiveKernel implements IKernels {
  private notebook: ActiveNotebook = null;
  private readonly processes = new WeakMap<Kernel, TrackedProcess>();
  private timer: number | null = null;
  private panelVisible = false;
  private statusVisible = false;
  private readonly changes = new Signal<this, void>(this);

  constructor(private readonly clock: Clock) {}

  get changed(): ISignal<this, void> {
    return this.changes;
  }

  get view(): KernelView {
    const { kernel } = this;
    const tracked = kernel === null ? null : this.process(kernel);
    const ready = tracked?.state.kind === 'ready' ? tracked.state : null;
    return {
      notebook: this.notebook?.name ?? null,
      kernel,
      condition: this.condition,
      busy: kernel !== null && isBusy(kernel),
      restarted: tracked?.restarted ?? false,
      silentFor: ready?.silent === true ? this.secondsSince(ready.replied) : null,
      rejection: ready?.rejection ?? null,
      pending: tracked?.pending?.requests ?? []
    };
  }

  get state(): KernelState | null {
    const { condition } = this;
    return condition.kind === 'ready' ? condition.state : null;
  }

  get watching(): boolean {
    return pendingRequest(this.view, 'watch')?.on ?? this.state?.watching ?? false;
  }

  get age(): number | null {
    const { kernel } = this;
    const state = kernel === null ? null : this.process(kernel).state;
    return state?.kind === 'ready' ? this.secondsSince(state.replied) : null;
  }

  get pollingDisabled(): boolean {
    return this.kernel?.activity.showsRequests ?? false;
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

  setStatusVisible(visible: boolean): void {
    if (visible !== this.statusVisible) {
      this.statusVisible = visible;
      this.refresh();
      this.schedule();
    }
  }

  /** Record that the kernel's notebook contains gpuwidget's name or magic. */
  setMentionsGpuwidget(kernel: Kernel): void {
    this.process(kernel).mentionsGpuwidget = true;
  }

  /** Set the active notebook. */
  setActive(notebook: ActiveNotebook): void {
    const before = this.kernel;
    this.notebook = notebook;
    const { kernel } = this;
    if (kernel !== null && kernel !== before) {
      this.process(kernel); // From now on, follow what the kernel does.
      this.refresh();
    }
    this.changes.emit();
  }

  /**
   * Query the kernel if a view is visible. If a request is pending, send the query after that request has
   * ended.
   */
  refresh(): void {
    const kernel = this.aliveKernel;
    if (kernel === null || !(this.panelVisible || this.isQueriedForStatus(kernel))) {
      return;
    }
    const { state, pending } = this.process(kernel);
    if (state.kind === 'loading') {
      return; // The state is requested once gpuwidget is loaded.
    }
    if (pending !== null) {
      pending.stale = true;
    } else {
      void this.query(kernel);
    }
  }

  async request(content: RequestContent): Promise<void> {
    const kernel = this.aliveKernel;
    if (kernel !== null) {
      await this.send(kernel, content);
    }
  }

  async toggleWatching(): Promise<void> {
    const kernel = this.aliveKernel;
    if (kernel === null) {
      return;
    }
    const tracked = this.process(kernel);
    tracked.toggle = tracked.toggle.then(async () => {
      await this.query(kernel);
      const { state } = this.process(kernel);
      if (state.kind === 'ready') {
        await this.send(kernel, { ask: 'watch', on: !state.state.watching });
      }
    });
    await tracked.toggle;
  }

  async load(): Promise<void> {
    const kernel = this.aliveKernel;
    if (kernel === null) {
      return;
    }
    const tracked = this.process(kernel);
    if (tracked.state.kind !== 'loading') {
      tracked.state = { kind: 'loading', load: this.loadIn(kernel, tracked) };
      this.changes.emit();
    }
    await tracked.state.load;
  }

  private async loadIn(kernel: Kernel, tracked: TrackedProcess): Promise<void> {
    const result = await kernel.load();
    if (this.process(kernel) !== tracked || tracked.state.kind !== 'loading') {
      return; // The kernel was restarted, or a cell has loaded gpuwidget.
    }
    if (result.outcome !== 'loaded') {
      tracked.state = failure(result);
      this.changes.emit();
      return;
    }
    tracked.state = { kind: 'loaded', version: result.version, misses: 0 };
    await this.send(kernel, QUERY);
  }

  /** Query the kernel's state. If a query is already pending, wait for its reply instead. */
  private query(kernel: Kernel): Promise<void> {
    const tracked = this.process(kernel);
    if (tracked.pending?.query) {
      return tracked.pending.query;
    }
    const query = this.send(kernel, QUERY);
    const { pending } = tracked;
    if (pending !== null) {
      pending.query = query.finally(() => {
        pending.query = null;
      });
    }
    return query;
  }

  private async send(kernel: Kernel, content: RequestContent): Promise<void> {
    const tracked = this.process(kernel);
    const busyBefore = isBusy(kernel);
    this.unschedule();
    const pending = (tracked.pending ??= { requests: [], query: null, stale: false });
    pending.requests.push(content);
    if (content === QUERY) {
      tracked.mayBeLoaded = false;
    } else {
      this.changes.emit();
    }
    let language: string | null = null;
    let reply: ParsedReply | null = null;
    try {
      language = await kernel.language();
      if (isPython(language)) {
        reply = await kernel.request(content);
      }
    } catch {
      // The kernel was shut down or restarted meanwhile, so there is no reply.
    }
    pending.requests.splice(pending.requests.indexOf(content), 1);
    if (language !== null && !isPython(language)) {
      tracked.state = { kind: 'not-python', language };
    } else if (reply === null) {
      tracked.state = withoutReply(tracked.state, busyBefore || isBusy(kernel));
    } else {
      tracked.state = afterReply(tracked.state, content, reply, this.clock.now());
      tracked.restarted &&= content.ask === 'state';
    }
    // A cell that has ended no longer explains why there was no reply.
    pending.stale ||= tracked.state.kind === 'unanswered' && !isBusy(kernel);
    const isLast = pending.requests.length === 0;
    if (isLast) {
      tracked.pending = null;
    }
    this.changes.emit();
    if (isLast && pending.stale) {
      this.refresh();
    } else {
      this.schedule();
    }
  }

  private onActivityChanged(kernel: Kernel, change: ActivityChange): void {
    const { kind } = change;
    if (kind === 'ended' && change.outcome === 'finished' && mentionsGpuwidget(change.execution.code)) {
      Object.assign(this.process(kernel), { mentionsGpuwidget: true, mayBeLoaded: true });
    }
    if (kind === 'process-ended') {
      // Nothing that was known applies any more.
      this.processes.set(kernel, newProcess(true));
    }
    if (kernel !== this.kernel || (kind !== 'process-ended' && kind !== 'phase')) {
      return;
    }
    if (kind === 'process-ended' || this.mayHaveChanged(kernel)) {
      this.refresh();
    } else if (this.timer === null) {
      this.schedule();
    }
    this.changes.emit();
  }

  /**
   * Return whether the kernel must be queried after a change of its phase, since a cell may have loaded
   * gpuwidget or allocated memory.
   */
  private mayHaveChanged(kernel: Kernel): boolean {
    const { state, mayBeLoaded } = this.process(kernel);
    const { kind } = state;
    const isIdle = kernel.activity.phase === 'idle';
    return kind === 'querying' || (isIdle && (mayBeLoaded || kind === 'ready' || kind === 'unanswered'));
  }

  private get condition(): Condition {
    const { notebook } = this;
    if (notebook === null) {
      return { kind: 'no-notebook' };
    }
    if (notebook.kernel === null) {
      return { kind: notebook.phase ?? 'no-kernel' };
    }
    const { phase } = notebook.kernel.activity;
    if (phase !== 'idle' && phase !== 'busy') {
      return { kind: phase };
    }
    const { state } = this.process(notebook.kernel);
    // A cell that has ended no longer explains why a query had no reply: the kernel is queried again.
    if (state.kind === 'unanswered' && phase === 'idle') {
      return { kind: 'querying' };
    }
    return state.kind === 'loaded' ? { kind: 'loading' } : state;
  }

  private get kernel(): Kernel | null {
    return this.notebook?.kernel ?? null;
  }

  /** The active notebook's kernel; null if there is none, or if it cannot reply. */
  private get aliveKernel(): Kernel | null {
    const { kernel } = this;
    const phase = kernel?.activity.phase;
    return phase === 'idle' || phase === 'busy' ? kernel : null;
  }

  /**
   * Return whether the kernel is queried for the status item. Without gpuwidget, a kernel logs an error for
   * each query. Therefore, the status item causes queries only if gpuwidget is loaded or the notebook
   * contains its name or magic.
   */
  private isQueriedForStatus(kernel: Kernel): boolean {
    const { state, mentionsGpuwidget } = this.process(kernel);
    return this.statusVisible && (mentionsGpuwidget || state.kind === 'ready');
  }

  private schedule(): void {
    this.unschedule();
    const interval = this.pollInterval();
    if (interval !== null) {
      this.timer = this.clock.after(interval, () => {
        this.timer = null;
        // JupyterLab may have shown the last query as activity only after its reply.
        if (this.pollInterval() !== null) {
          this.refresh();
        }
      });
    }
  }

  /**
   * Return the milliseconds until the next poll; null for no poll. Only a kernel in which gpuwidget is loaded
   * or being loaded is polled.
   */
  private pollInterval(): number | null {
    const kernel = this.aliveKernel;
    const state = kernel === null ? null : this.process(kernel).state;
    const isReady = state?.kind === 'ready';
    const hasMissed = isReady && state.misses > 0;
    const isPolled = hasMissed || !this.pollingDisabled;
    if (this.panelVisible) {
      const isLoading = state?.kind === 'loading' || state?.kind === 'loaded';
      return isLoading || (isReady && isPolled) ? POLL_MS : null;
    }
    const isRunning = hasMissed || (kernel !== null && isBusy(kernel) && isPolled);
    return this.statusVisible && isReady && isRunning ? STATUS_POLL_MS : null;
  }

  private unschedule(): void {
    if (this.timer !== null) {
      this.clock.cancel(this.timer);
      this.timer = null;
    }
  }

  private secondsSince(time: number): number {
    return (this.clock.now() - time) / 1000;
  }

  private process(kernel: Kernel): TrackedProcess {
    let tracked = this.processes.get(kernel);
    if (tracked === undefined) {
      tracked = newProcess(false);
      this.processes.set(kernel, tracked);
      kernel.activity.changed.connect((_, change) => {
        this.onActivityChanged(kernel, change);
      });
    }
    return tracked;
  }
}

/** Return whether code contains gpuwidget's name or magic. If so, running it may load gpuwidget. */
export function mentionsGpuwidget(code: string): boolean {
  return /gpuwidget|%gpu/.test(code);
}

function newProcess(restarted: boolean): TrackedProcess {
  return {
    state: { kind: 'querying' },
    restarted,
    mentionsGpuwidget: false,
    mayBeLoaded: false,
    pending: null,
    toggle: Promise.resolve()
  };
}

function isBusy({ activity }: Kernel): boolean {
  return activity.phase === 'busy';
}

function isPython(language: string): boolean {
  return language.toLowerCase() === 'python';
}

/**
 * Return the state after a request without a reply. `busy` is whether a cell was running, which may have
 * delayed the reply.
 */
function withoutReply(state: State, busy: boolean): State {
  switch (state.kind) {
    case 'querying':
      return busy ? { kind: 'unanswered', version: null } : { kind: 'not-loaded' };
    case 'unanswered':
      return busy ? state : { kind: 'not-loaded' };
    case 'loaded': {
      const misses = state.misses + 1;
      return busy
        ? { kind: 'unanswered', version: state.version }
        : // gpuwidget is loaded but does not reply to these requests, so it must be an older version.
          misses < MAX_MISSES
          ? { ...state, misses }
          : { kind: 'other-version', version: state.version };
    }
    case 'ready': {
      const misses = busy ? 0 : state.misses + 1;
      return misses < MAX_MISSES ? { ...state, silent: true, misses } : { kind: 'not-loaded' };
    }
    default:
      return state;
  }
}

/** Return the state after the reply to a request, which arrived at the time `now`. */
function afterReply(state: State, request: RequestContent, reply: ParsedReply, now: number): State {
  if (reply.status === 'incompatible') {
    return { kind: 'other-version', version: reply.version ?? versionIn(state) };
  }
  const before = state.kind === 'ready' ? state : null;
  const newest = reply.state ?? before?.state ?? null;
  return newest === null
    ? { kind: 'failed', reason: reply.status === 'error' ? reply.reason : '' }
    : {
        kind: 'ready',
        state: newest,
        replied: now,
        rejection: rejection(before?.rejection ?? null, request, reply, newest),
        silent: false,
        misses: 0
      };
}

/** Return the version of gpuwidget in the kernel, if it is known. */
function versionIn(state: State): string | null {
  switch (state.kind) {
    case 'ready':
      return state.state.version;
    case 'loaded':
    case 'unanswered':
    case 'other-version':
      return state.version;
    default:
      return null;
  }
}

/**
 * Return the rejection to show after a reply; null for none. An earlier rejection is no longer shown once a
 * change has been accepted or the settings have changed.
 */
function rejection(
  before: TrackedRejection | null,
  { ask }: RequestContent,
  reply: Exclude<ParsedReply, { status: 'incompatible' }>,
  { device, watching, switches }: KernelState
): TrackedRejection | null {
  const values = switches.map(({ value, pending }) => [value, pending]);
  const settings = JSON.stringify([device.chosen, watching, values]);
  if (reply.status === 'error') {
    return { reason: reply.reason, ask, settings };
  }
  const isUnchanged =
    ask === 'state' && before !== null && before.ask !== 'state' && before.settings === settings;
  return isUnchanged ? before : null;
}

function failure(result: Exclude<LoadResult, { outcome: 'loaded' }>): State {
  switch (result.outcome) {
    case 'failed':
      return { kind: 'failed', reason: result.reason };
    case 'refused':
      return { kind: 'refused', path: result.path };
    default:
      return { kind: result.outcome };
  }
}
