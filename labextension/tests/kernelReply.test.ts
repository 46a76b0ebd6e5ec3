import { strict as assert } from 'node:assert';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { parseDiagnosis, parseReply } from '../src/wire/kernelReply';
import type { DeviceChoice, KernelGpu } from '../src/wire/wire';
import { DIAGNOSIS, kernelState, ok, torchSwitch } from './fakes';

const GIB = 2 ** 30;
const CHOICE: DeviceChoice = {
  device: 'cuda:1',
  uuid: 'GPU-1',
  index: 1,
  name: 'NVIDIA H200',
  compute_capability: '9.0',
  memory_total: 140 * GIB,
  memory_free: 0,
  unified_memory: false,
  holders: [],
  candidates: [
    {
      uuid: 'GPU-0',
      index: 0,
      name: 'NVIDIA GeForce RTX 3090',
      compute_capability: '8.6',
      memory_total: 24 * GIB,
      memory_free: null,
      unified_memory: true
    }
  ]
};
const GPU: KernelGpu = {
  uuid: 'GPU-1',
  torch_device: 'cuda:1',
  process_memory: 2 * GIB,
  torch_reserved: GIB,
  context: true
};

test('a reply of this version is returned as it was sent', () => {
  for (const reply of [
    ok({ choices: [CHOICE], gpus: [GPU], switches: [torchSwitch()] }),
    ok({ order: { source: 'cuda', notes: ['Why.'], note_ids: [{ id: 'why', params: { gpu: 1 } }] } }),
    ok({
      choices: [{ ...CHOICE, index: null, memory_total: null, memory_free: null }],
      gpus: [{ ...GPU, process_memory: null, torch_reserved: null }]
    }),
    { status: 'error', reason: 'no', state: null },
    { status: 'error', reason: 'no', state: kernelState() },
    { status: 'examined', doctor: DIAGNOSIS, texts: { Driver: '驱动' }, state: kernelState() }
  ]) {
    assert.deepEqual(parseReply(reply), reply);
  }
});

test('the kernel of the oldest version with this schema is understood: a new field must not be required', () => {
  const oldest = JSON.parse(readFileSync('labextension/tests/oldest_messages.json', 'utf-8')) as Record<
    string,
    unknown
  >;
  assert.deepEqual(
    ['OkReply', 'ErrorReply', 'DoctorReply'].map(name => parseReply(oldest[name]).status),
    ['ok', 'error', 'examined']
  );
});

test('an unknown source of the order of the devices is unknown', () => {
  const order = { source: 'guess', notes: ['Why.'], note_ids: [] };
  const reply = parseReply({ ...ok(), state: { ...kernelState(), order } });
  assert.deepEqual(reply, ok({ order: { ...order, source: null } }));
});

test('a field that this version does not know is dropped', () => {
  assert.deepEqual(parseReply({ ...ok(), more: 1 }), ok());
});

for (const sent of [
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
  test(`${sent.slice(0, 8)} as a size in a reply is unknown`, () => {
    const size = JSON.parse(sent) as number;
    const reply = ok({
      choices: [{ ...CHOICE, index: size, memory_total: size, memory_free: size }],
      gpus: [{ ...GPU, process_memory: size, torch_reserved: size }]
    });
    assert.deepEqual(
      parseReply(reply),
      ok({
        choices: [{ ...CHOICE, index: null, memory_total: null, memory_free: null }],
        gpus: [{ ...GPU, process_memory: null, torch_reserved: null }]
      })
    );
  });
}

/** Return a reply in whose state one field has a value of another type or is missing. */
function broken(name: string, value?: unknown): unknown {
  return { status: 'ok', done: null, state: { ...kernelState(), [name]: value } };
}

test('a state of another shape is incompatible and keeps its version', () => {
  for (const [name, value] of [
    ['gpus', null],
    ['gpus', [null]],
    ['gpus', [{ ...GPU, uuid: 1 }]],
    ['choices', {}],
    ['choices', [{ ...CHOICE, holders: null }]],
    ['choices', [{ ...CHOICE, candidates: [{}] }]],
    ['order', undefined],
    ['order', { source: 'guess', notes: 1, note_ids: [] }],
    ['switches', undefined],
    ['switches', [{ ...torchSwitch(), choices: 'on' }]],
    ['device', null],
    ['device', 'cuda:1'],
    ['watching', 'yes'],
    ['pid', '4711']
  ] as const) {
    assert.deepEqual(parseReply(broken(name, value)), { status: 'incompatible', version: '0.1.0' }, name);
  }
});

test('a reply of another schema is incompatible, also with nothing else that is known', () => {
  const state = { schema: 2, version: '9.9' };
  for (const reply of [
    { status: 'ok', done: null, state },
    { status: 'error', reason: 'no', state },
    { status: 'later', state }
  ]) {
    assert.deepEqual(parseReply(reply), { status: 'incompatible', version: '9.9' });
  }
});

test('what is no reply at all is incompatible and has no version', () => {
  for (const content of [
    null,
    undefined,
    'ok',
    [],
    {},
    { status: 'ok' },
    { status: 'error' },
    broken('version', 7)
  ]) {
    assert.deepEqual(parseReply(content), { status: 'incompatible', version: null });
  }
});

test('a diagnosis of another shape is incompatible', () => {
  const [check] = DIAGNOSIS.links;
  const withIssues = (issues: unknown): unknown => ({ ...DIAGNOSIS, links: [{ ...check, issues }] });
  for (const diagnosis of [
    null,
    {},
    { ...DIAGNOSIS, links: null },
    { ...DIAGNOSIS, problems: [{ check: 'torch' }] },
    { ...DIAGNOSIS, status: 'great' },
    withIssues(undefined),
    withIssues([{ ...check?.issues[0], id: null }]),
    withIssues([{ ...check?.issues[0], params: [] }]),
    withIssues([{ ...check?.issues[0], fix: 'Load it again.' }])
  ]) {
    const reply = { status: 'examined', doctor: diagnosis, state: kernelState() };
    assert.deepEqual(parseReply(reply), { status: 'incompatible', version: '0.1.0' });
    assert.equal(parseDiagnosis(diagnosis), null);
  }
  assert.deepEqual(parseDiagnosis(DIAGNOSIS), { ...DIAGNOSIS, texts: {} });
  const texts = { Driver: '驱动' };
  assert.deepEqual(parseDiagnosis({ ...DIAGNOSIS, texts }), { ...DIAGNOSIS, texts });
});
