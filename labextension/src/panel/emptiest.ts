import { memoryShares, type GpuNow } from '../stream/streamModel';
import type { DeviceChoice } from '../wire';

const GIB = 1024 ** 3;
/** A kernel that is asked every three seconds has answered within so many, or its figures are no longer so. */
const FRESH_S = 5;

/**
 * `choices` with what is free now: as `gpus`, the server's newest, say it; of a GPU that the server does not see, as the
 * kernel said it `age` seconds ago, and unknown once that is too long ago.
 */
export function withFreeNow(
  choices: readonly DeviceChoice[],
  gpus: readonly GpuNow[],
  age: number | null
): DeviceChoice[] {
  const seen = new Map(gpus.map(now => [now.gpu.uuid, now]));
  return choices.map(choice => {
    const now = choice.uuid === null ? undefined : seen.get(choice.uuid);
    const said = age !== null && age <= FRESH_S ? choice.memory_free : null;
    return { ...choice, memory_free: now === undefined ? said : freeOf(now) };
  });
}

/** One that does not answer has nothing to offer. */
function freeOf(now: GpuNow): number | null {
  const { lost_since: lost, silent_since: silent } = now.reading;
  return lost === null && silent === null ? memoryShares(now).free : null;
}

/**
 * The GPU with the most free memory among `choices`, null where there are no two to compare: one whose figure is not
 * known, as a lost one's, is not among them. Of those that read the same, to a tenth of a GiB, it is the one that is
 * `chosen` already, else the one that fewest are on, else the first.
 */
export function emptiest(choices: readonly DeviceChoice[], chosen: string | null): DeviceChoice | null {
  const known = choices.filter(({ device, memory_free: free }) => device !== 'cpu' && free !== null);
  if (known.length < 2) {
    return null;
  }
  const free = (choice: DeviceChoice): number => Math.round((10 * (choice.memory_free ?? 0)) / GIB);
  const most = Math.max(...known.map(free));
  const equal = known.filter(choice => free(choice) === most);
  const least = Math.min(...equal.map(({ holders }) => holders.length));
  return (
    equal.find(({ device }) => device === chosen) ??
    equal.find(({ holders }) => holders.length === least) ??
    null
  );
}
