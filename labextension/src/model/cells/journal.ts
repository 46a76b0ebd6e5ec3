/** Functions on the runs of the journal, which the kernels write and the server sends. */

import { reportIn, type CellModel, type CellModels, type Outputs } from './reportReader';
import type { JournalRun } from '../../wire/wire';

/** The reports of at most this many outputs are compared, counted from the end of the notebook. */
const MAX_OUTPUTS = 20_000;

/** A run whose report is in a notebook's outputs. */
interface ReportedRun {
  readonly id: string;
  /** Start of the run in epoch seconds, by the clock of the kernel's machine. */
  readonly started: number;
  readonly executionCount: number | null;
}

/**
 * Return an id that is the same for a run in the journal and for its report, which has the start in milliseconds. Two
 * runs with the same execution count do not start in the same millisecond.
 */
function runId(milliseconds: number, executionCount: number | null): string {
  return JSON.stringify([milliseconds, executionCount]);
}

/** Return the id of a run in the journal. */
export function idOf({ started, execution_count: executionCount }: JournalRun): string {
  return runId(Math.round(1000 * started), executionCount);
}

/** Return whether `ids`, from reports, include a run of the journal. Python may have rounded half a millisecond up. */
export function includesRun(
  ids: ReadonlySet<string>,
  { started, execution_count: executionCount }: JournalRun
): boolean {
  const milliseconds = Math.round(1000 * started);
  return [0, -1, 1].some(offset => ids.has(runId(milliseconds + offset, executionCount)));
}

/** Return when a run ended or was seen last, in epoch seconds of the kernel's machine. */
export function endOf({ started, seconds }: JournalRun): number {
  return started + seconds;
}

/** Return whether a run is that of a cell of a notebook, and not of a script or of a console. */
export function isOfCell(
  run: JournalRun
): run is JournalRun & { readonly cell: string; readonly name: string } {
  return run.cell !== null && run.name !== null;
}

/** Return whether two runs were in the same execution of the same cell, such as one inside the other. */
function sameExecution(one: JournalRun, other: JournalRun): boolean {
  return one.execution_count === other.execution_count && one.kernel === other.kernel;
}

/** Return the runs whose cell has not been run again since, as far as `runs` shows. */
export function newestOfCells(runs: readonly JournalRun[]): readonly JournalRun[] {
  const newest = new Map<string, JournalRun>();
  const cellOf = ({ path, kernel, cell }: JournalRun): string => JSON.stringify([path ?? kernel, cell]);
  for (const run of runs) {
    const other = newest.get(cellOf(run));
    if (other === undefined || run.started > other.started) {
      newest.set(cellOf(run), run);
    }
  }
  return runs.filter(run => sameExecution(run, newest.get(cellOf(run)) ?? run));
}

/** Return the runs whose reports are in the outputs of a notebook's cells. */
export function reportedRuns(cells: Iterable<Pick<CellModel, 'outputs'>>): readonly ReportedRun[] {
  const found: ReportedRun[] = [];
  let left = MAX_OUTPUTS;
  for (const { outputs } of [...cells].reverse()) {
    for (let index = outputs?.length ?? 0; outputs !== undefined && index-- > 0 && left > 0; left--) {
      const run = reportedRun(reportIn(outputs.get(index)));
      if (run !== null) {
        found.push(run);
      }
    }
  }
  return found;
}

/** Return the run of a report's JSON, which anyone may have written; null if there is none. */
function reportedRun(report: unknown): ReportedRun | null {
  const { cell } = (report ?? {}) as { cell?: { started?: unknown; execution_count?: unknown } | null };
  const { started, execution_count: count } = cell ?? {};
  if (typeof started !== 'number') {
    return null;
  }
  const executionCount = typeof count === 'number' ? count : null;
  return { id: runId(Math.round(1000 * started), executionCount), started, executionCount };
}

/** Return a notebook's cell; undefined if the notebook does not have it. */
export function cellById(cells: CellModels | null, id: string | null): CellModel | undefined {
  return [...(cells ?? [])].find(cell => cell.id === id);
}

/** Return whether the source of a cell is another one than that of its run; false if the journal does not have it. */
export function isEdited({ code }: JournalRun, { sharedModel }: Pick<CellModel, 'sharedModel'>): boolean {
  return code !== null && code.toLowerCase() !== crc32(sharedModel.getSource());
}

/** Return whether the outputs of a cell have the report of a later execution than that of `run`. */
export function hasNewerReport(run: JournalRun, cell: Pick<CellModel, 'outputs'>): boolean {
  return reportedRuns([cell]).some(
    ({ started, executionCount }) => started > run.started && executionCount !== run.execution_count
  );
}

/** The polynomial of CRC-32, bit by bit from the lowest one, as in zip files and in Python's `zlib.crc32`. */
const POLYNOMIAL = 0xedb88320;

/** Return the CRC-32 of a text in UTF-8, as 8 hexadecimal digits. */
export function crc32(text: string): string {
  let crc = 0xffffffff;
  for (const byte of new TextEncoder().encode(text)) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) {
      crc = (crc >>> 1) ^ (crc & 1 ? POLYNOMIAL : 0);
    }
  }
  return ((crc ^ 0xffffffff) >>> 0).toString(16).padStart(8, '0');
}

const WIDGET_VIEW = 'application/vnd.jupyter.widget-view+json';

/**
 * Return the index of the live chart in the outputs of a cell that is not running; null if there is none. The chart's
 * kernel no longer updates it, so it is frozen or shows that its model is missing.
 */
export function deadChartIn(outputs: Pick<Outputs, 'length' | 'get'>): number | null {
  for (let index = 0; index < outputs.length; index++) {
    const { data, metadata } = outputs.get(index).toJSON() as {
      data?: Readonly<Record<string, unknown>>;
      metadata?: { gpuwidget?: unknown };
    };
    if (metadata?.gpuwidget === true && data?.[WIDGET_VIEW] !== undefined) {
      return index;
    }
  }
  return null;
}
