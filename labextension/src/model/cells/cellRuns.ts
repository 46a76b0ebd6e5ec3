import { Signal, type ISignal } from '@lumino/signaling';

import { MemoryGrowth, type GpuGrowth } from './memoryGrowth';
import { firstCodeLine, type CellModels, type ReportReader } from './reportReader';
import type { CellReport } from './report';
import type { CellRun } from './runTable';
import type { ActiveKernel } from '../kernel/activeKernel';
import type { StreamModel } from '../stream/streamModel';
import type { Clock } from '../clock';
import type { Band } from './band';
import { elapsedTime } from '../format';

/**
 * Clocks that differ by at most this many seconds count as equal: on a time axis, the difference is not
 * visible.
 */
const TOLERANCE_S = 2;
/** The offset is computed from this many of the latest observations. */
const WINDOW = 16;

/**
 * The offset of a remote clock from this page's clock, computed from the times in its messages.
 *
 * A delayed message makes the remote clock appear to be behind, never ahead, so the largest offset is the
 * best estimate.
 */
class ClockOffset {
  private readonly offsets: number[] = [];

  /** Add an observation: the remote clock showed `time` when this page's clock showed `now`. */
  observe(time: number, now: number): void {
    if (Number.isFinite(time)) {
      this.offsets.push(time - now);
      this.offsets.splice(0, this.offsets.length - WINDOW);
    }
  }

  /** Seconds by which the remote clock is ahead of this page's clock; null before the first observation. */
  get seconds(): number | null {
    return this.offsets.length === 0 ? null : Math.max(...this.offsets);
  }
}

/**
 * Compares the kernel's clock, from which the times of runs are taken, with the server's clock, from which
 * the times of samples are taken. All times are in epoch seconds.
 */
export class ClockSkew {
  private kernel = new ClockOffset();
  private readonly server = new ClockOffset();
  private lastSample = NaN;

  /** Forget the kernel's clock when the kernel changes, since the new kernel may run on another machine. */
  resetKernel(): void {
    this.kernel = new ClockOffset();
  }

  /** Add an observation of the kernel's clock: a message with the timestamp `date` arrived at `now`. */
  observeKernel(date: string, now: number): void {
    this.kernel.observe(Date.parse(date) / 1000, now);
  }

  /**
   * Add an observation of the server's clock: the newest sample has the timestamp `time`. Further calls with
   * the same sample are ignored.
   */
  observeServer(time: number, now: number): void {
    if (time !== this.lastSample) {
      this.lastSample = time;
      this.server.observe(time, now);
    }
  }

  /**
   * Seconds by which the kernel's clock is ahead of the server's; null if the clocks agree or one of them is
   * unknown.
   */
  get seconds(): number | null {
    const [kernel, server] = [this.kernel.seconds, this.server.seconds];
    if (kernel === null || server === null || Math.abs(kernel - server) <= TOLERANCE_S) {
      return null;
    }
    return kernel - server;
  }

  /** Return a time of the kernel's clock as a time of the server's clock. */
  onServer(time: number): number {
    return time - (this.seconds ?? 0);
  }

  /** Return a time of this page's clock as a time of the server's clock. */
  pageOnServer(time: number): number {
    return time + (this.server.seconds ?? 0);
  }
}

/** Two execution counts, the only form of the names of two runs in code. */
export const TWO_COUNTS = /^(\d+) (\d+)$/;
const TICK_MS = 1000;
const NO_BANDS: readonly Band[] = [];

/** The parts of a notebook that the list of cells needs. */
export interface CellNotebook {
  /** Identifies the notebook. */
  readonly key: object;
  /** The notebook's cells; null before the notebook is loaded. */
  readonly models: CellModels | null;
  /** Scroll to a cell and select it. */
  reveal(cellId: string): void;
  /** Insert a cell with this code below the active cell, and run it. */
  run(code: string): void;
}

/** A cell that has started and has not ended yet. */
export interface StartedCell {
  readonly cellId: string;
  readonly executionCount: number | null;
  /** Start of the cell in epoch seconds, by the clock of the kernel's machine. */
  readonly started: number;
  /** When this page received the message about the start, in milliseconds of this page's clock. */
  readonly received: number;
}

/** A cell that has run to its end. */
export interface FinishedCell {
  /** The notebook's file name. */
  readonly notebook: string;
  readonly executionCount: number | null;
  /** Start of the cell in epoch seconds, by the clock of the kernel's machine. */
  readonly started: number;
  /** Seconds from the message about the cell's start to the message about its end. */
  readonly seconds: number;
  /** Whether the kernel's process has died while the cell was running. */
  readonly died: boolean;
  /** Return the errors and the last reports in the cell's outputs, in the notebook format. */
  readonly outputs: () => readonly unknown[];
  /** Scroll to the cell and select it. */
  readonly reveal: () => void;
}

/** The running cell with its run time and memory growth up to now. */
export interface RunningCell {
  readonly cellId: string;
  readonly executionCount: number | null;
  /** The first line of the cell's code; empty if there is none. */
  readonly code: string;
  readonly seconds: number;
  /** Bytes by which the kernel's memory has grown since the cell began; null if unknown. */
  readonly delta: number | null;
  readonly gpus: readonly GpuGrowth[];
}

/**
 * Tracks the running cell of each notebook from the kernels' messages, and which cells the present process of
 * its kernel has run. A queued cell is not running yet.
 */
export class RunningCells {
  /** The starts of the cells that the present process of each notebook's kernel has run, by execution count. */
  private readonly starts = new WeakMap<object, Map<number, number>>();
  private readonly cells = new WeakMap<object, { readonly request: string; readonly cell: StartedCell }>();
  private readonly changes = new Signal<this, object>(this);

  /** Emitted with the notebook when one of its cells starts or ends, or the process of its kernel has ended. */
  get changed(): ISignal<this, object> {
    return this.changes;
  }

  /** Return the running cell of `notebook`, or null if no cell runs. */
  get(notebook: object): StartedCell | null {
    return this.cells.get(notebook)?.cell ?? null;
  }

  /** Set the running cell of `notebook`, which was started by the execute request with the id `request`. */
  begin(notebook: object, request: string, cell: StartedCell): void {
    this.cells.set(notebook, { request, cell });
    const { executionCount, started } = cell;
    let starts = this.starts.get(notebook);
    // A count that was used before is that of a new process.
    if (starts === undefined || (executionCount !== null && executionCount <= Math.max(...starts.keys()))) {
      starts = new Map();
      this.starts.set(notebook, starts);
    }
    if (executionCount !== null) {
      starts.set(executionCount, started);
    }
    this.changes.emit(notebook);
  }

  /**
   * End the running cell if the execute request with the id `request` started it. If `request` is null, the
   * kernel's process has ended: end any running cell. Return the ended cell; null if there is none.
   */
  end(notebook: object, request: string | null): StartedCell | null {
    const running = this.cells.get(notebook);
    const cell =
      running === undefined || (request !== null && running.request !== request) ? null : running.cell;
    const forgotten = request === null && this.starts.delete(notebook);
    if (cell !== null) {
      this.cells.delete(notebook);
    }
    if (cell !== null || forgotten) {
      this.changes.emit(notebook);
    }
    return cell;
  }

  /**
   * Return whether this page has seen the present process of a notebook's kernel run the cell of this report,
   * and the cells with these execution counts.
   */
  knows(notebook: object, { executionCount, started }: CellReport, counts: readonly number[] = []): boolean {
    const starts = this.starts.get(notebook);
    const start = executionCount === null ? undefined : starts?.get(executionCount);
    return (
      start !== undefined &&
      started !== null &&
      started > start - 1 && // The two times are from two readings of the clock.
      counts.every(count => starts?.has(count) === true)
    );
  }
}

/** The sources of the data that `CellRuns` combines with the reports. */
export interface CellRunSources {
  readonly model: Pick<StreamModel, 'sample'>;
  readonly kernels: Pick<ActiveKernel, 'changed' | 'state' | 'view'>;
}

/**
 * The runs of the active notebook's cells, and its running cell. The list of cells and the bands on charts
 * show them.
 */
export class CellRuns {
  private readonly skew = new ClockSkew();
  /** Emitted when a cell of any open notebook has ended. */
  readonly finished = new Signal<this, FinishedCell>(this);
  private notebook: CellNotebook | null = null;
  private readonly visibleViews = new Set<object>();
  private timer: number | null = null;
  private readonly growth = new MemoryGrowth();
  private bandsByGpu: ReadonlyMap<string, readonly Band[]> | null = null;
  private readonly changes = new Signal<this, void>(this);

  constructor(
    private readonly sources: CellRunSources,
    private readonly reader: ReportReader,
    readonly runningCells: RunningCells,
    private readonly clock: Clock
  ) {
    reader.changed.connect(this.onChanged, this);
    runningCells.changed.connect(this.onRunningChanged, this);
    sources.kernels.changed.connect(this.onKernelChanged, this);
  }

  get changed(): ISignal<this, void> {
    return this.changes;
  }

  get clockSkew(): ClockSkew {
    const { sample } = this.sources.model;
    if (sample !== null) {
      this.skew.observeServer(sample.time, Date.now() / 1000);
    }
    return this.skew;
  }

  get hasNotebook(): boolean {
    return this.notebook !== null;
  }

  get runs(): readonly CellRun[] {
    return this.reader.runs;
  }

  get incompatible(): number {
    return this.reader.incompatible;
  }

  get reports(): number {
    return this.reader.reports;
  }

  get running(): RunningCell | null {
    const cell = this.runningCell();
    return cell === null
      ? null
      : {
          cellId: cell.cellId,
          executionCount: cell.executionCount,
          code: this.codeOf(cell.cellId),
          seconds: (this.clock.now() - cell.received) / 1000,
          delta: this.growth.bytes,
          gpus: this.growth.gpus
        };
  }

  setVisible(view: object, visible: boolean): void {
    if (visible) {
      this.visibleViews.add(view);
    } else {
      this.visibleViews.delete(view);
    }
    this.reader.setVisible(this.visible);
    this.schedule();
  }

  /** Set the active notebook and its cells, or null if no notebook is open. */
  setNotebook(notebook: CellNotebook | null): void {
    if (notebook?.key !== this.notebook?.key) {
      this.growth.reset();
      this.skew.resetKernel();
    }
    this.notebook = notebook;
    this.reader.setCells(notebook?.models ?? null);
    this.onChanged();
    this.schedule();
  }

  reveal(cellId: string): void {
    this.notebook?.reveal(cellId);
  }

  comparable({ trusted, report }: CellRun): boolean {
    const { notebook } = this;
    return (
      notebook !== null &&
      this.sources.kernels.state !== null &&
      trusted &&
      this.runningCells.knows(notebook.key, report)
    );
  }

  compare(one: CellRun, other: CellRun): void {
    const code = compareCode(one, other);
    if (code !== '') {
      this.notebook?.run(code);
    }
  }

  /**
   * Return the time ranges in which cells used the GPU with this UUID, sorted by start. If the clocks of the
   * kernel and the server differ, return no ranges.
   */
  bands(uuid: string): readonly Band[] {
    if (this.clockSkew.seconds !== null) {
      return NO_BANDS;
    }
    this.bandsByGpu ??= this.allBands();
    return this.bandsByGpu.get(uuid) ?? NO_BANDS;
  }

  private allBands(): ReadonlyMap<string, readonly Band[]> {
    const all = new Map<string, Band[]>();
    const add = (uuid: string, band: Band): void => {
      const bands = all.get(uuid) ?? [];
      bands.push(band);
      all.set(uuid, bands);
    };
    for (const run of this.runs) {
      const band = bandOf(run);
      // A report that anyone may have written must not mark what this machine's GPUs did.
      if (band !== null && run.trusted) {
        run.report.shown.forEach(uuid => {
          add(uuid, band);
        });
      }
    }
    const cell = this.runningCell();
    if (cell !== null) {
      const label = cell.executionCount === null ? '' : String(cell.executionCount);
      for (const uuid of this.gpusInUse()) {
        add(uuid, { from: cell.started, until: null, label, title: `[${label}]` });
      }
    }
    for (const bands of all.values()) {
      // If two bands have the same start, draw the longer one first, so that it does not cover the other one.
      bands.sort((a, b) => a.from - b.from || (b.until ?? Infinity) - (a.until ?? Infinity));
    }
    return all;
  }

  /**
   * Return the GPUs on whose charts the running cell has a band: those on which the notebook has a CUDA
   * context, or all GPUs if it has no context. Which of them the cell uses is known only after it has ended.
   */
  private gpusInUse(): readonly string[] {
    const gpus = this.sources.kernels.state?.gpus ?? [];
    const own = gpus.filter(({ context }) => context).map(({ uuid }) => uuid);
    return own.length > 0 ? own : (this.sources.model.sample?.gpus ?? []).map(({ uuid }) => uuid);
  }

  private codeOf(cellId: string): string {
    const models = [...(this.notebook?.models ?? [])];
    const cell = models.find(({ id }) => id === cellId);
    return cell === undefined ? '' : firstCodeLine(cell);
  }

  private runningCell(): StartedCell | null {
    const { notebook } = this;
    // An idle kernel runs no cell, even if the message about the end of the last cell was lost.
    return notebook === null || !this.sources.kernels.view.busy ? null : this.runningCells.get(notebook.key);
  }

  private onRunningChanged(_: RunningCells, notebook: object): void {
    if (notebook === this.notebook?.key) {
      if (this.runningCells.get(notebook) === null) {
        this.growth.end();
      } else {
        this.growth.begin();
      }
      this.onChanged();
      this.schedule();
    }
  }

  private onKernelChanged(): void {
    const { state, view } = this.sources.kernels;
    const { sample } = this.sources.model;
    this.growth.setState(view.silentFor === null ? state : null, sample?.gpus ?? []);
    this.onChanged();
    this.schedule();
  }

  private get visible(): boolean {
    return this.visibleViews.size > 0;
  }

  private onChanged(): void {
    this.bandsByGpu = null;
    if (this.visible) {
      this.changes.emit();
    }
  }

  private schedule(): void {
    const needed = this.visible && this.runningCell() !== null;
    if (needed && this.timer === null) {
      this.timer = this.clock.after(TICK_MS, () => {
        this.timer = null;
        this.changes.emit();
        this.schedule();
      });
    } else if (!needed && this.timer !== null) {
      this.clock.cancel(this.timer);
      this.timer = null;
    }
  }
}

/**
 * Return a run's execution count and label, such as `[3] train`. A run without a label has the first line of
 * its code instead.
 */
export function runName({
  report: { executionCount, label },
  code
}: Pick<CellRun, 'report' | 'code'>): string {
  const count = executionCount === null ? '' : `[${String(executionCount)}]`;
  return [count, label ?? code].filter(part => part !== '').join(' ');
}

/**
 * Return the code that compares two runs, the earlier one first; an empty text if a run has no execution count.
 *
 * The code contains no labels: anyone may have written them, and IPython runs the Python code between braces in
 * the line of a magic.
 */
export function compareCode(one: CellRun, other: CellRun): string {
  const runs = [one, other].sort((a, b) => (a.report.started ?? 0) - (b.report.started ?? 0));
  const counts = runs.map(({ report }) => String(report.executionCount)).join(' ');
  return TWO_COUNTS.test(counts) ? `%gpu compare ${counts}` : '';
}

/**
 * Return the keys of the runs that `%gpu compare` finds by their execution counts. Of several runs with the same
 * count, it finds the last one.
 */
export function comparableKeys(runs: readonly CellRun[]): ReadonlySet<string> {
  const last = new Map<number, CellRun>();
  for (const run of runs) {
    const { executionCount, started } = run.report;
    if (run.trusted && executionCount !== null) {
      const before = last.get(executionCount)?.report.started ?? 0;
      if ((started ?? 0) >= before) {
        last.set(executionCount, run);
      }
    }
  }
  return new Set([...last.values()].map(({ key }) => key));
}

function bandOf(run: CellRun): Band | null {
  const { started, duration, executionCount } = run.report;
  if (started === null || duration === null) {
    return null;
  }
  return {
    from: started,
    until: started + duration,
    label: executionCount === null ? '' : String(executionCount),
    title: [runName(run), elapsedTime(duration)].filter(part => part !== '').join(' · ')
  };
}
