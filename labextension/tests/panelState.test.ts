import assert from 'node:assert/strict';
import { test } from 'node:test';

import { NOTEBOOK_ORDER } from '../src/model/cells/runTable';
import { PanelState, type SavedPanelState } from '../src/model/panelState';
import { settled } from './fakes';

const BY_ENERGY = { column: 'energy', descending: true } as const;

/**
 * Return a panel state whose store contains `stored`, and the array of states that it tries to save. Saving
 * always fails.
 */
function stateWith(stored: Promise<unknown>): { saved: SavedPanelState[]; state: PanelState } {
  const saved: SavedPanelState[] = [];
  const state = new PanelState({
    fetch: () => stored,
    save: value => {
      saved.push(value);
      return Promise.reject(new Error('read-only'));
    }
  });
  return { saved, state };
}

test('expanded parts, order and the choice of new tensors are restored after a reload', async () => {
  const expanded = { health: true, 'GPU-1': false, odd: 'yes' };
  const { saved, state } = stateWith(Promise.resolve({ expanded, sort: BY_ENERGY, newTensors: false }));
  let changes = 0;
  state.changed.connect(() => changes++);
  assert.equal(state.restored, false);
  await settled();
  assert.deepEqual([state.restored, changes], [true, 1]);
  assert.deepEqual(
    ['health', 'GPU-1', 'odd', 'cells'].map(name => state.isExpanded(name)),
    [true, false, null, null]
  );
  assert.deepEqual([state.sort, state.newTensors], [BY_ENERGY, false]);
  state.setExpanded('health', false);
  assert.deepEqual(saved, [
    { expanded: { 'GPU-1': false, health: false }, sort: BY_ENERGY, newTensors: false }
  ]);
});

test('a change before the stored state is read is kept and replaces nothing else of it', async () => {
  const expanded = { health: true, cells: true };
  const { saved, state } = stateWith(Promise.resolve({ expanded, sort: BY_ENERGY, newTensors: false }));
  state.setExpanded('cells', false);
  state.newTensors = true;
  assert.deepEqual(saved, []);
  await settled();
  assert.deepEqual([state.isExpanded('health'), state.isExpanded('cells')], [true, false]);
  assert.deepEqual(saved, [{ expanded: { health: true, cells: false }, sort: BY_ENERGY, newTensors: true }]);
});

test('with a broken store or none, changes hold until the page is left', async () => {
  for (const { state } of [
    stateWith(Promise.reject(new Error('gone'))),
    stateWith(Promise.resolve('x')),
    stateWith(Promise.resolve({ expanded: [], sort: { column: 'size' } })),
    stateWith(Promise.resolve({ expanded: null, sort: null })),
    { state: new PanelState(null) }
  ]) {
    state.setExpanded('health', true);
    await settled();
    assert.deepEqual([state.isExpanded('health'), state.restored], [true, true]);
    assert.deepEqual([state.sort, state.newTensors], [NOTEBOOK_ORDER, true]);
    state.sort = BY_ENERGY;
    assert.deepEqual(state.sort, BY_ENERGY);
  }
});

test('of very many expanded parts the oldest are dropped', async () => {
  const { saved, state } = stateWith(Promise.resolve(undefined));
  await settled();
  for (let gpu = 0; gpu < 300; gpu++) {
    state.setExpanded(`GPU-${String(gpu)}`, true);
  }
  assert.equal(Object.keys(saved.at(-1)?.expanded ?? {}).length, 200);
  assert.deepEqual([state.isExpanded('GPU-99'), state.isExpanded('GPU-100')], [null, true]);
});

test('a disposed details element is not bound to the state any more', () => {
  const state = new PanelState(null);
  const node = { open: false, ontoggle: null } as unknown as HTMLDetailsElement;
  const toggles: boolean[] = [];
  const binding = state.bindDetails(node, 'health', byUser => toggles.push(byUser));
  state.setExpanded('health', true);
  assert.equal(node.open, true);
  node.open = false;
  node.ontoggle?.({} as ToggleEvent);
  assert.deepEqual([state.isExpanded('health'), toggles], [false, [true]]);
  binding.dispose();
  state.setExpanded('health', true);
  assert.deepEqual([node.open, node.ontoggle], [false, null]);
});
