import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Folds, type Wishes } from '../src/panel/folds';
import { settled } from './fakes';

/** A store that has `kept`, and what is saved there. */
function store(kept: Promise<unknown>): { saved: Wishes[]; folds: Folds } {
  const saved: Wishes[] = [];
  const folds = new Folds({
    fetch: () => kept,
    save: wishes => {
      saved.push(wishes);
      return Promise.reject(new Error('read-only'));
    }
  });
  return { saved, folds };
}

test('what was folded and unfolded is known again, and what never was is not', async () => {
  const { saved, folds } = store(Promise.resolve({ health: true, 'GPU-1': false, odd: 'yes' }));
  let told = 0;
  folds.changed.connect(() => told++);
  assert.equal(folds.restored, false);
  await settled();
  assert.equal(folds.restored, true);
  assert.equal(told, 1);
  assert.deepEqual(
    ['health', 'GPU-1', 'odd', 'cells'].map(name => folds.wish(name)),
    [true, false, null, null]
  );
  folds.set('health', false);
  assert.deepEqual(saved, [{ 'GPU-1': false, health: false }]);
});

test('what the user does before it is known what was kept holds, and takes nothing of that away', async () => {
  const { saved, folds } = store(Promise.resolve({ health: true, cells: true }));
  folds.set('cells', false);
  assert.deepEqual(saved, []);
  await settled();
  assert.deepEqual([folds.wish('health'), folds.wish('cells')], [true, false]);
  assert.deepEqual(saved, [{ health: true, cells: false }]);
});

test('a store that is broken, or none, changes nothing on the page', async () => {
  for (const { folds } of [
    store(Promise.reject(new Error('gone'))),
    store(Promise.resolve('x')),
    { folds: new Folds(null) }
  ]) {
    folds.set('health', true);
    await settled();
    assert.deepEqual([folds.wish('health'), folds.restored], [true, true]);
  }
});

test('the oldest of very many go', async () => {
  const { saved, folds } = store(Promise.resolve(undefined));
  await settled();
  for (let gpu = 0; gpu < 300; gpu++) {
    folds.set(`GPU-${String(gpu)}`, true);
  }
  assert.equal(Object.keys(saved.at(-1) ?? {}).length, 200);
  assert.deepEqual([folds.wish('GPU-99'), folds.wish('GPU-100')], [null, true]);
});
