import type { MetricHistory } from '../wire';
import { kindOf, type Kind, type MetricName } from './metrics';

const UNITS: Readonly<Record<Kind, string>> = {
  percent: '%',
  memory: 'B',
  power: 'W',
  temperature: '°C',
  clock: 'MHz',
  rate: 'B/s'
};
const END = '\r\n';

/** A GPU as its columns are headed. */
export interface Named {
  readonly uuid: string;
  readonly name: string;
}

/**
 * What the server told as a table: a row a step, and for each GPU and metric the mean, the lowest and the highest value
 * of it. What is not known is empty.
 */
export function csv(course: MetricHistory, gpus: readonly Named[], metrics: readonly MetricName[]): string {
  const header = ['time (ISO 8601)', 'time (epoch s)', 'step (s)', 'samples'];
  const columns: (readonly (number | null)[])[] = [];
  for (const { uuid, name } of gpus) {
    const told = course.gpus.find(gpu => gpu.uuid === uuid)?.metrics ?? {};
    for (const metric of metrics) {
      const steps = told[metric];
      if (steps !== undefined) {
        const head = `${name} ${metric}`;
        const unit = UNITS[kindOf(metric)];
        header.push(...['mean', 'min', 'max'].map(which => `${head} ${which} (${unit})`));
        columns.push(steps.mean, steps.min ?? steps.mean, steps.max ?? steps.mean);
      }
    }
  }
  const rows = [header.map(field).join(',')];
  course.t.forEach((time, row) => {
    const cells = [new Date(1000 * time).toISOString(), time, course.step_s, course.samples[row] ?? ''];
    rows.push([...cells, ...columns.map(column => column[row] ?? '')].join(','));
  });
  return rows.join(END) + END;
}

/** A text as one field: quoted, and with nothing at its beginning that a spreadsheet takes for a formula. */
export function field(text: string): string {
  const harmless = /^[\s]*[=+\-@]|^[\t\r\n]/.test(text) ? `'${text}` : text;
  return /[",\r\n']/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless;
}

/** What the file is called: `gpus 2026-11-21 14.03.20.csv`, by the local time of its end. */
export function fileName(until: number, recording: boolean): string {
  const then = new Date(1000 * until);
  const two = (value: number): string => String(value).padStart(2, '0');
  const date = [then.getFullYear(), two(then.getMonth() + 1), two(then.getDate())].join('-');
  const time = [then.getHours(), then.getMinutes(), then.getSeconds()].map(two).join('.');
  return `${recording ? 'recording of gpus' : 'gpus'} ${date} ${time}.csv`;
}
