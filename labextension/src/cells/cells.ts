import { Signal, type ISignal } from '@lumino/signaling';

import { Clocks } from './clocks';
import { Growth, type GpuGrowth } from './growth';
import type { Preferences } from './preferences';
import type { CellModels, Reader } from './reader';
import type { CellReport } from './report';
import type { Row } from './rows';
import type { Run, Runs } from './runs';
import type { Kernels } from '../kernel/kernels';
import type { StreamModel } from '../stream/streamModel';
import type { Clock } from '../clock';
import type { Band } from '../ui/chartBands';
import { took } from '../ui/format';

const TICK_MS = 1000;
const NO_BANDS: readonly Band[] = [];

/** The notebook in front, as its cells are told of. */
export interface NotebookInFront {
  /** What tells it from others. */
  readonly key: object;
  /** null before it is loaded. */
  readonly models: CellModels | null;
  /** Go to a cell. */
  reveal(cellId: string): void;
}

/** The cell that runs now. */
export interface Running {
  readonly cellId: string;
  readonly executionCount: number | null;
  readonly seconds: number;
  /** Bytes that the kernel has taken since it began; null where that is not known. */
  readonly delta: number | null;
  readonly gpus: readonly GpuGrowth[];
}

/** What a view needs of the stream and of the kernel. */
export interface Surroundings {
  readonly model: Pick<StreamModel, 'sample'>;
  readonly kernels: Pick<Kernels, 'changed' | 'state' | 'view'>;
}

/** What the cells of the notebook in front did, and which one runs: for lists, and for bands on charts. */
export class Cells {
  readonly clocks = new Clocks();
  private notebook: NotebookInFront | null = null;
  private looking = false;
  private timer: number | null = null;
  private readonly growth = new Growth();
  private byGpu: ReadonlyMap<string, readonly Band[]> | null = null;
  private readonly changes = new Signal<this, void>(this);

  constructor(
    private readonly around: Surroundings,
    private readonly reader: Reader,
    private readonly runs: Runs,
    readonly preferences: Preferences,
    private readonly timers: Clock
  ) {
    reader.changed.connect(this.tell, this);
    runs.changed.connect(this.ran, this);
    preferences.changed.connect(this.tell, this);
    around.kernels.changed.connect(this.heard, this);
  }

  /** Emitted when any of it may have changed, and once a second while a cell runs and somebody looks. */
  get changed(): ISignal<this, void> {
    return this.changes;
  }

  /** Whether there is a notebook in front. */
  get present(): boolean {
    return this.notebook !== null;
  }

  /** One for each run, in the notebook's order; the same list until one changes. */
  get rows(): readonly Row[] {
    return this.reader.rows;
  }

  /** How many reports there are that another version wrote. */
  get foreign(): number {
    return this.reader.foreign;
  }

  /** The cell that runs now, or null. */
  get running(): Running | null {
    const run = this.run();
    return run === null
      ? null
      : {
          cellId: run.cellId,
          executionCount: run.executionCount,
          seconds: (this.timers.now() - run.heard) / 1000,
          delta: this.growth.bytes,
          gpus: this.growth.gpus
        };
  }

  /** Somebody looks, or nobody does any more: then nothing is read. */
  look(looking: boolean): void {
    this.looking = looking;
    this.reader.look(looking);
    this.tick();
  }

  /** Another notebook is in front, or it has other cells. */
  show(notebook: NotebookInFront | null): void {
    if (notebook?.key !== this.notebook?.key) {
      this.growth.forget();
      this.clocks.forgetKernel();
    }
    this.notebook = notebook;
    this.reader.read(notebook?.models ?? null);
    this.tell();
    this.tick();
  }

  /** Go to a cell of the notebook in front. */
  reveal(cellId: string): void {
    this.notebook?.reveal(cellId);
  }

  /** When cells used that GPU, sorted by their start; empty where the clocks disagree. */
  bands(uuid: string): readonly Band[] {
    const sample = this.around.model.sample;
    if (sample !== null) {
      this.clocks.heardServer(sample.time, Date.now() / 1000);
    }
    if (this.clocks.disagreement !== null) {
      return NO_BANDS;
    }
    this.byGpu ??= this.allBands();
    return this.byGpu.get(uuid) ?? NO_BANDS;
  }

  private allBands(): ReadonlyMap<string, readonly Band[]> {
    const found = new Map<string, Band[]>();
    const put = (uuid: string, band: Band): void => {
      const bands = found.get(uuid) ?? [];
      bands.push(band);
      found.set(uuid, bands);
    };
    for (const { report } of this.rows) {
      const band = bandOf(report);
      if (band !== null) {
        report.gpus.forEach(({ uuid }) => {
          put(uuid, band);
        });
      }
    }
    const run = this.run();
    if (run !== null) {
      const label = run.executionCount === null ? '' : String(run.executionCount);
      for (const uuid of this.gpusInUse()) {
        put(uuid, { from: run.started, until: null, label, title: `[${label}]` });
      }
    }
    for (const bands of found.values()) {
      // Of two that begin together the longer one lies below.
      bands.sort((a, b) => a.from - b.from || (b.until ?? Infinity) - (a.until ?? Infinity));
    }
    return found;
  }

  /** Those on which the notebook has a CUDA context; which GPU a cell uses is known only when it has ended. */
  private gpusInUse(): readonly string[] {
    const gpus = this.around.kernels.state?.gpus ?? [];
    const own = gpus.filter(({ context }) => context).map(({ uuid }) => uuid);
    return own.length > 0 ? own : (this.around.model.sample?.gpus ?? []).map(({ uuid }) => uuid);
  }

  private run(): Run | null {
    const { notebook } = this;
    // Where the end of a cell was not heard of, the kernel's being idle tells it.
    return notebook === null || !this.around.kernels.view.busy ? null : this.runs.of(notebook.key);
  }

  private ran(_: Runs, notebook: object): void {
    if (notebook === this.notebook?.key) {
      if (this.runs.of(notebook) === null) {
        this.growth.ended();
      } else {
        this.growth.began();
      }
      this.tell();
      this.tick();
    }
  }

  private heard(): void {
    const { state, view } = this.around.kernels;
    this.growth.heard(view.silentFor === null ? state : null);
    this.tell();
    this.tick();
  }

  private tell(): void {
    this.byGpu = null;
    if (this.looking) {
      this.changes.emit();
    }
  }

  private tick(): void {
    const ticks = this.looking && this.run() !== null;
    if (ticks && this.timer === null) {
      this.timer = this.timers.after(TICK_MS, () => {
        this.timer = null;
        this.changes.emit();
        this.tick();
      });
    } else if (!ticks && this.timer !== null) {
      this.timers.cancel(this.timer);
      this.timer = null;
    }
  }
}

/** A run by its number and its label: `[3] train`. */
export function nameOf({ executionCount, label }: Pick<CellReport, 'executionCount' | 'label'>): string {
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
    title: [nameOf(report), took(duration)].filter(part => part !== '').join(' · ')
  };
}
