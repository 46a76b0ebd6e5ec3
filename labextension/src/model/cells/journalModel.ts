import { Signal, type ISignal } from '@lumino/signaling';

import type { CurrentCell, NotebookJournal } from './cellRuns';
import { crc32, endOf, idOf, includesRun, newestOfCells, reportedRuns } from './journal';
import type { KnownRuns, KnownState } from './knownRuns';
import type { CellModels } from './reportReader';
import type { Clock } from '../clock';
import type { ActivityChange, KernelActivity } from '../kernel/kernelActivity';
import type { Result } from '../server/result';
import type { JournalCard, JournalRun, JournalRuns } from '../../wire/wire';

/** The list is requested at most this often. */
const MIN_INTERVAL_MS = 2000;
/** While a run lasts or may get into the journal, and a view shows it, it is requested this often. */
const POLL_MS = 10_000;
/** The outputs of a run have this long to arrive after the end of the run. */
const ARRIVAL_MS = 5000;
/** The journal has only runs of more than 30 seconds. After shorter executions, there is nothing new in it. */
const LONG_MS = 25_000;
/** At most this many runs of a notebook are listed, the newest ones. */
const MAX_MISSING = 10;

/** The requests for the journal. */
export interface JournalSource {
  runs(): Promise<Result<JournalRuns>>;
  /** Return one run with its card. */
  card(id: string): Promise<Result<JournalCard>>;
}

/** The parts of an open notebook that the journal needs. */
export interface JournalNotebook {
  /** Identifies the notebook: its widget. */
  readonly key: object;
  /** Path relative to the server's root. */
  readonly path: string;
  /** File name. */
  readonly name: string;
  /** Id of the kernel; null without a kernel. */
  readonly kernel: string | null;
  readonly activity: Pick<KernelActivity, 'phase'> | null;
  /** Whether one of its cells is running that this page has started. */
  readonly runsOwnCell: boolean;
  /** Null before the notebook is loaded. */
  readonly cells: CellModels | null;
  /** Whether the file has all outputs. */
  readonly isSaved: boolean;
}

/** The notebooks that are open. */
export interface JournalNotebooks {
  readonly all: readonly JournalNotebook[];
  readonly active: JournalNotebook | null;
}

/** A run that has ended, and whose card is not in the outputs of its notebook. */
export interface MissingRun {
  readonly id: string;
  readonly run: JournalRun;
  /** Whether the notebook still has the cell. */
  readonly hasCell: boolean;
}

/** A run of whose end the user does not know yet. */
export interface RunNews {
  readonly run: JournalRun;
  /** The present file name of its notebook. */
  readonly name: string;
}

/** What this page has seen of one open notebook. */
interface Seen {
  /** Ids of the runs whose reports were in its outputs. If one is gone, the user has removed it. */
  readonly reported: Set<string>;
  /**
   * Since when its kernel has been busy, in milliseconds of this page's clock; null if it is not busy, -Infinity if it
   * may have become busy while this page was not connected to it.
   */
  busySince: number | null;
  /** When its kernel was last busy. */
  quietSince: number;
}

/**
 * The journal of runs: which run lasts in the active notebook, and which runs have ended without their cards being in
 * their notebooks.
 *
 * The list is requested only when something may have changed. If the server has no journal, it is not requested again.
 */
export class JournalModel {
  private runs: readonly JournalRun[] = [];
  /** A sentence that explains why runs are missing; null if there is no problem. */
  problem: string | null = null;
  /** The runs of the active notebook that have ended, and whose cards are not in its outputs, the newest first. */
  missing: readonly MissingRun[] = [];
  private lastCard: JournalCard | null = null;
  private isAbsent = false;
  private isPending = false;
  private isOutdated = false;
  private requested = -Infinity;
  private received = 0;
  private timer: number | null = null;
  private pollTimer: number | null = null;
  private pollDue = Infinity;
  /** When the run that lasts was last requested. */
  private polled = -Infinity;
  private updateTimer: number | null = null;
  /** Ids of the runs that the last list has as running, and that have ended since. */
  private readonly over = new Set<string>();
  /** When the list first had a run as ended, by id. */
  private readonly firstSeen = new Map<string, number>();
  private readonly seen = new WeakMap<object, Seen>();
  /** The results of `cellsByCode`, by the id of the run. */
  private readonly cells = new Map<string, string | null>();
  private shared: NotebookJournal | null = null;
  private sharedKey = '';
  private readonly changes = new Signal<this, void>(this);
  /** Emitted once for each run of whose end the user does not know yet. */
  readonly news = new Signal<this, readonly RunNews[]>(this);

  /** `epoch` returns the time in epoch seconds. */
  constructor(
    private readonly source: JournalSource,
    private readonly notebooks: JournalNotebooks,
    private readonly known: KnownRuns,
    private readonly clock: Clock,
    private readonly epoch: () => number
  ) {}

  get changed(): ISignal<this, void> {
    return this.changes;
  }

  /** The run that lasts in the active notebook; null if there is none. If one is inside another one, the outer one. */
  get running(): JournalRun | null {
    const { active } = this.notebooks;
    return active?.activity?.phase === 'busy' ? (this.runningIn(active)[0] ?? null) : null;
  }

  /** The time series of `running`; null before they are received. */
  get card(): JournalCard | null {
    return this.lastCard?.run.id === this.running?.id ? this.lastCard : null;
  }

  /** What the list of cells needs to know about the active notebook; null if that is nothing. */
  get notebookJournal(): NotebookJournal | null {
    const { running, missing, card } = this;
    const gpus = (card?.gpus ?? []).map(({ uuid }) => uuid);
    const key = JSON.stringify([running?.id, this.received, gpus, missing.length > 0]);
    if (key !== this.sharedKey) {
      this.sharedKey = key;
      const cell = running === null ? null : this.journaledCell(running, gpus);
      this.shared = cell === null && missing.length === 0 ? null : { running: cell };
    }
    return this.shared;
  }

  /** Request the list after `milliseconds`. */
  refresh(milliseconds = 0): void {
    if (milliseconds > 0) {
      this.clock.after(milliseconds, () => {
        this.refresh();
      });
    } else if (this.isPending) {
      this.isOutdated = true;
    } else if (!this.isAbsent && this.timer === null) {
      const wait = Math.max(0, this.requested + MIN_INTERVAL_MS - this.clock.now());
      this.timer = this.clock.after(wait, () => {
        this.timer = null;
        void this.load();
      });
    }
  }

  /** Request the list after the connection to the server or to a kernel was lost: it may be another server. */
  reconnect(): void {
    this.isAbsent = false;
    this.refresh();
  }

  /** Return whether the journal has a run of a cell that lasts. */
  isRunning(notebook: JournalNotebook, cellId: string): boolean {
    return (
      notebook.activity?.phase === 'busy' && this.runningIn(notebook).some(({ cell }) => cell === cellId)
    );
  }

  /**
   * Keep the run that lasts current while a view shows it, or find it once it is in the journal. Call it whenever the
   * view is updated. `isShown` returns whether the view is still visible.
   */
  visit(isShown: () => boolean): void {
    const { active } = this.notebooks;
    const isListed = active !== null && this.runningIn(active).length > 0;
    if (active === null || this.isAbsent || !(isListed || mayGetRun(active))) {
      this.leave();
      return;
    }
    const now = this.clock.now();
    const earliest = isListed ? now : LONG_MS + (this.seenOf(active).busySince ?? now);
    const due = Math.max(now, earliest, POLL_MS + (this.running === null ? this.requested : this.polled));
    if (this.pollTimer !== null && this.pollDue <= due) {
      return;
    }
    this.leave();
    this.pollDue = due;
    this.pollTimer = this.clock.after(due - now, () => {
      this.pollTimer = null;
      if (isShown()) {
        void this.poll();
      }
    });
  }

  /** Cancel the next request of `visit`. */
  leave(): void {
    if (this.pollTimer !== null) {
      this.clock.cancel(this.pollTimer);
      this.pollTimer = null;
    }
  }

  /** Process what the kernel of a notebook does. */
  onActivity(notebook: JournalNotebook, change: ActivityChange): void {
    const now = this.clock.now();
    const seen = this.seenOf(notebook);
    const phase = notebook.activity?.phase;
    if (change.kind === 'ended' && now - change.execution.received >= LONG_MS) {
      this.onLongExecution(notebook);
    }
    if (change.kind === 'phase' && phase === 'unreachable') {
      seen.busySince ??= -Infinity;
      return; // It is unknown what the kernel does.
    }
    const over = change.kind === 'phase' && phase === 'busy' ? [] : this.runningIn(notebook);
    if (over.length > 0) {
      over.forEach(({ id }) => this.over.add(id));
      this.refresh(ARRIVAL_MS);
    }
    if (phase === 'busy') {
      seen.busySince ??= now;
    }
    const isQuiet = phase === 'idle' || phase === 'dead';
    if (change.kind === 'process-ended' || (isQuiet && seen.busySince !== null)) {
      const isLong = now - (seen.busySince ?? now) >= LONG_MS;
      seen.busySince = null;
      seen.quietSince = now;
      if (isLong || change.kind === 'process-ended') {
        this.refresh(ARRIVAL_MS);
      }
    }
    this.changes.emit();
  }

  /** Remember that the file of a notebook now has its outputs. */
  onSaved(notebook: JournalNotebook): void {
    this.readOutputs(notebook);
    const ids = [...this.seenOf(notebook).reported];
    this.known.add(ids, ids);
  }

  /** Offer the card of a run no longer. */
  dismiss(id: string): void {
    this.known.add([id], [id]);
    this.update();
  }

  /** Find out again which cards are missing, for example because outputs have changed. */
  update(): void {
    const { all, active } = this.notebooks;
    this.findCells(all);
    const state = this.known.read();
    const now = this.clock.now();
    const ended = this.endedRuns(state, now);
    const open = new Map<string, string>();
    const missing = new Map<string, MissingRun>();
    const delivered: string[] = [];
    const finished: string[] = [];
    this.missing = [];
    let next = Infinity;
    for (const notebook of all) {
      const candidates = runsOf(notebook, ended);
      const reported = candidates.length === 0 ? new Set<string>() : this.readOutputs(notebook);
      const seen = this.seenOf(notebook);
      for (const each of candidates) {
        open.set(each.id, notebook.name);
        const ready = Math.max(this.arrivalOf(each.run), seen.quietSince + ARRIVAL_MS);
        if (includesRun(seen.reported, each.run)) {
          delivered.push(each.id);
          finished.push(...(includesRun(reported, each.run) && !notebook.isSaved ? [] : [each.id]));
        } else if (notebook.cells !== null && ready <= now) {
          missing.set(each.id, each);
        }
        next = ready > now ? Math.min(next, ready) : next;
      }
      if (notebook.key === active?.key) {
        this.missing = candidates.filter(({ id }) => missing.has(id)).slice(0, MAX_MISSING);
      }
    }
    this.known.add(
      [...delivered, ...(state.isFirst ? ended.map(idOf).filter(id => !open.has(id)) : [])],
      finished
    );
    next = Math.min(next, this.announce(ended, open, missing, now));
    this.scheduleUpdate(next - now);
    this.changes.emit();
  }

  /** Emit `news` about runs of whose end the user does not know. Return when to look again. */
  private announce(
    ended: readonly JournalRun[],
    open: ReadonlyMap<string, string>,
    missing: ReadonlyMap<string, MissingRun>,
    now: number
  ): number {
    const { known } = this.known.read();
    let next = Infinity;
    const news = ended.filter(run => {
      const id = idOf(run);
      if (known.has(id) || run.name === null || (open.has(id) && !missing.has(id))) {
        return false;
      }
      // Until then, another page may say that it has received the card. All runs together are one list.
      const ready = (this.firstSeen.get(id) ?? now) + ARRIVAL_MS;
      next = ready > now ? Math.min(next, ready) : next;
      return ready <= now;
    });
    if (news.length > 0) {
      this.known.add(news.map(idOf));
      this.news.emit(news.map(run => ({ run, name: open.get(idOf(run)) ?? run.name ?? '' })));
    }
    return next;
  }

  /** Return the runs of cells that have ended and whose cards may be missing. Of each cell, its last execution counts. */
  private endedRuns({ done, newsSince }: KnownState, now: number): readonly JournalRun[] {
    const ended = newestOfCells(this.runs).filter(
      run => run.state !== 'running' && run.cell !== null && endOf(run) >= newsSince && !done.has(idOf(run))
    );
    for (const run of ended) {
      if (!this.firstSeen.has(idOf(run))) {
        this.firstSeen.set(idOf(run), now);
      }
    }
    return ended;
  }

  /** Return when the outputs of a run have arrived, unless its kernel was busy until later. */
  private arrivalOf(run: JournalRun): number {
    const age = 1000 * (this.epoch() - endOf(run));
    const wait = Math.min(ARRIVAL_MS, Math.max(0, ARRIVAL_MS - age));
    return Math.min((this.firstSeen.get(idOf(run)) ?? 0) + ARRIVAL_MS, this.clock.now() + wait);
  }

  /** Complete the runs whose cells the journal does not have. A cell that was found stays, also if it is edited. */
  private findCells(notebooks: readonly JournalNotebook[]): void {
    const { cells } = this;
    for (const notebook of notebooks) {
      const unknown = this.runs.filter(({ id }) => !cells.has(id));
      cellsByCode(unknown, notebook).forEach((cell, run) => cells.set(run, cell));
    }
    this.runs = this.runs.map(run => {
      const cell = run.cell === null ? (cells.get(run.id) ?? null) : null;
      return cell === null ? run : { ...run, cell };
    });
  }

  private journaledCell(run: JournalRun, gpus: readonly string[]): CurrentCell | null {
    const { cell: cellId, execution_count: executionCount, started, label } = run;
    const received = this.received - 1000 * run.seconds;
    return cellId === null ? null : { cellId, execution: { executionCount, started, received }, label, gpus };
  }

  /** Return the ids of the runs whose reports are in the outputs of a notebook, and remember them. */
  private readOutputs(notebook: JournalNotebook): ReadonlySet<string> {
    const ids = reportedRuns(notebook.cells ?? []).map(({ id }) => id);
    ids.forEach(id => this.seenOf(notebook).reported.add(id));
    return new Set(ids);
  }

  /** Remember at once which cards the notebook has received: the user may remove one before the list is there. */
  private onLongExecution(notebook: JournalNotebook): void {
    this.seenOf(notebook).quietSince = this.clock.now();
    this.known.add([...this.readOutputs(notebook)]);
    this.refresh(ARRIVAL_MS);
  }

  private seenOf({ key, activity }: JournalNotebook): Seen {
    let seen = this.seen.get(key);
    if (seen === undefined) {
      const busySince = activity?.phase === 'idle' ? null : -Infinity;
      seen = { reported: new Set(), busySince, quietSince: -Infinity };
      this.seen.set(key, seen);
    }
    return seen;
  }

  /** Return the runs that last in a notebook, as far as the last list shows, the outermost first. */
  private runningIn(notebook: JournalNotebook): readonly JournalRun[] {
    const running = this.runs.filter(({ id, state }) => state === 'running' && !this.over.has(id));
    return runsOf(notebook, running)
      .filter(({ hasCell }) => hasCell)
      .map(({ run }) => run)
      .sort((one, other) => one.started - other.started);
  }

  private async load(): Promise<void> {
    this.isPending = true;
    this.requested = this.clock.now();
    const over = [...this.over];
    const result = await this.source.runs();
    this.isPending = false;
    if (result.kind === 'ok') {
      this.runs = result.value.runs;
      this.problem = result.value.problem;
      this.received = this.clock.now();
      // A run that has ended during the request may be in the list as running.
      over.forEach(id => this.over.delete(id));
      this.update();
    } else if (result.kind === 'absent') {
      this.isAbsent = true;
      this.runs = [];
      this.problem = null;
      this.update();
    } else {
      this.changes.emit(); // A view that shows a run visits again.
    }
    if (this.isOutdated) {
      this.isOutdated = false;
      this.refresh();
    }
  }

  /** Request the run that lasts, or the list if the kernel no longer runs it. */
  private async poll(): Promise<void> {
    const { running } = this;
    if (running === null) {
      this.refresh();
      return;
    }
    this.polled = this.clock.now();
    const result = await this.source.card(running.id);
    if (result.kind === 'ok' && result.value.run.state === 'running') {
      this.lastCard = result.value;
      this.changes.emit();
    } else {
      this.refresh();
    }
  }

  private scheduleUpdate(milliseconds: number): void {
    if (this.updateTimer !== null) {
      this.clock.cancel(this.updateTimer);
      this.updateTimer = null;
    }
    if (Number.isFinite(milliseconds)) {
      this.updateTimer = this.clock.after(Math.max(1, milliseconds), () => {
        this.updateTimer = null;
        this.update();
      });
    }
  }
}

/**
 * Return the runs of a notebook: those of its kernel or its path. A run of its path whose cell is gone is included; one
 * of its kernel is not, because two notebooks can share a kernel.
 */
export function runsOf(notebook: JournalNotebook, runs: readonly JournalRun[]): readonly MissingRun[] {
  const own = runs.filter(run => belongsTo(run, notebook));
  const cells = own.length === 0 ? new Set() : new Set([...(notebook.cells ?? [])].map(({ id }) => id));
  return own
    .map(run => ({ id: idOf(run), run, hasCell: cells.has(run.cell) }))
    .filter(({ run, hasCell }) => hasCell || run.path === notebook.path);
}

/**
 * Return whether the kernel is busy with something other than a cell that this page has started. If this is a cell, its
 * run may get into the journal later.
 */
function mayGetRun({ activity, runsOwnCell }: JournalNotebook): boolean {
  return activity?.phase === 'busy' && !runsOwnCell;
}

/** Return whether a run is of a notebook's kernel or path. Two notebooks can share a kernel. */
function belongsTo({ path, kernel }: JournalRun, notebook: JournalNotebook): boolean {
  return path === notebook.path || (kernel !== null && kernel === notebook.kernel);
}

/**
 * Find the cells of runs whose kernel does not know them, because the server runs the cells (jupyter-server-nbmodel).
 * Return, by the run's id, the id of the cell with the code of the run, or null if several cells have this code.
 */
function cellsByCode(runs: readonly JournalRun[], notebook: JournalNotebook): Map<string, string | null> {
  const found = new Map<string, string | null>();
  const own = runs.filter(run => run.cell === null && run.code !== null && belongsTo(run, notebook));
  const cells = own.length === 0 ? [] : [...(notebook.cells ?? [])].filter(({ outputs }) => outputs);
  const codes = cells.map(({ sharedModel }) => crc32(sharedModel.getSource()));
  for (const { id, code } of own) {
    const index = codes.indexOf(code ?? '');
    const cell = cells[index];
    if (cell !== undefined) {
      found.set(id, index === codes.lastIndexOf(code ?? '') ? cell.id : null);
    }
  }
  return found;
}
