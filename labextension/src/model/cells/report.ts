/**
 * Parses the reports in a notebook's outputs. The kernel writes each report as JSON of the dataclass
 * `Report`, but anyone may have written the notebook. Therefore, a value of an unexpected type or size counts
 * as unknown, and the work is limited, however large the JSON is.
 */

import { amount, count, parsed, time } from '../../wire/parsing';

/** The MIME type of a report in a cell's outputs. */
export const REPORT_MIME = 'application/vnd.gpuwidget.report+json';
const REPORT_SCHEMA = 1;
const MAX_TEXT_LENGTH = 200;
const MAX_GPUS = 64;
/** The ids of the reasons for which a report without GPUs does not mean that there is none. */
const GPUS_UNKNOWN: readonly unknown[] = ['no-thread', 'not-sampled', 'run-not-measured'];
/** The fields of a GPU whose reasons in `missing` are shown. */
const FIELDS_WITH_REASON = ['torch', 'process_memory', 'device_memory', 'energy_j'] as const;
/** Control characters, separators of lines, and characters that change the direction of the text around them. */
const INVISIBLE = /[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]+/gu;

/** What the memory figures measure: torch's allocations, the process's memory, or the whole GPU's memory. */
const MEMORY_KINDS = ['torch', 'process', 'device'] as const;
export type MemoryKind = (typeof MEMORY_KINDS)[number];

/** How a run ended. If it `died`, its process ended before it. */
const STATUSES = ['ok', 'error', 'interrupted', 'died'] as const;
export type Status = (typeof STATUSES)[number];

/** One GPU that the cell used. Memory is in bytes and energy in joules; null if unknown. */
export interface GpuPart {
  readonly uuid: string;
  /** Number of the GPU, such as `0`, or `0:1` for a MIG slice. */
  readonly number: string;
  readonly torchDevice: string | null;
  readonly delta: number | null;
  readonly peak: number | null;
  readonly energy: number | null;
}

/** What one run of a cell did. */
export interface CellReport {
  readonly executionCount: number | null;
  readonly label: string | null;
  /** Start of the run in epoch seconds, by the clock of the kernel's machine. */
  readonly started: number | null;
  /** Duration of the run in seconds. */
  readonly duration: number | null;
  readonly status: Status;
  /** Number of out-of-memory errors during the run. */
  readonly ooms: number;
  /** The label of the recording that the samples come from; null for live GPUs. */
  readonly recording: string | null;
  /** Whether the report lists any GPU, used by the cell or not; null if no GPU could be measured. */
  readonly hasGpus: boolean | null;
  /**
   * The GPUs that count in the sums: those that the cell used, and those for which the report does not state
   * whether the cell used them. A large report lists only some of them.
   */
  readonly gpus: readonly GpuPart[];
  /** Number of GPUs that count in the sums and that the report does not list. */
  readonly unlisted: number;
  /** UUIDs of all GPUs that the card shows, with those of GPUs whose MIG slices it shows. */
  readonly shown: readonly string[];
  /**
   * What the memory figures measure. It is the same quantity for all `gpus`, since a sum of different
   * quantities would be meaningless.
   */
  readonly kind: MemoryKind;
  /** Whether child processes of the kernel held some of the memory. */
  readonly children: boolean;
  /** Sum of the memory changes on all `gpus` in bytes; null if the change on any of them is unknown. */
  readonly delta: number | null;
  /** The highest peak of any GPU in bytes. Peaks are not added, because they may occur at different times. */
  readonly peak: number | null;
  /** Sum of the known energies of `gpus` in joules; null if none is known. */
  readonly energy: number | null;
  /** Whether the energy of some GPU is unknown, so that the sum is a lower bound. */
  readonly atLeast: boolean;
  /** The reason for each unknown figure, keyed by the name of the report's field. */
  readonly missing: Readonly<Record<string, string>>;
}

/** Parse the JSON of a report. Return null if this version cannot read it. */
export function parseReport(value: unknown): CellReport | null {
  const report = fields(value);
  const cell = fields(report.cell);
  if (report.schema !== REPORT_SCHEMA || report.cell === undefined) {
    return null;
  }
  const all = list(report.gpus).slice(0, MAX_GPUS).map(fields);
  // If `shown` is missing, it is unknown whether the cell used the GPU, so the GPU is included.
  const used = all.filter(gpu => typeof gpu.uuid === 'string' && gpu.shown !== false);
  const counting = countedGpus(used);
  const kind = memoryKind(counting);
  const recording = text(fields(report.source).recording);
  // What changed in a recording is not what the cell kept.
  const unchanged = recording === null ? {} : { delta: null };
  const gpus = counting.map(gpu => ({ ...part(gpu, kind), ...unchanged }));
  return {
    executionCount: count(cell.execution_count),
    label: text(cell.label),
    started: parsed(time, cell.started),
    duration: amount(cell.duration_s),
    status: STATUSES.find(status => status === cell.status) ?? 'ok',
    recording,
    hasGpus: GPUS_UNKNOWN.includes(fields(fields(report.source).reason_id).id) ? null : all.length > 0,
    gpus,
    unlisted: 0,
    shown: used.map(gpu => text(gpu.uuid) ?? ''),
    kind,
    children: used.some(gpu => list(gpu.children).length > 0),
    ...sums(used, gpus),
    ...savedTotals(report.totals, gpus.length),
    ...unchanged,
    missing: reasons(used)
  };
}

type Sums = Pick<CellReport, 'ooms' | 'delta' | 'peak' | 'energy' | 'atLeast'>;

/** Return the sums over the listed GPUs, for a report of a version that did not save totals. */
function sums(used: readonly Fields[], gpus: readonly GpuPart[]): Sums {
  const energies = gpus.flatMap(({ energy }) => (energy === null ? [] : [energy]));
  const peaks = gpus.flatMap(({ peak }) => (peak === null ? [] : [peak]));
  return {
    ooms: used.reduce((sum, gpu) => sum + (count(fields(gpu.torch).ooms) ?? 0), 0),
    delta: gpus.length === 0 ? null : sum(gpus.map(({ delta }) => delta)),
    peak: peaks.length === 0 ? null : Math.max(...peaks),
    energy: energies.length === 0 ? null : energies.reduce((total, energy) => total + energy, 0),
    atLeast: energies.length < gpus.length
  };
}

/** Return the totals of a report, which include the GPUs that the report does not list. */
function savedTotals(value: unknown, listed: number): Partial<Sums & Pick<CellReport, 'kind' | 'unlisted'>> {
  const totals = fields(value);
  const [gpus, kind] = [count(totals.gpus), MEMORY_KINDS.find(each => each === totals.memory_kind)];
  if (gpus === null || gpus === 0 || kind === undefined) {
    return {};
  }
  const memory = fields(totals.memory);
  return {
    ooms: count(totals.ooms) ?? 0,
    kind,
    unlisted: Math.max(0, gpus - listed),
    ...change(memory),
    peak: amount(memory.peak),
    energy: amount(totals.energy_j),
    atLeast: (count(totals.energy_gpus) ?? 0) < gpus
  };
}

/**
 * Return the GPUs that count in sums, by the rule of the kernel's `Report.counted`: a GPU that is divided into
 * MIG slices repeats their figures, and on some GPUs only other processes worked.
 */
function countedGpus(gpus: readonly Fields[]): readonly Fields[] {
  const parents = new Set(gpus.map(gpu => gpu.mig_parent));
  const each = gpus.filter(({ uuid }) => !parents.has(uuid));
  const possible = each.filter(({ worked }) => worked !== false);
  return possible.length > 0
    ? possible
    : each.filter(gpu => (amount(fields(gpu.utilization).max) ?? 0) === 0);
}

/**
 * Return which memory to show. The rule is the same as in the kernel's card: torch's memory if torch's
 * allocator was used, otherwise the process's memory if it is known, otherwise the whole GPU's memory.
 */
function memoryKind(gpus: readonly Fields[]): MemoryKind {
  const processes = gpus.map(gpu => fields(gpu.process_memory));
  const process =
    gpus.length > 0 &&
    gpus.every(gpu => isObject(gpu.process_memory)) &&
    processes.some(span => amount(span.peak) !== null);
  // The figures of torch in the kernel do not include the memory of child processes. The figure for the
  // process's memory does.
  if (process && gpus.some(gpu => list(gpu.children).length > 0)) {
    return 'process';
  }
  const torch = gpus.length > 0 && gpus.every(gpu => isObject(gpu.torch));
  if (torch && gpus.some(gpu => (amount(fields(fields(gpu.torch).reserved).peak) ?? 0) > 0)) {
    return 'torch';
  }
  return process ? 'process' : 'device';
}

function part(gpu: Fields, kind: MemoryKind): GpuPart {
  const span = fields(
    kind === 'torch'
      ? fields(gpu.torch).allocated
      : kind === 'process'
        ? gpu.process_memory
        : gpu.device_memory
  );
  const index = String(count(gpu.index) ?? '?');
  const slice = count(gpu.mig_index);
  return {
    uuid: text(gpu.uuid) ?? '',
    number: slice === null ? index : `${index}:${String(slice)}`,
    torchDevice: text(gpu.torch_device),
    ...change(span),
    peak: amount(span.peak),
    energy: amount(gpu.energy_j)
  };
}

function change(span: Fields): Pick<GpuPart, 'delta'> {
  const [start, end] = [amount(span.start), amount(span.end)];
  return { delta: start === null || end === null ? null : end - start };
}

/**
 * Return the reason for each unknown field. The text is taken from the first GPU with a reason, because the
 * texts of later GPUs may only refer to that GPU, such as `as for GPU 0`.
 */
function reasons(gpus: readonly Fields[]): Record<string, string> {
  const found: Record<string, string> = {};
  for (const gpu of gpus) {
    const missing = fields(gpu.missing);
    for (const name of FIELDS_WITH_REASON) {
      const reason = name in found ? null : text(missing[name]);
      if (reason !== null) {
        found[name] = reason;
      }
    }
  }
  return found;
}

function sum(values: readonly (number | null)[]): number | null {
  let total = 0;
  for (const value of values) {
    if (value === null) {
      return null;
    }
    total += value;
  }
  return total;
}

type Fields = Readonly<Record<string, unknown>>;

function isObject(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function fields(value: unknown): Fields {
  return isObject(value) ? value : {};
}

function list(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

function text(value: unknown): string | null {
  return typeof value === 'string' ? visibleText(value) || null : null;
}

/** Return the beginning of a text without invisible characters, for one line of the page. */
export function visibleText(text: string): string {
  return text.slice(0, MAX_TEXT_LENGTH).replace(INVISIBLE, ' ').trim();
}
