import type { CellReport } from './report';

/** A run of a cell that left a report in the notebook's outputs. */
export interface CellRun {
  /** Identifies the run: the key is the same if several cells show the report of the same run. */
  readonly key: string;
  /** The cell whose outputs contain the report. */
  readonly cellId: string;
  /** The first line of the cell's code; empty if there is none. It names a run without a label. */
  readonly code: string;
  /**
   * Whether JupyterLab trusts the cell's outputs: this user has run the cell, or has trusted the notebook. If
   * not, anyone may have written the report.
   */
  readonly trusted: boolean;
  readonly report: CellReport;
}

/** The columns of the list of cells. */
export const COLUMNS = ['cell', 'delta', 'peak', 'time', 'energy'] as const;
export type Column = (typeof COLUMNS)[number];

/** The sort order of the list of cells. Sorting by `cell` keeps the notebook's order. */
export interface Sort {
  readonly column: Column;
  readonly descending: boolean;
}

export const NOTEBOOK_ORDER: Sort = { column: 'cell', descending: false };

/** Sums over all runs; null if the value is unknown for every run. */
export interface Totals {
  readonly seconds: number | null;
  readonly joules: number | null;
  /** Whether the energy of some run is unknown, so that `joules` is a lower bound. */
  readonly atLeast: boolean;
}

/** Return a key that identifies the run of a report. */
export function runKey(report: CellReport): string {
  return JSON.stringify([report.started, report.duration, report.executionCount, report.label]);
}

/**
 * Return the sort order after a click on the header of `column`. The first click on a column of numbers sorts
 * in descending order; the next click reverses the order.
 */
export function toggledSort(sort: Sort, column: Column): Sort {
  return sort.column === column
    ? { column, descending: !sort.descending }
    : { column, descending: column !== 'cell' };
}

/**
 * Return `runs`, which are in the notebook's order, sorted by `sort`. Unknown values come last in both
 * directions.
 */
export function sortedRuns(runs: readonly CellRun[], sort: Sort): readonly CellRun[] {
  const { column, descending } = sort;
  if (column === 'cell') {
    return descending ? [...runs].reverse() : runs;
  }
  const sign = descending ? -1 : 1;
  return [...runs].sort((a, b) => {
    const [left, right] = [valueIn(a, column), valueIn(b, column)];
    if (left === null || right === null) {
      return Number(left === null) - Number(right === null);
    }
    return sign * (left - right);
  });
}

/**
 * Return the total time and energy of all runs. A run inside another run is not added, because the outer run
 * already includes it.
 */
export function totals(runs: readonly CellRun[]): Totals {
  let seconds: number | null = null;
  let joules: number | null = null;
  let atLeast = false;
  for (const { report } of outermost(runs)) {
    seconds = report.duration === null ? seconds : (seconds ?? 0) + report.duration;
    joules = report.energy === null ? joules : (joules ?? 0) + report.energy;
    atLeast ||= report.atLeast;
  }
  return { seconds, joules, atLeast };
}

function valueIn({ report }: CellRun, column: Exclude<Column, 'cell'>): number | null {
  return column === 'time' ? report.duration : report[column];
}

function outermost(runs: readonly CellRun[]): readonly CellRun[] {
  const span = ({ report }: CellRun): [number, number] => [
    report.started ?? NaN,
    (report.started ?? NaN) + (report.duration ?? NaN)
  ];
  const inOrder = [...runs].sort((a, b) => span(a)[0] - span(b)[0] || span(b)[1] - span(a)[1]);
  let until = -Infinity;
  return inOrder.filter(run => {
    const end = span(run)[1];
    if (end <= until) {
      return false;
    }
    until = Number.isNaN(end) ? until : end;
    return true;
  });
}
