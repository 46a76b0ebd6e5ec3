import { Debouncer, Throttler } from '@lumino/polling';
import { Signal, type ISignal } from '@lumino/signaling';

import { parseReport, REPORT_MIME, visibleText, type CellReport } from './report';
import { runKey, type CellRun } from './runTable';

/** Outputs may change many times per second; the list of runs is rebuilt at most this often. */
const UPDATE_MS = 200;
/** The last reports of a notebook are read, up to this many. The others are only counted. */
export const MAX_REPORTS = 500;
/**
 * How much is read without a pause, as a number of outputs. To parse a report counts as `PARSING` outputs. This
 * takes about 10 ms, so the page stays responsive however many outputs the notebook has.
 */
const MAX_WORK = 10_000;
const PARSING = 50;
const PAUSE_MS = 15;
/** The first line of code is searched within this many characters of a cell. */
const MAX_SEARCHED = 10_000;
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
  /** Whether the user has run the cell or trusted the notebook. */
  readonly trusted: boolean;
  readonly outputs?: Outputs;
}

/** The part of a notebook's cell list that is used here. */
export interface CellModels extends Iterable<CellModel> {
  readonly changed: ISignal<unknown, unknown>;
}

/** A cell whose outputs are being searched for reports. */
interface CellSearch {
  readonly cell: CellModel;
  /** Index of the next output. */
  next: number;
  readonly found: unknown[];
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
  /** The JSON of the reports in each cell that has any, in the order of the outputs. */
  private readonly reportsByCell = new Map<CellModel, readonly unknown[]>();
  private search: CellSearch | null = null;
  /** The parsed reports, keyed by their JSON objects, which are never modified. */
  private readonly parsed = new WeakMap<object, CellReport | 'incompatible'>();
  private readonly changes = new Signal<this, void>(this);
  private readonly updates = new Throttler(
    () => {
      this.update();
    },
    { limit: UPDATE_MS, edge: 'trailing' }
  );

  /** Continues the reading after a pause. */
  private readonly pause = new Debouncer(() => {
    this.update();
  }, PAUSE_MS);

  /** The runs in the notebook's order. */
  runs: readonly CellRun[] = [];
  /** Number of reports in the notebook, of which at most the last `MAX_REPORTS` are read. */
  reports = 0;
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
      // Until the new cells are read, show none of the previous notebook's runs.
      this.runs = [];
      this.reports = this.incompatible = 0;
      this.changes.emit();
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
    this.search = null;
    void this.pause.stop();
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
      this.reportsByCell.has(cell) ||
      this.search?.cell === cell ||
      change.newValues.some(output => reportIn(output) !== undefined);
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
    const left = this.searchOutputs(MAX_WORK);
    if (left > 0 && this.collect(cells, left)) {
      this.changes.emit();
    } else {
      void this.pause.invoke();
    }
  }

  /** Search the outputs of the changed cells, at most `work` of them. Return how many could still be searched. */
  private searchOutputs(work: number): number {
    let left = work;
    for (let search = this.nextSearch(); search !== null; search = this.nextSearch()) {
      const { cell, found } = search;
      for (; search.next < (cell.outputs?.length ?? 0); search.next++) {
        if (left === 0) {
          return 0;
        }
        left--;
        const value = cell.outputs === undefined ? undefined : reportIn(cell.outputs.get(search.next));
        if (value !== undefined) {
          found.push(value);
        }
      }
      this.search = null;
      if (found.length > 0) {
        this.reportsByCell.set(cell, found);
      } else {
        this.reportsByCell.delete(cell);
      }
    }
    return left;
  }

  /** Return the unfinished search, else a new one in the next changed cell; null if there is none. */
  private nextSearch(): CellSearch | null {
    const [cell] = this.search === null ? this.changedCells : [];
    if (cell !== undefined) {
      this.changedCells.delete(cell); // If it changes during the search, it is searched again.
      this.search = { cell, next: 0, found: [] };
    }
    return this.search;
  }

  /** Set the runs. Return false if parsing their reports exceeds `work`; in that case, try again later. */
  private collect(cells: Iterable<CellModel>, work: number): boolean {
    let left = work;
    const all = [...this.reportsByCell.values()].reduce((total, { length }) => total + length, 0);
    let skipped = Math.max(0, all - MAX_REPORTS);
    const runs = new Map<string, CellRun>();
    let incompatible = 0;
    for (const cell of all === 0 ? [] : cells) {
      const values = this.reportsByCell.get(cell) ?? [];
      const read = values.slice(skipped);
      skipped = Math.max(0, skipped - values.length);
      const code = read.length === 0 ? '' : firstCodeLine(cell);
      for (const value of read) {
        const known = isObject(value) ? this.parsed.get(value) : 'incompatible';
        left -= known === undefined ? PARSING : 0;
        if (left < 0) {
          return false;
        }
        const report = known ?? this.parse(value as object);
        if (report === 'incompatible') {
          incompatible++;
          continue;
        }
        const key = runKey(report);
        if (!runs.has(key)) {
          runs.set(key, { key, cellId: cell.id, code, trusted: cell.trusted, report });
        }
      }
    }
    this.runs = [...runs.values()];
    this.incompatible = incompatible;
    this.reports = all;
    return true;
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
        if (this.search?.cell === cell) {
          this.search = null;
        }
      }
    }
  }

  private parse(value: object): CellReport | 'incompatible' {
    const report = parseReport(value) ?? 'incompatible';
    this.parsed.set(value, report);
    return report;
  }
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}

/**
 * Return the first line of a cell that is neither blank, a comment nor a cell magic such as `%%gpuwatch`; empty
 * if there is none.
 */
export function firstCodeLine({ sharedModel }: Pick<CellModel, 'sharedModel'>): string {
  const lines = sharedModel.getSource().slice(0, MAX_SEARCHED).split('\n');
  return visibleText(lines.map(line => line.trim()).find(line => line !== '' && !/^(#|%%)/.test(line)) ?? '');
}

/** Return the JSON of the report in an output; undefined if the output contains none. */
export function reportIn(output: Output): unknown {
  if (!OUTPUTS_WITH_DATA.has(output.type)) {
    return undefined;
  }
  const { data } = output.toJSON() as { data?: Readonly<Record<string, unknown>> };
  return data?.[REPORT_MIME];
}
