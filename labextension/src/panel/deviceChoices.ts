import type { TranslationBundle } from '@jupyterlab/translation';

import { memoryShares, type GpuNow } from '../stream/streamModel';
import { memory, model } from '../ui/format';
import type { DeviceChoice, DeviceState } from '../wire';

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
export function emptiestGpu(choices: readonly DeviceChoice[], chosen: string | null): DeviceChoice | null {
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
    ? trans.__("none · torch's own default (%1)", device.present)
    : trans.__("none · torch's own default");
}

/**
 * Return the text of the option for a device: its name in torch, its GPU, the GPU's free memory and holders.
 */
export function choiceText(trans: TranslationBundle, choice: DeviceChoice): string {
  const parts = [choice.device];
  if (choice.name !== null) {
    const number = choice.index === null ? [] : [trans.__('GPU %1', choice.index)];
    const capability = choice.compute_capability === null ? [] : [`(${choice.compute_capability})`];
    parts.push([...number, model(choice.name), ...capability].join(' '));
  }
  if (choice.memory_free !== null) {
    parts.push(trans.__('%1 free', memory(choice.memory_free)));
  }
  const holders = choice.holders.map(who => (who === THIS_NOTEBOOK ? trans.__('this notebook') : who));
  return [...parts, ...holders].join(' · ');
}

/**
 * Return the text of the option "the emptiest GPU", which includes the device that currently is the emptiest.
 */
export function emptiestText(trans: TranslationBundle, { device, memory_free: free }: DeviceChoice): string {
  return trans.__('the emptiest GPU · now %1, %2 free', device, memory(free));
}

/** Return a sentence that names the GPU which was selected by choosing "the emptiest GPU". */
export function emptiestChosenText(trans: TranslationBundle, choice: DeviceChoice): string {
  const { device, index, memory_free: free } = choice;
  const deviceName = index === null ? device : trans.__('%1 (GPU %2)', device, index);
  return trans.__('The emptiest GPU is %1, with %2 free.', deviceName, memory(free));
}
