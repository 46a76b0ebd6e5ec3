import { Signal, type ISignal } from '@lumino/signaling';

import { readReport, REPORT_MIME, type CellReport } from './report';
import { keyOf, type Row } from './rows';
import type { Clock } from '../clock';

/** Outputs come many a second; the list is read again at most this often. */
const GATHER_MS = 200;
const WITH_DATA: ReadonlySet<string> = new Set(['display_data', 'execute_result', 'update_display_data']);

/** What is needed of one output: JupyterLab's own models have it. */
export interface Output {
  readonly type: string;
  /** Its bundle by reference, where `data` would be a copy. */
  toJSON(): object;
}

/** What is needed of a change of outputs. */
export interface OutputsChange {
  readonly oldValues: readonly Output[];
  readonly newValues: readonly Output[];
}

/** What is needed of a cell's outputs. */
export interface Outputs {
  readonly length: number;
  readonly changed: ISignal<unknown, OutputsChange>;
  get(place: number): Output;
}

/** What is needed of a cell; those without outputs are no code. */
export interface CellModel {
  readonly id: string;
  readonly outputs?: Outputs;
}

/** What is needed of a notebook's cells. */
export interface CellModels extends Iterable<CellModel> {
  readonly changed: ISignal<unknown, unknown>;
}

interface Found {
  readonly reports: readonly CellReport[];
  /** Reports that another version wrote. */
  readonly foreign: number;
}

/**
 * The reports in the outputs of one notebook. Read while somebody looks, and then only where something changed: a
 * cell that prints a thousand lines costs one look at each line's type.
 */
export class Reader {
  private cells: CellModels | null = null;
  private looking = false;
  private timer: number | null = null;
  private moved = false;
  private readonly dirty = new Set<CellModel>();
  private readonly ofOutputs = new Map<unknown, CellModel>();
  private readonly found = new Map<CellModel, Found>();
  /** Reports do not change: what was read of one is kept with it. */
  private readonly parsed = new WeakMap<object, CellReport | 'foreign'>();
  private readonly changes = new Signal<this, void>(this);

  constructor(private readonly timers: Clock) {}

  /** One for each run, in the notebook's order. */
  rows: readonly Row[] = [];
  /** How many reports there are that another version wrote. */
  foreign = 0;

  /** Emitted when they have changed. */
  get changed(): ISignal<this, void> {
    return this.changes;
  }

  /** Somebody looks, or nobody does any more. */
  look(looking: boolean): void {
    if (looking !== this.looking) {
      this.looking = looking;
      this.renew();
    }
  }

  /** Read these cells from now on; null for none. */
  read(cells: CellModels | null): void {
    if (cells !== this.cells) {
      this.release();
      this.cells = cells;
      this.renew();
    }
  }

  private renew(): void {
    this.release();
    if (this.looking && this.cells !== null) {
      this.cells.changed.connect(this.cellsChanged, this);
      this.moved = true;
    }
    this.gather();
  }

  private release(): void {
    this.cells?.changed.disconnect(this.cellsChanged, this);
    for (const cell of this.ofOutputs.values()) {
      cell.outputs?.changed.disconnect(this.outputsChanged, this);
    }
    this.ofOutputs.clear();
    this.found.clear();
    this.dirty.clear();
    if (this.timer !== null) {
      this.timers.cancel(this.timer);
      this.timer = null;
    }
  }

  private cellsChanged(): void {
    this.moved = true;
    this.soon();
  }

  private outputsChanged(outputs: unknown, change: OutputsChange): void {
    const cell = this.ofOutputs.get(outputs);
    if (cell === undefined) {
      return;
    }
    // Whatever goes or comes in a cell with reports may be one; elsewhere only what comes.
    const concerns = this.found.has(cell) || change.newValues.some(output => reportIn(output) !== undefined);
    if (concerns) {
      this.dirty.add(cell);
      this.soon();
    }
  }

  private soon(): void {
    this.timer ??= this.timers.after(GATHER_MS, () => {
      this.timer = null;
      this.gather();
    });
  }

  private gather(): void {
    const cells = this.looking && this.cells !== null ? this.cells : [];
    if (this.moved) {
      this.moved = false;
      this.follow(cells);
    }
    for (const cell of this.dirty) {
      this.search(cell);
    }
    this.dirty.clear();
    const rows = new Map<string, Row>();
    this.foreign = 0;
    for (const cell of this.found.size === 0 ? [] : cells) {
      const { reports, foreign } = this.found.get(cell) ?? { reports: [], foreign: 0 };
      this.foreign += foreign;
      for (const report of reports) {
        const key = keyOf(report);
        if (!rows.has(key)) {
          rows.set(key, { key, cellId: cell.id, report });
        }
      }
    }
    this.rows = [...rows.values()];
    this.changes.emit();
  }

  /** Listen to cells that are new, and no longer to those that are gone. */
  private follow(cells: Iterable<CellModel>): void {
    const present = new Set<unknown>();
    for (const cell of cells) {
      const { outputs } = cell;
      if (outputs === undefined) {
        continue;
      }
      present.add(outputs);
      if (!this.ofOutputs.has(outputs)) {
        this.ofOutputs.set(outputs, cell);
        outputs.changed.connect(this.outputsChanged, this);
        this.dirty.add(cell);
      }
    }
    for (const [outputs, cell] of this.ofOutputs) {
      if (!present.has(outputs)) {
        cell.outputs?.changed.disconnect(this.outputsChanged, this);
        this.ofOutputs.delete(outputs);
        this.found.delete(cell);
        this.dirty.delete(cell);
      }
    }
  }

  private search(cell: CellModel): void {
    const reports: CellReport[] = [];
    let foreign = 0;
    for (let place = 0; place < (cell.outputs?.length ?? 0); place++) {
      const value = cell.outputs === undefined ? undefined : reportIn(cell.outputs.get(place));
      const report = value === undefined ? null : this.parse(value);
      if (report === 'foreign') {
        foreign++;
      } else if (report !== null) {
        reports.push(report);
      }
    }
    if (reports.length > 0 || foreign > 0) {
      this.found.set(cell, { reports, foreign });
    } else {
      this.found.delete(cell);
    }
  }

  private parse(value: unknown): CellReport | 'foreign' {
    const kept = typeof value === 'object' && value !== null ? value : null;
    let report = kept === null ? undefined : this.parsed.get(kept);
    if (report === undefined) {
      report = readReport(value) ?? 'foreign';
      if (kept !== null) {
        this.parsed.set(kept, report);
      }
    }
    return report;
  }
}

/** The report in an output, unread; undefined where there is none. */
function reportIn(output: Output): unknown {
  if (!WITH_DATA.has(output.type)) {
    return undefined;
  }
  const { data } = output.toJSON() as { data?: Readonly<Record<string, unknown>> };
  return data?.[REPORT_MIME];
}
