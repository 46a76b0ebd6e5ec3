import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { orderNotes } from '../src/views/panel/deviceOrder';

/** Return what the panel shows of a note about numbers that differ. */
function shownOfDifference(visible: string | null, bySpeed: boolean): string {
  const params = { device: 'cuda:0', gpu: 1, visible, by_speed: bySpeed };
  return orderNotes({
    source: 'cuda',
    notes: ['cuda:0 is GPU 1 in nvidia-smi.'],
    note_ids: [{ id: 'device-numbers-differ', params }]
  });
}

test('notes about the order of the devices are shown unless CUDA_VISIBLE_DEVICES alone explains them', () => {
  assert.equal(
    orderNotes({
      source: null,
      notes: ['Unknown.', 'Why.'],
      note_ids: [{ id: 'device-order-unknown', params: {} }]
    }),
    'Unknown. Why.'
  );
  assert.equal(shownOfDifference(null, true), 'cuda:0 is GPU 1 in nvidia-smi.');
  assert.equal(shownOfDifference('1,0', true), 'cuda:0 is GPU 1 in nvidia-smi.');
  assert.equal(shownOfDifference('1,0', false), '');
});
