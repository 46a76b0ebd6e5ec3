import type { DeviceOrder } from '../../wire/wire';

/**
 * Return the sentences to show about the order of the devices: why it is unknown, or why the numbers are not
 * those of nvidia-smi.
 *
 * There is no sentence if `CUDA_VISIBLE_DEVICES` alone makes the numbers differ, because it is set on purpose
 * and often for good. `%gpu device` shows that sentence too.
 */
export function orderNotes({ notes, note_ids: ids }: DeviceOrder): string {
  return notes
    .filter((_, index) => {
      const { id, params } = ids[index] ?? { id: '', params: {} };
      return id !== 'device-numbers-differ' || params.visible === null || params.by_speed === true;
    })
    .join(' ');
}
