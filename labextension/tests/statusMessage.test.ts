import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { StatusMessage, type MessageKind } from '../src/model/memory/statusMessage';
import { FakeClock } from './fakes';

/** Return how many seconds a message of this kind is shown; Infinity if it is not removed. */
async function secondsShown(kind: MessageKind): Promise<number> {
  const clock = new FakeClock();
  const message = new StatusMessage(clock);
  message.set('The kernel was shut down.', kind);
  for (let seconds = 0; seconds < 600; seconds++) {
    if (message.text === '') {
      return seconds;
    }
    await clock.pass(1000);
  }
  return Infinity;
}

test('a result disappears after a while, an error later, and the progress of an action stays', async () => {
  assert.equal(await secondsShown('result'), 20);
  assert.equal(await secondsShown('error'), 60);
  assert.equal(await secondsShown('progress'), Infinity);
});

test('a new message is shown for its whole time, and a dismissed one leaves no timer', async () => {
  const clock = new FakeClock();
  const message = new StatusMessage(clock);
  const shown: string[] = [];
  message.changed.connect(() => shown.push(message.text));
  message.set('one');
  await clock.pass(15_000);
  message.set('two');
  await clock.pass(15_000);
  assert.deepEqual(shown, ['one', 'two']);
  await clock.pass(5000);
  assert.deepEqual(shown, ['one', 'two', '']);
  message.set('three', 'error');
  message.clear();
  assert.deepEqual([message.text, clock.running], ['', 0]);
});
