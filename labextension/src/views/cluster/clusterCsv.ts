import { CSV_LINE_END, quoteField } from '../dashboard/csvExport';
import type { ClusterGpu } from '../../wire/wire';
import { quantity, QUANTITY_NAMES, type CsvColumn } from './quantities';
import type { WallGroup } from './wallRows';

/** The columns. */
const COLUMNS: readonly CsvColumn[] = [
  ['GPU index', gpu => gpu.index],
  ['UUID', gpu => gpu.uuid],
  ['model', gpu => gpu.model],
  ['MIG profile', gpu => gpu.mig],
  ...QUANTITY_NAMES.flatMap(name => quantity(name).csv),
  ['users', gpu => gpu.users.join(' ')],
  ['notebooks', gpu => gpu.notebooks.join(' ')],
  ['job', gpu => gpu.job],
  ['exporters', gpu => gpu.exporters.join(' ')]
];

/**
 * Return the shown GPUs as CSV, in the wall's order. `time` is the time of the values in epoch seconds. A
 * node without known GPUs has a row with its name only. Unknown values are empty.
 */
export function clusterCsv(time: number, groups: readonly WallGroup[]): string {
  const header = ['time (ISO 8601)', 'node', 'node up', ...COLUMNS.map(([title]) => title)];
  const lines = [header.map(quoteField).join(',')];
  const written = new Set<ClusterGpu>(); // A GPU that two users share is in two groups, but in one row.
  for (const { node, gpus } of groups.flatMap(({ rows }) => rows)) {
    const start = [new Date(1000 * time).toISOString(), node.name, node.up];
    if (gpus.length === 0) {
      lines.push([...start, ...COLUMNS.map(() => null)].map(field).join(','));
    }
    for (const gpu of gpus.filter(one => !written.has(one))) {
      written.add(gpu);
      lines.push([...start, ...COLUMNS.map(([, value]) => value(gpu))].map(field).join(','));
    }
  }
  return lines.join(CSV_LINE_END) + CSV_LINE_END;
}

function field(value: string | number | boolean | null): string {
  return typeof value === 'string' ? quoteField(value) : value === null ? '' : String(value);
}
