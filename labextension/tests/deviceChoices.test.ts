import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { emptiestGpu, withCurrentFree } from '../src/panel/deviceChoices';
import { StreamModel } from '../src/stream/streamModel';
import { GIB, reading, sample } from './fakes';
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
    holders,
    candidates: []
  };
}

function found(choices: readonly DeviceChoice[], chosen: string | null = null): string | null {
  return emptiestGpu([choice('cpu', 500), ...choices], chosen)?.device ?? null;
}

test('the emptiest GPU has the most free memory', () => {
  assert.equal(found([choice('cuda:0', 3), choice('cuda:1', 80), choice('cuda:2', 12)]), 'cuda:1');
});

test('a GPU with unknown free memory does not count', () => {
  assert.equal(found([choice('cuda:0', null), choice('cuda:1', 2), choice('cuda:2', 3)]), 'cuda:2');
  assert.equal(found([choice('cuda:0', null), choice('cuda:1', 2)]), null);
  assert.equal(found([choice('cuda:0', 2)]), null);
});

test('among equals the chosen GPU wins, then the one with the fewest holders, then the first', () => {
  const equal = [choice('cuda:0', 80.01, ['ada']), choice('cuda:1', 80), choice('cuda:2', 80.02)];
  assert.equal(found(equal), 'cuda:1');
  assert.equal(found(equal, 'cuda:0'), 'cuda:0');
  assert.equal(found(equal, 'cpu'), 'cuda:1');
});

/**
 * Return the free GiB of `cuda:0` and `cuda:1` for these readings of the server. In the kernel's state, which
 * is `age` seconds old, each device has 1 GiB free.
 */
function free(age: number | null, ...used: Parameters<typeof reading>[1][]): (number | null)[] {
  const model = new StreamModel();
  model.take({
    type: 'sample',
    sample: sample(
      1,
      used.map((changes, index) => reading(index, changes))
    )
  });
  const choices = [0, 1].map(index => ({
    ...choice(`cuda:${String(index)}`, 1),
    uuid: `GPU-${String(index)}`
  }));
  return withCurrentFree(choices, model.gpus(null, null), age).map(({ memory_free: bytes }) =>
    bytes === null ? null : bytes / GIB
  );
}

test('the free memory is the server’s, however old the kernel’s state is', () => {
  assert.deepEqual(free(3600, { memory_used: 40 * GIB }, { memory_used: 139 * GIB }), [100, 1]);
  assert.deepEqual(free(0, { memory_used: 40 * GIB }, { memory_used: 139 * GIB }), [100, 1]);
});

test('for a GPU that the server does not see, the kernel’s figure counts while it is fresh', () => {
  assert.deepEqual(free(4), [1, 1]);
  assert.deepEqual(free(6), [null, null]);
  assert.deepEqual(free(null), [null, null]);
});

test('a GPU that is lost, silent or without a figure does not fall back to an older one', () => {
  assert.deepEqual(free(0, { lost_since: 1 }, { silent_since: 1 }), [null, null]);
  assert.deepEqual(free(0, { memory_used: null }, {}), [null, 105]);
});
