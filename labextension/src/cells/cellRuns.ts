import { Signal, type ISignal } from '@lumino/signaling';

import { ClockSkew } from './clockSkew';
import { MemoryGrowth, type GpuGrowth } from './memoryGrowth';
import type { CellReport } from './report';
import type { CellModels, ReportReader } from './reportReader';
import type { CellRun } from './runTable';
import type { ActiveKernel } from '../kernel/activeKernel';
import type { StreamModel } from '../stream/streamModel';
import type { Clock } from '../clock';
import type { ICellRuns } from '../tokens';
import type { Band } from '../ui/chartBands';
import { took } from '../ui/format';

const TICK_MS = 1000;
const NO_BANDS: readonly Band[] = [];

/** A notebook, as far as its cells are concerned. */
export interface CellNotebook {
  /** Identifies the notebook. */
  readonly key: object;
  /** Null before it is loaded. */
  readonly models: CellModels | null;
  /** Scroll to a cell and select it. */
  reveal(cellId: string): void;
}

/** A cell that has begun and not ended. */
export interface StartedCell {
  readonly cellId: string;
  readonly executionCount: number | null;
  /** Epoch seconds by the clock of the kernel's machine. */
  readonly started: number;
  /** When this page received its start, in milliseconds of this page's clock. */
  readonly received: number;
}

/** The running cell with what it has taken so far. */
export interface RunningCell {
  readonly cellId: string;
  readonly executionCount: number | null;
  readonly seconds: number;
  /** Bytes that the kernel has taken since the cell began, null if unknown. */
  readonly delta: number | null;
  readonly gpus: readonly GpuGrowth[];
}

/** The running cell of each notebook, according to the kernels' messages. A queued cell does not run yet. */
export class RunningCells {
  private readonly cells = new WeakMap<object, { readonly request: string; readonly cell: StartedCell }>();
  private readonly changes = new Signal<this, object>(this);

  /** Emitted with the notebook when another of its cells runs, or none any more. */
  get changed(): ISignal<this, object> {
    return this.changes;
  }

  /** Return the running cell of `notebook`, null if none runs. */
  get(notebook: object): StartedCell | null {
    return this.cells.get(notebook)?.cell ?? null;
  }

  /** Begin a cell that the execute request with this id has started. */
  begin(notebook: object, request: string, cell: StartedCell): void {
    this.cells.set(notebook, { request, cell });
    this.changes.emit(notebook);
  }

  /** End the cell of the execute request with this id; null ends whichever cell runs, as after a restart. */
  end(notebook: object, request: string | null): void {
    const running = this.cells.get(notebook);
    if (running !== undefined && (request === null || running.request === request)) {
      this.cells.delete(notebook);
      this.changes.emit(notebook);
    }
  }
}

/** The data that `CellRuns` combines with the reports. */
export interface CellRunSources {
  readonly model: Pick<StreamModel, 'sample'>;
  readonly kernels: Pick<ActiveKernel, 'changed' | 'state' | 'view'>;
}

/** The runs of the active notebook's cells and the running cell, for the list of cells and for bands on charts. */
export class CellRuns implements ICellRuns {
  readonly clockSkew = new ClockSkew();
  private notebook: CellNotebook | null = null;
  private visible = false;
  private timer: number | null = null;
  private readonly growth = new MemoryGrowth();
  private bandsByGpu: ReadonlyMap<string, readonly Band[]> | null = null;
  private readonly changes = new Signal<this, void>(this);

  constructor(
    private readonly sources: CellRunSources,
    private readonly reader: ReportReader,
    private readonly runningCells: RunningCells,
    private readonly clock: Clock
  ) {
    reader.changed.connect(this.onChanged, this);
    runningCells.changed.connect(this.onRunningChanged, this);
    sources.kernels.changed.connect(this.onKernelChanged, this);
  }

  /** Emitted while a view is visible: when something may have changed, and every second while a cell runs. */
  get changed(): ISignal<this, void> {
    return this.changes;
  }

  /** Whether a notebook is open. */
  get hasNotebook(): boolean {
    return this.notebook !== null;
  }

  /** The runs in the notebook's order; the same array until one changes. */
  get runs(): readonly CellRun[] {
    return this.reader.runs;
  }

  /** How many reports another version has written. */
  get incompatible(): number {
    return this.reader.incompatible;
  }

  /** The running cell, null if none runs. */
  get running(): RunningCell | null {
    const cell = this.runningCell();
    return cell === null
      ? null
      : {
          cellId: cell.cellId,
          executionCount: cell.executionCount,
          seconds: (this.clock.now() - cell.received) / 1000,
          delta: this.growth.bytes,
          gpus: this.growth.gpus
        };
  }

  /** Set whether a view is visible: outputs are read only then. */
  setVisible(visible: boolean): void {
    this.visible = visible;
    this.reader.setVisible(visible);
    this.schedule();
  }

  /** Set the active notebook, or its cells. */
  setNotebook(notebook: CellNotebook | null): void {
    if (notebook?.key !== this.notebook?.key) {
      this.growth.reset();
      this.clockSkew.resetKernel();
    }
    this.notebook = notebook;
    this.reader.setCells(notebook?.models ?? null);
    this.onChanged();
    this.schedule();
  }

  /** Scroll to a cell of the active notebook and select it. */
  reveal(cellId: string): void {
    this.notebook?.reveal(cellId);
  }

  /** Return when cells used this GPU, sorted by start; empty if the kernel's and the server's clocks differ. */
  bands(uuid: string): readonly Band[] {
    const { sample } = this.sources.model;
    if (sample !== null) {
      this.clockSkew.observeServer(sample.time, Date.now() / 1000);
    }
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
    for (const { report } of this.runs) {
      const band = bandOf(report);
      if (band !== null) {
        report.gpus.forEach(({ uuid }) => {
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
      // Of two with the same start, the longer one is drawn first.
      bands.sort((a, b) => a.from - b.from || (b.until ?? Infinity) - (a.until ?? Infinity));
    }
    return all;
  }

  /** The GPUs with a CUDA context of the notebook, else all: which ones a cell uses is known only when it has ended. */
  private gpusInUse(): readonly string[] {
    const gpus = this.sources.kernels.state?.gpus ?? [];
    const own = gpus.filter(({ context }) => context).map(({ uuid }) => uuid);
    return own.length > 0 ? own : (this.sources.model.sample?.gpus ?? []).map(({ uuid }) => uuid);
  }

  private runningCell(): StartedCell | null {
    const { notebook } = this;
    // An idle kernel runs nothing, even if the message of the cell's end was lost.
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
    this.growth.setState(view.silentFor === null ? state : null);
    this.onChanged();
    this.schedule();
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

/** Return a run's execution count and label, such as `[3] train`. */
export function runName({ executionCount, label }: Pick<CellReport, 'executionCount' | 'label'>): string {
  const count = executionCount === null ? '' : `[${String(executionCount)}]`;
  return [count, label ?? ''].filter(part => part !== '').join(' ');
}

function bandOf(report: CellReport): Band | null {
  const { started, duration, executionCount } = report;
  if (started === null || duration === null) {
    return null;
  }
  return {
    from: started,
    until: started + duration,
    label: executionCount === null ? '' : String(executionCount),
    title: [runName(report), took(duration)].filter(part => part !== '').join(' · ')
  };
}
