import type { TranslationBundle } from '@jupyterlab/translation';

import { nodeProblem } from '../cluster/gpuGrid';
import { gpuName, unavailability } from '../panel/panelMessages';
import { gpuNumber, model } from '../../model/format';
import type { ClusterSnapshot, Reading, Sample } from '../../wire/wire';

/** A GPU of this machine or of another one, as the dashboard shows it. */
export interface DashboardGpu {
  readonly uuid: string;
  /** Product name without the vendor. */
  readonly name: string;
  /** The GPU's index as in `nvidia-smi`. */
  readonly number: string;
  /** Position in the machine's list of GPUs, which determines the color. */
  readonly position: number;
  /** Bytes; null if unknown. */
  readonly memoryTotal: number | null;
  /** Watts; null if unknown. */
  readonly powerLimit: number | null;
  /** The newest reading; null for a GPU of another machine. */
  readonly reading: Reading | null;
  /** A short and a long text about why the GPU has no current readings; null if it has. */
  readonly problem: readonly [string, string] | null;
}

/** Return the GPUs of this machine; an empty list before the first sample. */
export function gpusOfSample(trans: TranslationBundle, sample: Sample | null): DashboardGpu[] {
  return (sample?.gpus ?? []).flatMap((gpu, position) => {
    const reading = sample?.readings[position];
    return reading === undefined
      ? []
      : [
          {
            uuid: gpu.uuid,
            name: gpuName(trans, gpu),
            number: gpuNumber(gpu),
            position,
            memoryTotal: gpu.memory_total,
            powerLimit: reading.power_limit_w,
            reading,
            problem: unavailability(trans, reading, sample?.time ?? NaN)
          }
        ];
  });
}

/** Return the GPUs of another machine, which is a node of the cluster. */
export function gpusOfNode(
  trans: TranslationBundle,
  snapshot: ClusterSnapshot,
  node: string
): DashboardGpu[] {
  const machine = snapshot.nodes.find(({ name }) => name === node);
  const down = machine === undefined ? null : nodeProblem(trans, machine, snapshot.time ?? NaN);
  return snapshot.gpus
    .filter(gpu => gpu.node === node)
    .map((gpu, position) => ({
      uuid: gpu.uuid,
      name: [model(gpu.model ?? trans.__('GPU')), gpu.mig ?? ''].filter(part => part !== '').join(' '),
      number: gpu.index === null ? '?' : String(gpu.index),
      position,
      memoryTotal: gpu.memory_total,
      powerLimit: gpu.power_limit_w,
      reading: null,
      problem:
        down !== null
          ? [trans.__('lost'), down]
          : gpu.lost
            ? [trans.__('lost'), trans.__('The exporter no longer reaches this GPU.')]
            : null
    }));
}
