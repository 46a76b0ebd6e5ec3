import { parsed } from './parsing';
import { ClusterSnapshot } from './wire';

/**
 * Return the snapshot; null if the reply does not have its format. Values of an unexpected type are null, which
 * means unknown.
 */
export function parseSnapshot(reply: unknown): ClusterSnapshot | null {
  return parsed(ClusterSnapshot, reply);
}
