import type { TranslationBundle } from '@jupyterlab/translation';
import { Signal, type ISignal } from '@lumino/signaling';

import type { Clock } from '../../model/clock';
import {
  heldMemory,
  sumOfHeldMemory,
  withoutDividedGpus,
  withoutMigParents,
  type HeldMemory
} from '../../model/memory/holders';
import type { IKernels, KernelView } from '../../model/kernel/kernels';
import {
  duration,
  gpuNumber,
  memory,
  memoryLevel,
  type MemoryLevel,
  memoryOf,
  memoryScale,
  model,
  padded,
  shortMemory,
  UNKNOWN,
  unitsChanged,
  whole
} from '../../model/format';
import type { Gpu, KernelGpu, KernelState, Reading, Sample } from '../../wire/wire';
import type { NewestSample } from '../../model/stream/newestSample';

/**
 * If the kernel can't be queried while a cell runs, n/a is shown only after the cell has run for this long,
 * so that the text does not flicker when cells are short.
 */
const SHORT_CELL_MS = 1000;
/** The sparkline has a point for every five seconds of the last two minutes. */
const POINT_S = 5;
const POINTS = 24;

/**
 * The text of the status item: the utilization and memory of the active notebook's GPU or, before gpuwidget is
 * loaded in its kernel, of the server's GPUs.
 *
 * The item is always shown, so it must cost little: it opens no stream and does not poll an idle kernel. It
 * shows the state that the kernel sent after its last cell. While a cell runs and the page is visible, the
 * kernel is polled every five seconds.
 */
export class StatusModel {
  private wanted = false;
  private current: StatusText | null = null;
  private points: readonly SparkPoint[] = [];
  /** The UUIDs of the GPUs whose utilization `points` has. */
  private gpus = '';
  private busySince: number | null = null;
  private timer: number | null = null;
  private disposed = false;
  private readonly changes = new Signal<this, void>(this);
  private readonly activeChanges = new Signal<this, void>(this);

  constructor(
    private readonly trans: TranslationBundle,
    private readonly kernels: IKernels,
    private readonly newest: Pick<NewestSample, 'changed' | 'sample' | 'setWanted' | 'dispose'>,
    private readonly clock: Clock
  ) {
    kernels.changed.connect(this.update, this);
    newest.changed.connect(this.update, this);
    unitsChanged.connect(this.update, this);
  }

  /** The text and tooltip to show; null if there is nothing to show. */
  get text(): StatusText | null {
    return this.current;
  }

  /** The utilization of the last two minutes, oldest first. */
  get history(): readonly SparkPoint[] {
    return this.points;
  }

  /** Emitted after `text` or `history` has changed. */
  get changed(): ISignal<this, void> {
    return this.changes;
  }

  /** Emitted when `text` becomes null or ceases to be null. */
  get activeChanged(): ISignal<this, void> {
    return this.activeChanges;
  }

  /** Set whether the settings enable the item and whether the page is visible. */
  setWanted(wanted: boolean, pageVisible: boolean): void {
    this.wanted = wanted;
    this.kernels.setStatusVisible(wanted && pageVisible);
    this.newest.setWanted(wanted && pageVisible);
    this.update();
  }

  /** Stop polling, cancel the timer and disconnect all signals. */
  dispose(): void {
    if (this.disposed) {
      return;
    }
    this.disposed = true;
    this.cancelTimer();
    this.newest.dispose();
    this.kernels.changed.disconnect(this.update, this);
    unitsChanged.disconnect(this.update, this);
    this.kernels.setStatusVisible(false);
    Signal.clearData(this);
  }

  private update(): void {
    const before = this.current;
    const { view } = this.kernels;
    const { sample } = this.newest;
    this.current = this.wanted ? statusText(this.trans, view, sample, this.isStale()) : null;
    const gpus = this.current?.gpus ?? this.gpus;
    // The means of different GPUs are no course of one value.
    const same = gpus === this.gpus ? this.points : [];
    const points = withPoint(same, sample?.time ?? null, this.current?.meter.utilization ?? null);
    this.gpus = gpus;
    if (
      points !== this.points ||
      this.current?.text !== before?.text ||
      this.current?.title !== before?.title
    ) {
      this.points = points;
      this.changes.emit();
    }
    if ((this.current !== null) !== (before !== null)) {
      this.activeChanges.emit();
    }
  }

  /**
   * Return whether the kernel's state predates the running cell and no newer state will be requested before
   * the cell ends. Return false during the cell's first second.
   */
  private isStale(): boolean {
    const { view, pollingDisabled } = this.kernels;
    if (!view.busy || !pollingDisabled) {
      this.busySince = null;
      this.cancelTimer();
      return false;
    }
    this.busySince ??= this.clock.now();
    const left = SHORT_CELL_MS - (this.clock.now() - this.busySince);
    if (left > 0) {
      this.timer ??= this.clock.after(left, () => {
        this.timer = null;
        this.update();
      });
    }
    return left <= 0;
  }

  private cancelTimer(): void {
    if (this.timer !== null) {
      this.clock.cancel(this.timer);
      this.timer = null;
    }
  }
}

/** The text of the status item and its tooltip, and the meter that can replace the text. */
export interface StatusText {
  readonly text: string;
  readonly title: string;
  readonly meter: Meter;
  /** The UUIDs of the GPUs that the meter is about. */
  readonly gpus: string;
}

/** The memory of several GPUs together, and their mean utilization. */
export interface Meter {
  /** Mean utilization in percent; null if it is unknown. */
  readonly utilization: number | null;
  /** Used memory in percent of the total, of the GPUs whose memory is known; null if there is none. */
  readonly percent: number | null;
  /** Whether the memory of one of the GPUs is nearly full. */
  readonly level: MemoryLevel;
  /** The memory, such as `16 of 140 GiB`, or `≥ 155 GiB, 1 lost` if the memory of a GPU is unknown. */
  readonly memory: string;
}

/** A point of the sparkline: when it was measured, in epoch seconds, and the utilization in percent. */
export type SparkPoint = readonly [time: number, utilization: number | null];

/** A GPU of the server with its current reading. */
interface GpuReading {
  readonly gpu: Gpu;
  readonly reading: Reading;
}

/**
 * Return the default device of the active notebook, the GPU memory that the notebook holds and the utilization
 * of its GPUs. Before gpuwidget is loaded in the notebook's kernel, return the memory and utilization of the
 * server's GPUs. Return null if there is no GPU.
 *
 * `sample` is the server's newest sample. `stale` means that the kernel's state predates the running cell.
 */
export function statusText(
  trans: TranslationBundle,
  view: KernelView,
  sample: Sample | null,
  stale: boolean
): StatusText | null {
  const readings = (sample?.gpus ?? []).flatMap((gpu, index): GpuReading[] => {
    const reading = sample?.readings[index];
    return reading === undefined ? [] : [{ gpu, reading }];
  });
  const recording = sample?.origin.recording ?? null;
  const text =
    view.condition.kind === 'ready' && view.condition.state.gpus.length > 0
      ? notebookText(trans, view, view.condition.state, readings, stale)
      : readings.length > 0
        ? serverText(trans, readings)
        : null;
  if (text === null || recording === null) {
    return text;
  }
  const labeled = (part: string): string => trans.__('%1 (recording)', part);
  const { meter } = text;
  return {
    text: labeled(text.text),
    title: `${text.title}\n${recording}`,
    gpus: text.gpus,
    meter: { ...meter, memory: labeled(meter.memory) }
  };
}

/** Return the memory and utilization of the server's GPUs. */
function serverText(trans: TranslationBundle, readings: readonly GpuReading[]): StatusText {
  const meter = meterOf(trans, readings);
  const all = withoutMigParents(readings);
  const memoryPart = all.every(({ gpu }) => gpu.mig_parent !== null)
    ? trans._n('%1 slice: memory %2', '%1 slices: memory %2', all.length, meter.memory)
    : all.length === 1
      ? trans.__('GPU memory %1', meter.memory)
      : trans._n('%1 GPU: memory %2', '%1 GPUs: memory %2', all.length, meter.memory);
  return {
    text: `${memoryPart} · ${utilizationText(trans, readings)}`,
    title: [trans.__('All GPUs of this server'), ...readings.map(each => gpuLine(trans, each))].join('\n'),
    meter,
    gpus: uuidsOf(readings)
  };
}

/** Return the meter of these GPUs. Memory that a MIG slice uses counts only once. */
function meterOf(trans: TranslationBundle, readings: readonly GpuReading[]): Meter {
  const all = withoutMigParents(readings);
  let [used, total, known, lost, highest] = [0, 0, 0, 0, 0];
  for (const { gpu, reading } of all) {
    if (reading.lost_since !== null) {
      lost++;
    } else if (reading.memory_used !== null && gpu.memory_total !== null) {
      known++;
      used += reading.memory_used;
      total += gpu.memory_total;
      highest = Math.max(highest, reading.memory_used / gpu.memory_total);
    }
  }
  const amount =
    known === all.length ? memoryOf(trans, used, total) : known > 0 ? `≥ ${shortMemory(used)}` : UNKNOWN;
  return {
    utilization: meanUtilization(readings),
    percent: total > 0 ? (100 * used) / total : null,
    level: memoryLevel(highest, 1),
    memory: lost > 0 ? trans.__('%1, %2 lost', amount, lost) : amount
  };
}

/**
 * Return the sparkline's points with the utilization at `time`. Return the same array while the newest point is
 * of the same five seconds.
 */
function withPoint(
  points: readonly SparkPoint[],
  time: number | null,
  utilization: number | null
): readonly SparkPoint[] {
  const newest = points.at(-1)?.[0] ?? -Infinity;
  return time === null || Math.floor(time / POINT_S) === Math.floor(newest / POINT_S)
    ? points
    : [...points.filter(([at]) => at < time && at > time - POINTS * POINT_S), [time, utilization]];
}

/** Return the default device of a notebook, its GPU memory and the utilization of its GPUs. */
function notebookText(
  trans: TranslationBundle,
  view: KernelView,
  state: KernelState,
  readings: readonly GpuReading[],
  stale: boolean
): StatusText {
  const device = state.device.chosen ?? state.device.present;
  const known = view.silentFor === null && !stale;
  const chosen = state.gpus.find(gpu => gpu.torch_device !== null && gpu.torch_device === device);
  const all = withoutDividedGpus(
    state.gpus,
    readings.map(({ gpu }) => gpu)
  );
  const holding = all.filter(holds);
  const shown = chosen === undefined ? holding : [chosen];
  const held = sumOfHeldMemory((shown.length > 0 ? shown : all).map(heldMemory));
  const amount = known ? memoryText(trans, held) : UNKNOWN;
  const uuids = new Set(shown.map(({ uuid }) => uuid));
  const own = readings.filter(({ gpu }) => uuids.has(gpu.uuid));
  const measured = own.length > 0 ? own : readings;
  const parts = [
    device === null
      ? trans.__('%1 GPU memory', amount)
      : trans.__('Default: %1 · %2 GPU memory', device, amount),
    ...(readings.length === 0 ? [] : [utilizationText(trans, measured)])
  ];
  const title = trans.__('GPU memory of %1', view.notebook ?? trans.__('this notebook'));
  return {
    text: parts.join(' · '),
    title: [
      title,
      ...(known ? details(trans, holding, held.bytes) : [reasonUnknown(trans, view)]),
      ...(readings.length === 0 ? [] : [trans.__('All GPUs of this server')]),
      ...readings.map(each => gpuLine(trans, each))
    ].join('\n'),
    meter: meterOf(trans, measured),
    gpus: uuidsOf(measured)
  };
}

function uuidsOf(readings: readonly GpuReading[]): string {
  return readings
    .map(({ gpu }) => gpu.uuid)
    .sort()
    .join(' ');
}

/** Return the utilization of a GPU, or the mean of several GPUs. GPUs whose utilization is unknown are left out. */
function utilizationText(trans: TranslationBundle, readings: readonly GpuReading[]): string {
  const text = percentText(meanUtilization(readings));
  return readings.length === 1 ? trans.__('util %1', text) : trans.__('mean util %1', text);
}

/** Return a percentage as text that is as wide as one of two digits. */
export function percentText(value: number | null): string {
  return value === null ? UNKNOWN : `${padded(whole(value), 2)} %`;
}

function meanUtilization(readings: readonly GpuReading[]): number | null {
  const known = readings.flatMap(({ reading }) => utilizationOf(reading) ?? []);
  return known.length === 0 ? null : known.reduce((total, each) => total + each, 0) / known.length;
}

/** Return the GPU's utilization in percent; null if it is unknown or the GPU does not answer. */
function utilizationOf({ lost_since, silent_since, utilization }: Reading): number | null {
  return lost_since === null && silent_since === null ? utilization : null;
}

/** Return one line with the GPU's number, model, utilization and used memory. */
function gpuLine(trans: TranslationBundle, { gpu, reading }: GpuReading): string {
  const [number, product] = [gpuNumber(gpu), model(gpu.name)];
  const name =
    gpu.mig_parent === null
      ? trans.__('GPU %1 %2', number, product)
      : trans.__('Slice %1 %2', number, product);
  if (reading.lost_since !== null) {
    return trans.__('%1: lost', name);
  }
  const utilization = utilizationOf(reading);
  return trans.__(
    '%1: utilization %2, %3 used',
    name,
    utilization === null ? UNKNOWN : `${whole(utilization)} %`,
    memoryOf(trans, reading.memory_used, gpu.memory_total)
  );
}

function holds(gpu: KernelGpu): boolean {
  return gpu.context || (heldMemory(gpu).bytes ?? 0) > 0;
}

/** Return memory as text, labeled `(torch)` if torch rather than the driver reported it. */
function memoryText(trans: TranslationBundle, { bytes, torch }: HeldMemory): string {
  const text = bytes === 0 ? `0 ${memoryScale()[0].name}` : memory(bytes);
  return torch && bytes !== null ? trans.__('%1 (torch)', text) : text;
}

function details(
  trans: TranslationBundle,
  holding: readonly KernelGpu[],
  bytes: number | null
): readonly string[] {
  const lines = holding.map(gpu => `${gpu.torch_device ?? gpu.uuid}: ${memoryText(trans, heldMemory(gpu))}`);
  if (holding.some(gpu => heldMemory(gpu).torch)) {
    lines.push(trans.__('Reserved by PyTorch, without the CUDA context'));
  }
  if (bytes === null) {
    return [...lines, trans.__('The driver does not report this notebook’s share of the memory')];
  }
  return lines.length > 0 ? lines : [trans.__('This notebook holds no GPU memory')];
}

function reasonUnknown(trans: TranslationBundle, view: KernelView): string {
  return view.silentFor === null
    ? trans.__('Unknown while a cell runs: the kernel is queried again when the cell has ended')
    : trans.__('The kernel has not replied for %1', duration(view.silentFor));
}
