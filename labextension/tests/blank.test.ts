import assert from 'node:assert/strict';
import { test } from 'node:test';

import { blankOf, type Drawable } from '../src/dashboard/blank';
import { trans } from './fakes';

const DRAWN: Drawable = { gpus: 2, reason: null, chosen: 1, metrics: 3, read: true, notice: null };
const LOST = { text: 'The server does not answer.' };

function text(changes: Partial<Drawable>): string | null {
  return blankOf(trans, { ...DRAWN, ...changes })?.text ?? null;
}

test('charts stand where there is something to draw, whatever is wrong with what comes next', () => {
  assert.equal(text({}), null);
  assert.equal(text({ notice: LOST }), null);
});

test('without a GPU the server’s own reason is told, and nothing else', () => {
  assert.equal(text({ gpus: 0, chosen: 0, reason: 'No driver.', notice: LOST, metrics: 0 }), 'No driver.');
  assert.equal(text({ gpus: 0, chosen: 0 }), 'The server sees no GPU.');
});

test('what was chosen away comes back by a button', () => {
  assert.deepEqual(blankOf(trans, { ...DRAWN, metrics: 0, read: false }), {
    text: 'No metric is chosen.',
    action: 'metrics'
  });
  assert.deepEqual(blankOf(trans, { ...DRAWN, chosen: 0 }), { text: 'No GPU is chosen.', action: 'gpus' });
});

test('what is waited for is said, and why it does not come', () => {
  const first = { gpus: null, chosen: 0, read: false };
  assert.deepEqual(blankOf(trans, { ...DRAWN, ...first }), {
    text: 'Waiting for the first sample…',
    passing: true
  });
  assert.equal(text({ ...first, notice: LOST }), LOST.text);
  assert.deepEqual(blankOf(trans, { ...DRAWN, read: false }), { text: 'Reading the past…', passing: true });
  assert.equal(text({ read: false, notice: LOST }), LOST.text);
  const absent = { text: 'No extension.', command: 'jupyter server extension enable gpuwidget' };
  assert.equal(blankOf(trans, { ...DRAWN, ...first, notice: absent })?.command, absent.command);
});
