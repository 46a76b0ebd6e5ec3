import assert from 'node:assert/strict';
import { test } from 'node:test';

import { emptyState, type DashboardContent } from '../src/views/dashboard/emptyState';
import { trans } from './fakes';

const CONTENT: DashboardContent = {
  gpus: 2,
  reason: null,
  shownGpus: 1,
  metrics: 3,
  loaded: true,
  notice: null
};
const LOST = { text: 'The server does not answer.' };

function text(changes: Partial<DashboardContent>): string | null {
  return emptyState(trans, { ...CONTENT, ...changes })?.text ?? null;
}

test('there is no empty state if there is something to draw, even with a problem', () => {
  assert.equal(text({}), null);
  assert.equal(text({ notice: LOST }), null);
});

test('without a GPU the server’s reason is shown', () => {
  assert.equal(text({ gpus: 0, shownGpus: 0, reason: 'No driver.', notice: LOST, metrics: 0 }), 'No driver.');
  assert.equal(text({ gpus: 0, shownGpus: 0 }), 'The server found no GPU.');
});

test('a button restores hidden metrics and GPUs', () => {
  assert.deepEqual(emptyState(trans, { ...CONTENT, metrics: 0, loaded: false }), {
    text: 'No metric is selected.',
    action: 'metrics'
  });
  assert.deepEqual(emptyState(trans, { ...CONTENT, shownGpus: 0 }), {
    text: 'No GPU is selected.',
    action: 'gpus'
  });
});

test('the text says what is being loaded, or why that fails', () => {
  const first = { gpus: null, shownGpus: 0, loaded: false };
  assert.deepEqual(emptyState(trans, { ...CONTENT, ...first }), {
    text: 'Waiting for the first sample…',
    transient: true
  });
  assert.equal(text({ ...first, notice: LOST }), LOST.text);
  assert.deepEqual(emptyState(trans, { ...CONTENT, loaded: false }), {
    text: 'Loading the history…',
    transient: true
  });
  assert.equal(text({ loaded: false, notice: LOST }), LOST.text);
  const absent = { text: 'No extension.', command: 'jupyter server extension enable gpuwidget' };
  assert.equal(emptyState(trans, { ...CONTENT, ...first, notice: absent })?.command, absent.command);
});
