import type { CellReport } from './report';

/** A run of a cell, as its report among the outputs tells it. */
export interface Row {
  /** The same for the same run, wherever it is shown. */
  readonly key: string;
  /** Of the cell in whose outputs the report is. */
  readonly cellId: string;
  readonly report: CellReport;
}

export type Column = 'cell' | 'delta' | 'peak' | 'time' | 'energy';

/** How the list is sorted; by `cell` it stands as in the notebook. */
export interface Sort {
  readonly column: Column;
  readonly descending: boolean;
}

export const NOTEBOOK_ORDER: Sort = { column: 'cell', descending: false };

/** All runs together; null where none is known. */
export interface Totals {
  readonly seconds: number | null;
  readonly joules: number | null;
  /** Whether some of the energy is not known. */
  readonly atLeast: boolean;
}

/** What tells a run from others: the same report may be shown in several cells. */
export function keyOf(report: CellReport): string {
  return JSON.stringify([report.started, report.duration, report.executionCount, report.label]);
}

/** The next order when the head of `column` is pressed: figures begin with the largest, pressed again it turns. */
export function pressed(sort: Sort, column: Column): Sort {
  return sort.column === column
    ? { column, descending: !sort.descending }
    : { column, descending: column !== 'cell' };
}

/** `rows`, which are in the notebook's order, as `sort` has it; what is not known comes last both ways. */
export function sorted(rows: readonly Row[], sort: Sort): readonly Row[] {
  const { column, descending } = sort;
  if (column === 'cell') {
    return descending ? [...rows].reverse() : rows;
  }
  const sign = descending ? -1 : 1;
  return [...rows].sort((a, b) => {
    const [left, right] = [figure(a, column), figure(b, column)];
    if (left === null || right === null) {
      return Number(left === null) - Number(right === null);
    }
    return sign * (left - right);
  });
}

/** Time and energy of all runs; one within another is counted with that one. */
export function totals(rows: readonly Row[]): Totals {
  let seconds: number | null = null;
  let joules: number | null = null;
  let atLeast = false;
  for (const { report } of outermost(rows)) {
    seconds = report.duration === null ? seconds : (seconds ?? 0) + report.duration;
    joules = report.energy === null ? joules : (joules ?? 0) + report.energy;
    atLeast ||= report.atLeast;
  }
  return { seconds, joules, atLeast };
}

function figure({ report }: Row, column: Exclude<Column, 'cell'>): number | null {
  return column === 'time' ? report.duration : report[column];
}

function outermost(rows: readonly Row[]): readonly Row[] {
  const span = ({ report }: Row): [number, number] => [
    report.started ?? NaN,
    (report.started ?? NaN) + (report.duration ?? NaN)
  ];
  const inOrder = [...rows].sort((a, b) => span(a)[0] - span(b)[0] || span(b)[1] - span(a)[1]);
  let until = -Infinity;
  return inOrder.filter(row => {
    const end = span(row)[1];
    if (end <= until) {
      return false;
    }
    until = Number.isNaN(end) ? until : end;
    return true;
  });
}
