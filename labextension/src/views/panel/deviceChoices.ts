import type { TranslationBundle } from '@jupyterlab/translation';

import { unavailability } from './panelMessages';
import { holderName, holdersOf, sortedHolders, type Holder } from '../../model/memory/holders';
import { memoryShares, type GpuNow } from '../../model/stream/streamModel';
import { memory, model, moment, shortMemory } from '../../model/format';
import type { DeviceChoice, DeviceState, KernelState, ServerKernel } from '../../wire/wire';

const GIB = 1024 ** 3;
/**
 * A kernel's figure that is older than this many seconds is outdated, since the kernel is queried every three
 * seconds.
 */
const MAX_AGE_S = 5;
/**
 * The name that the kernel uses for its notebook in a GPU's list of holders. All other names are names of
 * processes.
 */
const THIS_NOTEBOOK = 'this notebook';
/** Stands for all other processes in a GPU's list of holders. */
const OTHER_PROCESSES = 'other processes';
/** Maximum number of holders in a tooltip. */
const MAX_HOLDERS = 10;

/** The server's newest data, from which the options get the GPUs' current values. */
export interface ServerData {
  readonly gpus: readonly GpuNow[];
  readonly kernels: ReadonlyMap<string, ServerKernel>;
  /** The time of the newest sample in epoch seconds. */
  readonly time: number;
}

/** An option of the device dropdown. */
export interface DeviceOption {
  readonly value: string;
  readonly text: string;
  /** The tooltip. */
  readonly title: string;
  /** Whether the device cannot be chosen. The text then contains the reason. */
  readonly disabled: boolean;
}

/**
 * Return `choices` with each GPU's currently free memory.
 *
 * The free memory is taken from `gpus`, the server's newest sample. For a GPU that is missing there, the
 * kernel's figure is used unless it is outdated; `age` is its age in seconds.
 */
export function withCurrentFree(
  choices: readonly DeviceChoice[],
  gpus: readonly GpuNow[],
  age: number | null
): DeviceChoice[] {
  const sampled = new Map(gpus.map(now => [now.gpu.uuid, now]));
  return choices.map(choice => {
    const now = choice.uuid === null ? undefined : sampled.get(choice.uuid);
    const own = age !== null && age <= MAX_AGE_S ? choice.memory_free : null;
    return { ...choice, memory_free: now === undefined ? own : freeOf(now) };
  });
}

/**
 * Return `choices` without the names and the number of the other processes that the kernel lists. The server
 * hides those of other users, and a name does not tell whose process it is.
 */
export function withoutOtherProcesses(choices: readonly DeviceChoice[]): DeviceChoice[] {
  return choices.map(choice => {
    const own = choice.holders.filter(name => name === THIS_NOTEBOOK);
    const others = choice.holders.length > own.length ? [OTHER_PROCESSES] : [];
    return { ...choice, holders: [...own, ...others] };
  });
}

/** Return the free bytes of a GPU; null if the GPU does not respond. */
function freeOf(now: GpuNow): number | null {
  const { lost_since: lost, silent_since: silent } = now.reading;
  return lost === null && silent === null ? memoryShares(now).free : null;
}

/**
 * Return the GPU with the most free memory; null unless the free memory of at least two GPUs is known.
 *
 * Free memory is rounded to a tenth of a GiB. Among GPUs with the same free memory, prefer the `chosen` one,
 * then the one with the fewest holders, then the first one.
 */
export function mostFreeGpu(choices: readonly DeviceChoice[], chosen: string | null): DeviceChoice | null {
  const known = choices.filter(({ device, memory_free: free }) => device !== 'cpu' && free !== null);
  if (known.length < 2) {
    return null;
  }
  const free = (choice: DeviceChoice): number => Math.round((10 * (choice.memory_free ?? 0)) / GIB);
  const most = Math.max(...known.map(free));
  const equal = known.filter(choice => free(choice) === most);
  const fewest = Math.min(...equal.map(({ holders }) => holders.length));
  return (
    equal.find(({ device }) => device === chosen) ??
    equal.find(({ holders }) => holders.length === fewest) ??
    null
  );
}

/** Return the text of the option for "no device". */
export function defaultText(trans: TranslationBundle, device: DeviceState | null): string {
  return device?.chosen === null && device.present !== null
    ? trans.__('PyTorch default (%1)', device.present)
    : trans.__('PyTorch default');
}

/**
 * Return the option for a device, such as `cuda:0 · H200 · 71 GiB free · you + 7 others`. Its tooltip has the
 * exact figures and the names of the holders. A lost GPU cannot be chosen.
 */
export function deviceOption(
  trans: TranslationBundle,
  choice: DeviceChoice,
  { gpus, kernels, time }: ServerData
): DeviceOption {
  const { device, uuid, candidates } = choice;
  const now = uuid === null ? undefined : gpus.find(({ gpu }) => gpu.uuid === uuid);
  const lost = now?.reading.lost_since ?? null;
  const problem = now === undefined ? null : unavailability(trans, now.reading, time);
  const names = choice.name === null ? candidates.map(({ name }) => name) : [choice.name];
  const models = [...new Set(names.map(model))].join(' / ');
  const holders = lost === null ? holdersNow(now, kernels) : [];
  const facts = [
    models,
    lost === null
      ? (problem?.[0] ?? freeText(trans, choice.memory_free))
      : trans.__('lost since %1', moment(lost, time)),
    holders === null ? kernelHolders(trans, choice.holders) : holderCount(trans, holders)
  ].filter(fact => fact !== '');
  return {
    value: device,
    text: [device, ...facts].join(' · '),
    title: [
      ...gpuLines(trans, choice),
      ...(problem === null ? [] : [problem[1]]),
      ...(holders === null
        ? choice.holders.map(name => kernelHolder(trans, name))
        : holderLines(trans, holders, kernels))
    ].join('\n'),
    disabled: lost !== null
  };
}

function freeText(trans: TranslationBundle, free: number | null): string {
  return free === null ? '' : trans.__('%1 free', shortMemory(free));
}

/** Return the holders of a GPU's memory in the order of the panel; null if the server does not report them. */
function holdersNow(now: GpuNow | undefined, kernels: ServerData['kernels']): readonly Holder[] | null {
  return now === undefined || now.usage === null
    ? null
    : sortedHolders(holdersOf(now.usage, kernels, now.activeKernelId), []);
}

/**
 * Return how many holders there are besides this notebook, without memory of unknown processes. The number of
 * other users' processes is hidden.
 */
function holderCount(trans: TranslationBundle, holders: readonly Holder[]): string {
  const known = holders.filter(({ kind }) => kind !== 'unattributed');
  const others = known.filter(({ active }) => !active).length;
  if (known.some(({ kind }) => kind === 'other-users')) {
    return known.length === others ? trans.__('others') : trans.__('you + others');
  }
  if (known.length === others) {
    return others === 0 ? '' : trans._n('%1 other', '%1 others', others);
  }
  return others === 0 ? trans.__('you') : trans._n('you + %1 other', 'you + %1 others', others);
}

/**
 * Return who holds the memory according to the kernel. The kernel reports names of processes, of which
 * several may have the same one, so their number is unknown.
 */
function kernelHolders(trans: TranslationBundle, names: readonly string[]): string {
  const own = names.includes(THIS_NOTEBOOK);
  if (names.length > Number(own)) {
    return own ? trans.__('you + others') : trans.__('others');
  }
  return own ? trans.__('you') : '';
}

/** Return the line of the tooltip for a holder that the kernel lists. */
function kernelHolder(trans: TranslationBundle, name: string): string {
  switch (name) {
    case THIS_NOTEBOOK:
      return trans.__('This notebook');
    case OTHER_PROCESSES:
      return trans.__('Other processes');
    default:
      return name;
  }
}

/** Return the lines of the tooltip about the device's GPU, or about the GPUs that the device may be. */
function gpuLines(trans: TranslationBundle, choice: DeviceChoice): string[] {
  return (choice.name === null ? choice.candidates : [choice]).map(
    ({ index, name, compute_capability: capability, memory_free: free, memory_total: total }) =>
      [
        index === null ? '' : trans.__('GPU %1', index),
        name ?? '',
        capability === null ? '' : trans.__('compute capability %1', capability),
        free === null
          ? ''
          : total === null
            ? trans.__('%1 free', memory(free))
            : trans.__('%1 of %2 free', memory(free), memory(total))
      ]
        .filter(fact => fact !== '')
        .join(' · ')
  );
}

function holderLines(
  trans: TranslationBundle,
  holders: readonly Holder[],
  kernels: ServerData['kernels']
): string[] {
  const lines = holders.map(holder => {
    const [name] = holderName(trans, holder, kernels.values());
    const who = holder.active ? trans.__('%1 (this notebook)', name) : name;
    return `${who}: ${memory(holder.memory)}`;
  });
  const left = lines.length - MAX_HOLDERS;
  return left <= 0 ? lines : [...lines.slice(0, MAX_HOLDERS), trans._n('and %1 more', 'and %1 more', left)];
}

/** Return the text of the option "most free memory", with the device that has the most now. */
export function mostFreeText(trans: TranslationBundle, { device }: DeviceChoice): string {
  return trans.__('Most free memory (now %1)', device);
}

/** Return the text of the option that turns the default device for new tensors on or off. */
export function newTensorsText(trans: TranslationBundle, on: boolean): string {
  return `${on ? '☑' : '☐'} ${trans.__('Also for new tensors (+1–3 µs per torch call)')}`;
}

/** Return how many of the GPUs torch sees; empty if it sees all of them, or none. */
export function unseenText(trans: TranslationBundle, { torch, choices, gpus }: KernelState): string {
  const seen = choices.filter(({ device }) => device !== 'cpu').length;
  return torch === null || seen === 0 || seen >= gpus.length
    ? ''
    : trans.__('PyTorch sees %1 of %2 GPUs', seen, gpus.length);
}

/** Return a sentence that names the device which was selected by choosing "most free memory". */
export function mostFreeChosenText(trans: TranslationBundle, choice: DeviceChoice): string {
  const { device, index, memory_free: free } = choice;
  const deviceName = index === null ? device : trans.__('%1 (GPU %2)', device, index);
  return trans.__('%1 has the most free memory: %2.', deviceName, memory(free));
}
