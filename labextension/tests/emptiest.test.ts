import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { emptiest } from '../src/panel/emptiest';
import { GIB } from './fakes';
import type { DeviceChoice } from '../src/wire';

function choice(device: string, free: number | null, holders: readonly string[] = []): DeviceChoice {
  return {
    device,
    uuid: null,
    index: null,
    name: null,
    compute_capability: null,
    memory_total: null,
    memory_free: free === null ? null : free * GIB,
    holders
  };
}

function found(choices: readonly DeviceChoice[], chosen: string | null = null): string | null {
  return emptiest([choice('cpu', 500), ...choices], chosen)?.device ?? null;
}

test('it is the GPU with the most free memory', () => {
  assert.equal(found([choice('cuda:0', 3), choice('cuda:1', 80), choice('cuda:2', 12)]), 'cuda:1');
});

test('one whose figure nobody knows is neither taken nor compared with', () => {
  assert.equal(found([choice('cuda:0', null), choice('cuda:1', 2), choice('cuda:2', 3)]), 'cuda:2');
  assert.equal(found([choice('cuda:0', null), choice('cuda:1', 2)]), null);
  assert.equal(found([choice('cuda:0', 2)]), null);
});

test('of those that read the same it is the one chosen already, else the one that fewest are on, else the first', () => {
  const equal = [choice('cuda:0', 80.01, ['ada']), choice('cuda:1', 80), choice('cuda:2', 80.02)];
  assert.equal(found(equal), 'cuda:1');
  assert.equal(found(equal, 'cuda:0'), 'cuda:0');
  assert.equal(found(equal, 'cpu'), 'cuda:1');
});
