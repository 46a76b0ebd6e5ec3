import type { DeviceChoice } from '../wire';

const GIB = 1024 ** 3;

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
