import { Throttler } from '@lumino/polling';
import { Signal, type ISignal } from '@lumino/signaling';

import { parseReport, REPORT_MIME, type CellReport } from './report';
import { runKey, type CellRun } from './runTable';

/** Outputs may change many times per second; the list of runs is rebuilt at most this often. */
const UPDATE_MS = 200;
const OUTPUTS_WITH_DATA: ReadonlySet<string> = new Set([
  'display_data',
  'execute_result',
  'update_display_data'
]);

/** The part of JupyterLab's output model that is used here. */
export interface Output {
  readonly type: string;
  /**
   * Return the output's JSON with its MIME bundle by reference; the model's `data` property would return a
   * copy.
   */
  toJSON(): object;
}

/** The part of a change of outputs that is used here. */
export interface OutputsChange {
  readonly oldValues: readonly Output[];
  readonly newValues: readonly Output[];
}

/** The part of a cell's outputs that is used here. */
export interface Outputs {
  readonly length: number;
  readonly changed: ISignal<unknown, OutputsChange>;
  get(index: number): Output;
}

/** The part of a cell's model that is used here. Only code cells have outputs. */
export interface CellModel {
  readonly id: string;
  readonly sharedModel: { getSource(): string };
  readonly outputs?: Outputs;
}

/** The part of a notebook's cell list that is used here. */
export interface CellModels extends Iterable<CellModel> {
  readonly changed: ISignal<unknown, unknown>;
}

interface CellReports {
  readonly reports: readonly CellReport[];
  /** Number of reports that were written by an incompatible version of gpuwidget. */
  readonly incompatible: number;
}

/**
 * Reads the reports in the outputs of one notebook.
 *
 * Outputs are read only while a view is visible, and only if they have changed. If a cell prints a thousand
 * lines, only the type of each new output is checked.
 */
export class ReportReader {
  private cells: CellModels | null = null;
  private visible = false;
  private cellsChanged = false;
  private readonly changedCells = new Set<CellModel>();
  private readonly cellsByOutputs = new Map<unknown, CellModel>();
  private readonly reportsByCell = new Map<CellModel, CellReports>();
  /** The parsed reports, keyed by their JSON objects, which are never modified. */
  private readonly parsed = new WeakMap<object, CellReport | 'incompatible'>();
  private readonly changes = new Signal<this, void>(this);
  private readonly updates = new Throttler(
    () => {
      this.update();
    },
    { limit: UPDATE_MS, edge: 'trailing' }
  );

  /** The runs in the notebook's order. */
  runs: readonly CellRun[] = [];
  /** Number of reports that were written by an incompatible version of gpuwidget. */
  incompatible = 0;

  /** Emitted when the runs have changed. */
  get changed(): ISignal<this, void> {
    return this.changes;
  }

  /** Set whether a view is visible. */
  setVisible(visible: boolean): void {
    if (visible !== this.visible) {
      this.visible = visible;
      this.restart();
    }
  }

  /** Set the cells to read. */
  setCells(cells: CellModels | null): void {
    if (cells !== this.cells) {
      this.disconnect();
      this.cells = cells;
      this.restart();
    }
  }

  private restart(): void {
    this.disconnect();
    if (this.visible && this.cells !== null) {
      this.cells.changed.connect(this.onCellsChanged, this);
      this.cellsChanged = true;
    }
    this.update();
  }

  private disconnect(): void {
    this.cells?.changed.disconnect(this.onCellsChanged, this);
    for (const cell of this.cellsByOutputs.values()) {
      cell.outputs?.changed.disconnect(this.onOutputsChanged, this);
    }
    this.cellsByOutputs.clear();
    this.reportsByCell.clear();
    this.changedCells.clear();
    void this.updates.stop();
  }

  private onCellsChanged(): void {
    this.cellsChanged = true;
    void this.updates.invoke();
  }

  private onOutputsChanged(outputs: unknown, change: OutputsChange): void {
    const cell = this.cellsByOutputs.get(outputs);
    if (cell === undefined) {
      return;
    }
    // If the cell has reports, any change may have removed one of them. Otherwise, only new outputs with a
    // report matter.
    const relevant =
      this.reportsByCell.has(cell) || change.newValues.some(output => reportIn(output) !== undefined);
    if (relevant) {
      this.changedCells.add(cell);
      void this.updates.invoke();
    }
  }

  private update(): void {
    const cells = this.visible && this.cells !== null ? this.cells : [];
    if (this.cellsChanged) {
      this.cellsChanged = false;
      this.connectOutputs(cells);
    }
    for (const cell of this.changedCells) {
      this.read(cell);
    }
    this.changedCells.clear();
    const runs = new Map<string, CellRun>();
    this.incompatible = 0;
    for (const cell of this.reportsByCell.size === 0 ? [] : cells) {
      const { reports, incompatible } = this.reportsByCell.get(cell) ?? { reports: [], incompatible: 0 };
      this.incompatible += incompatible;
      for (const report of reports) {
        const key = runKey(report);
        if (!runs.has(key)) {
          runs.set(key, { key, cellId: cell.id, code: firstCodeLine(cell), report });
        }
      }
    }
    this.runs = [...runs.values()];
    this.changes.emit();
  }

  /** Connect to the outputs of new cells, and disconnect from the outputs of removed cells. */
  private connectOutputs(cells: Iterable<CellModel>): void {
    const present = new Set<unknown>();
    for (const cell of cells) {
      const { outputs } = cell;
      if (outputs === undefined) {
        continue;
      }
      present.add(outputs);
      if (!this.cellsByOutputs.has(outputs)) {
        this.cellsByOutputs.set(outputs, cell);
        outputs.changed.connect(this.onOutputsChanged, this);
        this.changedCells.add(cell);
      }
    }
    for (const [outputs, cell] of this.cellsByOutputs) {
      if (!present.has(outputs)) {
        cell.outputs?.changed.disconnect(this.onOutputsChanged, this);
        this.cellsByOutputs.delete(outputs);
        this.reportsByCell.delete(cell);
        this.changedCells.delete(cell);
      }
    }
  }

  private read(cell: CellModel): void {
    const reports: CellReport[] = [];
    let incompatible = 0;
    for (let index = 0; index < (cell.outputs?.length ?? 0); index++) {
      const value = cell.outputs === undefined ? undefined : reportIn(cell.outputs.get(index));
      const report = value === undefined ? null : this.parse(value);
      if (report === 'incompatible') {
        incompatible++;
      } else if (report !== null) {
        reports.push(report);
      }
    }
    if (reports.length > 0 || incompatible > 0) {
      this.reportsByCell.set(cell, { reports, incompatible });
    } else {
      this.reportsByCell.delete(cell);
    }
  }

  private parse(value: unknown): CellReport | 'incompatible' {
    const key = typeof value === 'object' && value !== null ? value : null;
    let report = key === null ? undefined : this.parsed.get(key);
    if (report === undefined) {
      report = parseReport(value) ?? 'incompatible';
      if (key !== null) {
        this.parsed.set(key, report);
      }
    }
    return report;
  }
}

/**
 * Return the first line of a cell that is neither blank, a comment nor a cell magic such as `%%gpuwatch`; empty
 * if there is none.
 */
export function firstCodeLine({ sharedModel }: Pick<CellModel, 'sharedModel'>): string {
  const lines = sharedModel.getSource().split('\n');
  return lines.map(line => line.trim()).find(line => line !== '' && !/^(#|%%)/.test(line)) ?? '';
}

/** Return the JSON of the report in an output; undefined if the output contains none. */
function reportIn(output: Output): unknown {
  if (!OUTPUTS_WITH_DATA.has(output.type)) {
    return undefined;
  }
  const { data } = output.toJSON() as { data?: Readonly<Record<string, unknown>> };
  return data?.[REPORT_MIME];
}
