import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { Outcome } from '../src/holders/outcome';
import { Unseen } from '../src/holders/unseen';

/** What notifications say; the panel is seen or not. */
function made(): { outcome: Outcome; notes: Map<string, string>; panel: { seen: boolean } } {
  const outcome = new Outcome();
  const notes = new Map<string, string>();
  const panel = { seen: false };
  let last = 0;
  new Unseen(outcome, () => panel.seen, {
    show: (text, pending) => {
      const id = String(++last);
      notes.set(id, pending ? `${text} (stays)` : text);
      return id;
    },
    dismiss: id => notes.delete(id)
  });
  return { outcome, notes, panel };
}

test('what came of an action from the palette is a notification where the panel is closed, one for each', () => {
  const { outcome, notes } = made();
  outcome.say('train.ipynb: asking…', true);
  assert.deepEqual([...notes.values()], ['train.ipynb: asking… (stays)']);
  outcome.say('train.ipynb: freed 3 GiB');
  assert.deepEqual([...notes.values()], ['train.ipynb: freed 3 GiB']);
  outcome.say('');
  outcome.say('eval.ipynb: nothing to free');
  assert.deepEqual([...notes.values()], ['train.ipynb: freed 3 GiB', 'eval.ipynb: nothing to free']);
});

test('one that was put away comes back with what it was waited for', () => {
  const { outcome, notes } = made();
  outcome.say('asking…', true);
  notes.clear();
  outcome.say('freed');
  assert.deepEqual([...notes.values()], ['freed']);
});

test('where the panel is seen its foot says it, also the end of what has begun as a notification', () => {
  const { outcome, notes, panel } = made();
  panel.seen = true;
  outcome.say('freed');
  assert.equal(notes.size, 0);
  panel.seen = false;
  outcome.say('asking…', true);
  panel.seen = true;
  outcome.say('freed');
  assert.deepEqual([...notes.values()], []);
});
