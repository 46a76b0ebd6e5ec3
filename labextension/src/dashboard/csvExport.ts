import type { HistoryServer } from '../stream/serverApi';
import type { MetricHistory } from '../wire';
import { twoDigits } from '../ui/format';
import type { TimeRange } from './dashboardState';
import type { MetricKind, MetricName } from '../metricTable';
import { kindOf } from './metrics';

/** Units in the column headers. They do not depend on the user's settings, because programs read them. */
const UNITS: Readonly<Record<MetricKind, string>> = {
  percent: '%',
  memory: 'B',
  power: 'W',
  temperature: '°C',
  clock: 'MHz',
  rate: 'B/s'
};
/** The end of a line in a CSV file. */
export const CSV_LINE_END = '\r\n';
/**
 * Maximum number of rows. It suffices for an hour in steps of one second, or for a few minutes at the full
 * sampling rate. Prometheus answers with at most 600 rows.
 */
const MAX_ROWS = 4000;

/** A GPU and its name in the column headers. */
export interface NamedGpu {
  readonly uuid: string;
  readonly name: string;
}

/** Which part of the history to export. */
export interface CsvRequest {
  readonly range: TimeRange;
  readonly gpus: readonly NamedGpu[];
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
    private readonly server: HistoryServer,
    private readonly save: (name: string, text: string) => void = saveFile
  ) {}

  /**
   * Load the data and save the file. Rejects with the server's error; resolves without a file if the export
   * was canceled.
   */
  async run({ range, gpus, metrics, isRecording, node }: CsvRequest): Promise<void> {
    this.cancel();
    const request = (this.request = new AbortController());
    const part = { since: range.from, until: range.to };
    try {
      const history = await this.server.history({ part, metrics, points: MAX_ROWS, node }, request.signal);
      if (!request.signal.aborted) {
        this.save(fileName(range.to, isRecording, node), toCsv(history, gpus, metrics));
      }
    } catch (error) {
      if (!request.signal.aborted) {
        throw error;
      }
    }
  }

  /** Cancel the export that is under way. */
  cancel(): void {
    this.request?.abort();
    this.request = null;
  }
}

/**
 * Return the history as CSV, with one row per step and columns for the mean, minimum and maximum of each
 * metric per GPU. Unknown values are empty.
 */
export function toCsv(
  history: MetricHistory,
  gpus: readonly NamedGpu[],
  metrics: readonly MetricName[]
): string {
  const header = ['time (ISO 8601)', 'time (epoch s)', 'step (s)', 'samples'];
  const columns: (readonly (number | null)[])[] = [];
  for (const { uuid, name } of gpus) {
    const series = history.gpus.find(gpu => gpu.uuid === uuid)?.metrics ?? {};
    for (const metric of metrics) {
      const steps = series[metric];
      if (steps !== undefined) {
        const title = `${name} ${metric}`;
        const unit = UNITS[kindOf(metric)];
        header.push(...['mean', 'min', 'max'].map(statistic => `${title} ${statistic} (${unit})`));
        columns.push(steps.mean, steps.min ?? steps.mean, steps.max ?? steps.mean);
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
