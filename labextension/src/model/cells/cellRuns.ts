import { Signal, type ISignal } from '@lumino/signaling';

import { MemoryGrowth, type GpuGrowth } from './memoryGrowth';
import { firstCodeLine, type CellModels, type ReportReader } from './reportReader';
import type { CellRun } from './runTable';
import type { Execution, KernelActivity } from '../kernel/kernelActivity';
import type { IKernels } from '../kernel/kernels';
import type { StreamModel } from '../stream/streamModel';
import { ClockOffset, type Clock } from '../clock';
import type { Band } from './band';
import { elapsedTime } from '../format';

/**
 * Clocks that differ by at most this many seconds count as equal: on a time axis, the difference is not
 * visible.
 */
const TOLERANCE_S = 2;

/** The parts of a `ClockSkew` that views use. */
export type IClockSkew = Readonly<Pick<ClockSkew, 'seconds' | 'onServer' | 'pageOnServer'>>;

/**
 * Compares the kernel's clock, from which the times of runs are taken, with the server's clock, from which
 * the times of samples are taken. All times are in epoch seconds.
 */
export class ClockSkew {
  /** The clock of the kernel; null if there is no kernel. */
  kernel: ClockOffset | null = null;
  private readonly server = new ClockOffset();
  private lastSample = NaN;

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
    const [kernel, server] = [this.kernel?.seconds ?? null, this.server.seconds];
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
  /** What the notebook's kernel is doing; null if the notebook has no kernel. */
  readonly activity: KernelActivity | null;
  /** The notebook's cells; null before the notebook is loaded. */
  readonly models: CellModels | null;
  /** Return the id of the notebook's cell that is executed; null if it is a cell of another document. */
  cellOf(execution: Execution): string | null;
  /** Scroll to a cell and select it. */
  reveal(cellId: string): void;
  /** Insert a cell with this code below the active cell, and run it. */
  run(code: string): void;
}

/** A notebook whose kernel has executed a cell. */
export interface ExecutedNotebook {
  readonly notebook: object;
  readonly activity: Pick<KernelActivity, 'hasRun'>;
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

/** The running cell, as this page has started it or as the journal has it. */
export interface CurrentCell {
  readonly cellId: string;
  readonly execution: Pick<Execution, 'executionCount' | 'started' | 'received'>;
  /** The label of the run; null if there is none or it is unknown. */
  readonly label: string | null;
  /** UUIDs of the GPUs that the cell uses; empty if unknown. */
  readonly gpus: readonly string[];
}

/** What the journal of runs knows about the active notebook beyond its outputs. */
export interface NotebookJournal {
  /** Null unless a cell is running. */
  readonly running: CurrentCell | null;
}

/** The running cell with its run time and memory growth up to now. */
export interface RunningCell {
  readonly cellId: string;
  readonly executionCount: number | null;
  /** The label of the run, if known, or the first line of the cell's code; empty if there is none. */
  readonly code: string;
  readonly seconds: number;
  /** Bytes by which the kernel's memory has grown since the cell began; null if unknown. */
  readonly delta: number | null;
  readonly gpus: readonly GpuGrowth[];
}

/** The sources of the data that `CellRuns` combines with the reports. */
export interface CellRunSources {
  readonly model: Pick<StreamModel, 'sample'>;
  readonly kernels: Pick<IKernels, 'changed' | 'state' | 'view'>;
}

/**
 * The runs of the active notebook's cells, and its running cell. The list of cells and the bands on charts
 * show them.
 */
export class CellRuns {
  private readonly skew = new ClockSkew();
  /** Emitted when a cell of any open notebook has ended. */
  readonly finished = new Signal<this, FinishedCell>(this);
  readonly executed = new Signal<this, ExecutedNotebook>(this);
  private notebook: CellNotebook | null = null;
  private fromJournal: NotebookJournal | null = null;
  private readonly visibleViews = new Set<object>();
  private timer: number | null = null;
  private readonly growth = new MemoryGrowth();
  private bandsByGpu: ReadonlyMap<string, readonly Band[]> | null = null;
  private readonly changes = new Signal<this, void>(this);

  constructor(
    private readonly sources: CellRunSources,
    private readonly reader: ReportReader,
    private readonly clock: Clock
  ) {
    reader.changed.connect(this.onChanged, this);
    this.executed.connect(this.onExecuted, this);
    sources.kernels.changed.connect(this.onKernelChanged, this);
  }

  get changed(): ISignal<this, void> {
    return this.changes;
  }

  get clockSkew(): IClockSkew {
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
          executionCount: cell.execution.executionCount,
          code: cell.label ?? this.codeOf(cell.cellId),
          seconds: (this.clock.now() - cell.execution.received) / 1000,
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
    const activity = notebook?.activity ?? null;
    if (notebook?.key !== this.notebook?.key || activity !== this.notebook?.activity) {
      this.growth.reset();
      this.fromJournal = null;
    }
    this.skew.kernel = activity?.clockOffset ?? null;
    this.notebook = notebook;
    this.reader.setCells(notebook?.models ?? null);
    this.onChanged();
    this.schedule();
  }

  get journal(): NotebookJournal | null {
    return this.fromJournal;
  }

  setJournal(notebook: object, journal: NotebookJournal | null): void {
    if (notebook === this.notebook?.key && journal !== this.fromJournal) {
      this.fromJournal = journal;
      this.onChanged();
      this.schedule();
    }
  }

  reveal(cellId: string): void {
    this.notebook?.reveal(cellId);
  }

  comparable({ trusted, report }: CellRun): boolean {
    const activity = this.notebook?.activity;
    return this.sources.kernels.state !== null && trusted && activity?.hasRun(report) === true;
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
      const { executionCount, started } = cell.execution;
      const label = executionCount === null ? '' : String(executionCount);
      for (const uuid of this.gpusInUse(cell)) {
        add(uuid, { from: started, until: null, label, title: `[${label}]` });
      }
    }
    for (const bands of all.values()) {
      // If two bands have the same start, draw the longer one first, so that it does not cover the other one.
      bands.sort((a, b) => a.from - b.from || (b.until ?? Infinity) - (a.until ?? Infinity));
    }
    return all;
  }

  /**
   * Return the GPUs on whose charts the running cell has a band: those of the journal, else those on which the
   * notebook has a CUDA context, or all GPUs if it has no context. Which of them the cell uses is known only after
   * it has ended.
   */
  private gpusInUse(cell: CurrentCell): readonly string[] {
    if (cell.gpus.length > 0) {
      return cell.gpus;
    }
    const gpus = this.sources.kernels.state?.gpus ?? [];
    const own = gpus.filter(({ context }) => context).map(({ uuid }) => uuid);
    return own.length > 0 ? own : (this.sources.model.sample?.gpus ?? []).map(({ uuid }) => uuid);
  }

  private codeOf(cellId: string): string {
    const models = [...(this.notebook?.models ?? [])];
    const cell = models.find(({ id }) => id === cellId);
    return cell === undefined ? '' : firstCodeLine(cell);
  }

  /** The running cell that this page has started, or else the one of the journal. */
  private runningCell(): CurrentCell | null {
    // While the connection is lost, it is unknown what the kernel runs.
    const isBusy = this.notebook?.activity?.phase === 'busy';
    return isBusy ? (this.ownCell() ?? this.fromJournal?.running ?? null) : null;
  }

  /** The running cell that this page has started. */
  private ownCell(): CurrentCell | null {
    const { notebook } = this;
    for (const execution of notebook?.activity?.executions ?? []) {
      const cellId = notebook?.cellOf(execution) ?? null;
      if (cellId !== null) {
        return { execution, cellId, label: null, gpus: [] };
      }
    }
    return null;
  }

  private onExecuted(_: this, { notebook }: ExecutedNotebook): void {
    if (notebook === this.notebook?.key) {
      if (this.ownCell() === null) {
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
