import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { VisibilityTracker } from '../src/ui/dom';

test('elements count as visible shortly before they are scrolled into view, also inside a scrolled container', () => {
  const options: unknown[] = [];
  function Observer(_: unknown, given: unknown): void {
    options.push(given);
  }
  globalThis.IntersectionObserver = Observer as unknown as typeof IntersectionObserver;
  new VisibilityTracker(() => undefined);
  assert.deepEqual(options, [{ rootMargin: '60px', scrollMargin: '60px' }]);
});
