import type { TranslationBundle } from '@jupyterlab/translation';

import type { ServerClient } from '../../model/server/serverClient';
import type { MetricHistory, MetricSeries } from '../../wire/wire';
import { twoDigits } from '../../model/format';
import type { TimeRange } from '../../model/history/dashboardState';
import { metricTexts, type MetricName } from '../../wire/metricTable';
import type { DashboardGpu } from './dashboardGpus';
import { axisTop, unitOf, type Unit } from '../../model/metrics';

/** The end of a line in a CSV file. */
export const CSV_LINE_END = '\r\n';
/**
 * Maximum number of rows. It suffices for an hour in steps of one second, or for a few minutes at the full
 * sampling rate. Prometheus answers with at most 600 rows.
 */
const MAX_ROWS = 4000;
/** Values are written with this many digits, so that no sample changes visibly. */
const DIGITS = 8;

/** The parts of a GPU that a table needs. */
export type TableGpu = Pick<DashboardGpu, 'uuid' | 'name' | 'number' | 'memoryTotal' | 'powerLimit'>;

/** Which part of the history to export. */
export interface CsvRequest {
  readonly range: TimeRange;
  readonly gpus: readonly TableGpu[];
  readonly metrics: readonly MetricName[];
  readonly isRecording: boolean;
  /** Name of a machine of the cluster; null for the server's own machine. */
  readonly node: string | null;
}

/** Exports a part of the history as a CSV file. */
export class CsvExport {
  private request: AbortController | null = null;

  /** `save` is called with a file's name and text, and offers the file to the user. */
  constructor(
    private readonly trans: TranslationBundle,
    private readonly server: Pick<ServerClient, 'history'>,
    private readonly save: (name: string, text: string) => void = saveFile
  ) {}

  /**
   * Load the data and save the file. Return why that failed; null if the file was saved or the export was
   * canceled.
   */
  async run({ range, gpus, metrics, isRecording, node }: CsvRequest): Promise<string | null> {
    this.cancel();
    const { signal } = (this.request = new AbortController());
    const part = { since: range.from, until: range.to };
    const result = await this.server.history({ part, metrics, points: MAX_ROWS, node }, signal);
    if (signal.aborted) {
      return null;
    }
    if (result.kind !== 'ok') {
      return result.reason;
    }
    this.save(fileName(range.to, isRecording, node), toCsv(this.trans, result.value, gpus, metrics));
    return null;
  }

  /** Cancel the export that is under way. */
  cancel(): void {
    this.request?.abort();
    this.request = null;
  }
}

/**
 * Return the history as CSV, with one row per step. Columns have the names and units of the charts. A metric has
 * one column per GPU if the mean, minimum and maximum of all GPUs are the same in each step, and otherwise one
 * for each of the three. Unknown values are empty.
 */
export function toCsv(
  trans: TranslationBundle,
  history: MetricHistory,
  gpus: readonly TableGpu[],
  metrics: readonly MetricName[]
): string {
  const series = gpus.map(gpu => ({
    gpu,
    metrics: history.gpus.find(({ uuid }) => uuid === gpu.uuid)?.metrics ?? {}
  }));
  const units = new Map(
    metrics.map(name => [
      name,
      chartUnit(
        name,
        series.map(({ metrics }) => metrics[name]),
        gpus
      )
    ])
  );
  const varying = new Set(metrics.filter(name => series.some(({ metrics }) => varies(metrics[name]))));
  const header = ['time (ISO 8601)', 'time (epoch s)', 'step (s)', 'samples'];
  const columns: (readonly (number | null)[])[] = [];
  for (const { gpu, metrics: ofGpu } of series) {
    for (const [name, unit] of units) {
      const steps = ofGpu[name];
      if (steps !== undefined) {
        const title = `${trans.__('GPU %1', gpu.number)} (${gpu.name}) ${metricTexts(trans, name)[0]}`;
        for (const [statistic, values] of statistics(trans, steps, varying.has(name))) {
          header.push(`${title}${statistic} (${unit.name})`);
          columns.push(values.map(value => (value === null ? null : convert(value, unit))));
        }
      }
    }
  }
  const rows = [header.map(quoteField).join(',')];
  history.t.forEach((time, row) => {
    const cells = [new Date(1000 * time).toISOString(), time, history.step_s, history.samples[row] ?? ''];
    rows.push([...cells, ...columns.map(column => column[row] ?? '')].join(','));
  });
  return rows.join(CSV_LINE_END) + CSV_LINE_END;
}

/** Return whether the minimum or maximum of a step differs from its mean. */
function varies(steps: MetricSeries | undefined): boolean {
  return [steps?.min, steps?.max].some(values => values?.some((value, row) => value !== steps?.mean[row]));
}

/** Return the columns of a GPU's metric: the text behind the metric's name, and the values. */
function statistics(
  trans: TranslationBundle,
  { mean, min, max }: MetricSeries,
  hasThree: boolean
): (readonly [string, readonly (number | null)[]])[] {
  return hasThree
    ? [
        [` ${trans.__('mean')}`, mean],
        [` ${trans.__('min')}`, min ?? mean],
        [` ${trans.__('max')}`, max ?? mean]
      ]
    : [['', mean]];
}

/** Return the unit of the chart that shows these series of a metric. */
function chartUnit(
  name: MetricName,
  series: readonly (MetricSeries | undefined)[],
  gpus: readonly TableGpu[]
): Unit {
  let highest = 0;
  for (const steps of series) {
    for (const value of steps?.max ?? steps?.mean ?? []) {
      highest = Math.max(highest, value ?? 0);
    }
  }
  return unitOf(
    name,
    axisTop(
      name,
      highest,
      gpus.map(({ memoryTotal }) => memoryTotal ?? 0),
      gpus.map(({ powerLimit }) => powerLimit ?? 0)
    )
  );
}

function convert(value: number, { size, zero = 0 }: Unit): number {
  return Number((value / size + zero).toPrecision(DIGITS));
}

/**
 * Return a text as a CSV field. If a spreadsheet would interpret the text as a formula, its beginning is
 * escaped.
 */
export function quoteField(text: string): string {
  const harmless = /^[\s]*[=+\-@]|^[\t\r\n]/.test(text) ? `'${text}` : text;
  return /[",\r\n']/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless;
}

/**
 * Return a file name with the end of the time range in local time, such as `gpus 2026-11-21 14.03.20.csv`.
 */
export function fileName(until: number, isRecording: boolean, node: string | null): string {
  // A machine's name comes from Prometheus, and may contain characters that no file name may.
  const suffix = node === null ? '' : ` of ${node.replace(/[^\w.-]/g, '_')}`;
  return csvName(`${isRecording ? 'recording of gpus' : 'gpus'}${suffix}`, until);
}

/** Return the name of a CSV file with a time in local time. `time` is in epoch seconds. */
export function csvName(what: string, time: number): string {
  const end = new Date(1000 * time);
  const date = [end.getFullYear(), twoDigits(end.getMonth() + 1), twoDigits(end.getDate())].join('-');
  const timeOfDay = [end.getHours(), end.getMinutes(), end.getSeconds()].map(twoDigits).join('.');
  return `${what} ${date} ${timeOfDay}.csv`;
}

/** Offer a CSV file to the user. */
export function saveFile(name: string, text: string): void {
  // Spreadsheets recognize UTF-8 by the byte order mark.
  const url = URL.createObjectURL(new Blob(['\ufeff', text], { type: 'text/csv;charset=utf-8' }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}
