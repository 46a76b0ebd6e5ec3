import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { checkedReply } from '../src/kernel/reply';
import type { DeviceChoice, KernelGpu, KernelReply } from '../src/wire';
import { ok } from './fakes';

const GIB = 2 ** 30;
const CHOICE: DeviceChoice = {
  device: 'cuda:1',
  uuid: 'GPU-1',
  index: 1,
  name: 'NVIDIA H200',
  compute_capability: '9.0',
  memory_total: 140 * GIB,
  memory_free: 0,
  holders: []
};
const GPU: KernelGpu = {
  uuid: 'GPU-1',
  torch_device: 'cuda:1',
  process_memory: 2 * GIB,
  torch_reserved: GIB,
  context: true
};

test('possible numbers in a reply stay as they are, and so does what is unknown', () => {
  const known = ok({ choices: [CHOICE], gpus: [GPU] });
  const unknown = ok({
    choices: [{ ...CHOICE, index: null, memory_total: null, memory_free: null }],
    gpus: [{ ...GPU, process_memory: null, torch_reserved: null }]
  });
  assert.deepEqual(checkedReply(known), known);
  assert.deepEqual(checkedReply(unknown), unknown);
});

for (const text of [
  '1e400',
  '1'.padEnd(401, '0'),
  '-1',
  '-1e400',
  '1.5',
  String(2 ** 53),
  'true',
  '"5"',
  '[5]'
]) {
  test(`${text.slice(0, 8)} in a reply is unknown`, () => {
    const sent = JSON.parse(text) as number;
    const reply = ok({
      choices: [{ ...CHOICE, index: sent, memory_total: sent, memory_free: sent }],
      gpus: [{ ...GPU, process_memory: sent, torch_reserved: sent }]
    });
    assert.deepEqual(
      checkedReply(reply),
      ok({
        choices: [{ ...CHOICE, index: null, memory_total: null, memory_free: null }],
        gpus: [{ ...GPU, process_memory: null, torch_reserved: null }]
      })
    );
  });
}

test('a reply without a state, or from another version, is not changed', () => {
  const failed: KernelReply = { status: 'error', reason: 'no', state: null };
  const other = { status: 'ok', done: null, state: { schema: 2, version: '9.9' } } as unknown as KernelReply;
  assert.equal(checkedReply(failed), failed);
  assert.equal(checkedReply(other), other);
});
