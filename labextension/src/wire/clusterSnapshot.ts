/** Parses the server's snapshots of the cluster. */

import {
  amount,
  count,
  each,
  flag,
  known,
  list,
  nullable,
  number,
  object,
  oneOf,
  optionalText,
  orNull,
  parsed,
  text,
  time,
  validItems
} from './parsing';
import type { ClusterGpu, ClusterNode, ClusterSnapshot } from './wire';

/** Maximum number of GPUs, and of machines, of a cluster. */
const MAX_GPUS = 100_000;

const snapshot = object<ClusterSnapshot>({
  time: nullable(time),
  interval_s: known(amount),
  problem: nullable(text),
  nodes: list(object<ClusterNode>({ name: text, up: flag, last_seen: orNull(time) }), MAX_GPUS),
  gpus: list(
    object<ClusterGpu>({
      ...each(text, 'uuid', 'node'),
      index: count,
      ...each(optionalText, 'model', 'mig', 'job'),
      ...each(list(text), 'users', 'notebooks'),
      exporters: validItems(oneOf('gpuwidget', 'dcgm', 'nvidia_gpu')),
      ...each(amount, 'utilization', 'memory_used', 'memory_total', 'power_w', 'power_limit_w', 'idle_s'),
      ...each(count, 'xid', 'ecc_uncorrected'),
      temperature_c: number,
      lost: flag
    }),
    MAX_GPUS
  )
});

/**
 * Return the snapshot; null if the reply does not have its format. Values of an unexpected type are null, which
 * means unknown.
 */
export function parseSnapshot(reply: unknown): ClusterSnapshot | null {
  return parsed(snapshot, reply);
}
