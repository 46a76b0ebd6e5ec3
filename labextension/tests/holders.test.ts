import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { heldBy, heldWords, losses, targetOf } from '../src/holders/actions';
import { arranged, holdersOf, type Holder } from '../src/holders/holders';
import { segments } from '../src/holders/segments';
import { kernelName, roughly, stateOf, titleOf } from '../src/holders/words';
import { Model, shares } from '../src/stream/model';
import { GIB, gpu, gpuUsage, holding, kernelGpu, reading, sample, serverKernel, trans, usage } from './fakes';
import type { GpuMemoryOwnership, ServerKernel } from '../src/wire';

const TRAIN = serverKernel('train');
const EVAL = serverKernel('eval');

function holders(
  said: GpuMemoryOwnership,
  front: string | null = null,
  kernels: readonly ServerKernel[] = [TRAIN, EVAL]
): Holder[] {
  return holdersOf(said, new Map(kernels.map(each => [each.id, each])), front);
}

function keys(all: readonly Holder[]): string[] {
  return all.map(({ key }) => key);
}

function titles(all: readonly Holder[], kernels: readonly ServerKernel[]): string[] {
  return all.map(holder => titleOf(trans, holder, kernels)[0]);
}

test('notebooks, consoles, terminals and other processes are told apart, and named', () => {
  const kernels = [
    TRAIN,
    serverKernel('c', { kind: 'console', name: 'Console 1' }),
    serverKernel('0123456789', { kind: null, session: null, path: null, name: null })
  ];
  const all = holders(
    gpuUsage(0, [
      holding(9, { kernel: 'train' }),
      holding(8, { kernel: 'c' }),
      holding(7, { kernel: '0123456789' }),
      holding(6, { kernel: 'gone' }),
      holding(5, { terminal: '1', program: 'python serve.py' }),
      holding(4, { pid: 7, user: 'ada', program: 'python x.py', arguments: '--lr 1' }),
      holding(3, { pid: 8 }),
      holding(2)
    ]),
    null,
    kernels
  );
  assert.deepEqual(titles(all, kernels), [
    'train.ipynb',
    'Console 1',
    'kernel python3 (01234567)',
    'a kernel that has ended',
    'terminal 1 · python serve.py',
    'ada: python x.py --lr 1',
    'process 8',
    'a process'
  ]);
});

test("only this server's kernels and terminals can be acted on", () => {
  const all = holders(
    gpuUsage(
      0,
      [
        holding(4, { kernel: 'train' }),
        holding(3, { terminal: '1' }),
        holding(2, { pid: 7 }),
        holding(1, { kernel: 'gone' })
      ],
      { unattributed: GIB }
    )
  );
  assert.deepEqual(all.map(targetOf), [
    { kernel: 'train', terminal: null },
    { kernel: null, terminal: '1' },
    null,
    null,
    null
  ]);
});

test('what cannot be attributed is a line of its own; nothing unattributed is none', () => {
  assert.deepEqual(keys(holders(gpuUsage(0, []))), []);
  assert.deepEqual(keys(holders(gpuUsage(0, [], { unattributed: GIB }))), ['unattributed']);
  const unknown = holders(gpuUsage(0, [], { unattributed: null, reason: 'No process list.' }));
  assert.deepEqual(
    unknown.map(({ key, memory }) => [key, memory]),
    [['unattributed', null]]
  );
});

test('notebooks of one name are told apart by their folders', () => {
  const kernels = ['a/run.ipynb', 'b/run.ipynb', 'x/b/run.ipynb', 'other.ipynb', 'run.ipynb'].map(
    (path, place) => serverKernel(String(place), { path, name: path.split('/').pop() ?? null })
  );
  assert.deepEqual(
    kernels.map(kernel => kernelName(trans, kernel, kernels)),
    ['a/run.ipynb', 'b/run.ipynb', 'x/b/run.ipynb', 'other.ipynb', 'run.ipynb']
  );
});

test('the notebook in front comes first, what is nobody’s last, and between them the largest first', () => {
  const said = gpuUsage(
    0,
    [
      holding(30, { pid: 1 }),
      holding(20, { kernel: 'eval' }),
      holding(1, { kernel: 'train' }),
      holding(null, { pid: 2 })
    ],
    { unattributed: 50 * GIB }
  );
  assert.deepEqual(keys(arranged(holders(said, 'train'), [])), [
    'kernel train',
    'pid 1',
    'kernel eval',
    'pid 2',
    'unattributed'
  ]);
});

test('two that hold about the same keep their places; one that clearly holds more passes the other', () => {
  const said = (one: number, two: number): Holder[] =>
    holders(
      gpuUsage(
        0,
        [holding(one, { pid: 1 }), holding(two, { pid: 2 })].sort((a, b) => (b.memory ?? 0) - (a.memory ?? 0))
      )
    );
  let order = keys(arranged(said(10, 9.9), []));
  assert.deepEqual(order, ['pid 1', 'pid 2']);
  order = keys(arranged(said(10, 10.9), order));
  assert.deepEqual(order, ['pid 1', 'pid 2']);
  order = keys(arranged(said(10, 12), order));
  assert.deepEqual(order, ['pid 2', 'pid 1']);
});

test('one that is new takes its place by size, and the others keep theirs', () => {
  const said = gpuUsage(
    0,
    [5, 4, 3, 2].map((gib, pid) => holding(gib, { pid }))
  );
  assert.deepEqual(keys(arranged(holders(said), ['pid 0', 'pid 2', 'pid 3'])), [
    'pid 0',
    'pid 1',
    'pid 2',
    'pid 3'
  ]);
});

test('idle for a moment has no figure, idle for long one unit', () => {
  const state = (changes: Partial<ServerKernel>): string =>
    stateOf(trans, serverKernel('k', changes), 10_000);
  assert.deepEqual(
    [
      state({ idle_since: 9990 }),
      state({ idle_since: 9000 }),
      state({ idle_since: null }),
      state({ state: 'busy', idle_since: null }),
      state({ state: 'unknown', idle_since: null }),
      stateOf(trans, null, 10_000)
    ],
    ['idle', 'idle 16 min', 'idle', 'busy', '', '']
  );
  assert.deepEqual([59, 60, 3599, 3600, 171_000, 172_800].map(roughly), [
    '59 s',
    '1 min',
    '59 min',
    '1 h',
    '47 h',
    '2 d'
  ]);
});

const now = { gpu: gpu(0), reading: reading(0), kernel: null };

test('what this notebook holds is what the driver tells the server, though its kernel says nothing', () => {
  const said = gpuUsage(0, [holding(14, { kernel: 'train' })]);
  assert.equal(shares({ ...now, usage: said, front: 'train' }).here, 14 * GIB);
  assert.equal(shares({ ...now, usage: said, front: 'eval' }).here, 0);
  assert.equal(shares({ ...now, usage: said, front: null }).here, null);
});

test('where some cannot be told apart, a notebook that is not listed may hold it', () => {
  const said = gpuUsage(0, [], { unattributed: 35 * GIB, reason: 'In a container.' });
  assert.equal(shares({ ...now, usage: said, front: 'train' }).here, null);
});

test("torch's own number is not subtracted: its context would be laid at other people's door", () => {
  const said = gpuUsage(0, [holding(14, { kernel: 'train', source: 'torch' })], {
    unattributed: null,
    reason: '…'
  });
  assert.deepEqual(
    [shares({ ...now, usage: said, front: 'train' })].map(({ here, other }) => [here, other]),
    [[null, null]]
  );
  const asked = { ...now, kernel: kernelGpu(0), usage: said, front: 'train' };
  assert.equal(shares(asked).here, 14 * GIB);
});

test('the bar has this notebook first, then each other, then what is nobody’s', () => {
  const said = gpuUsage(0, [holding(20, { pid: 1 }), holding(10, { kernel: 'train' })], {
    unattributed: 5 * GIB
  });
  const parts = shares({ ...now, usage: said, front: 'train' });
  assert.deepEqual(segments(parts, arranged(holders(said, 'train'), [])), [
    { who: 'here', memory: 10 * GIB },
    { who: 'other', memory: 20 * GIB },
    { who: 'unknown', memory: 5 * GIB }
  ]);
});

test('the bar never shows more than is used, and small ones as one piece', () => {
  const said = gpuUsage(0, [holding(30, { pid: 1 }), holding(30, { pid: 2 })]);
  assert.deepEqual(segments(shares({ ...now, usage: said, front: null }), holders(said)), [
    { who: 'other', memory: 30 * GIB },
    { who: 'other', memory: 5 * GIB }
  ]);
  const many = gpuUsage(
    0,
    Array.from({ length: 10 }, (_, pid) => holding(1, { pid }))
  );
  const pieces = segments(shares({ ...now, usage: many, front: null }), holders(many));
  assert.deepEqual(
    pieces.map(({ memory }) => memory / GIB),
    [1, 1, 1, 1, 1, 5, 25]
  );
});

test('before the server has said who holds what, the bar is as the notebook says', () => {
  const parts = shares({ ...now, kernel: kernelGpu(0), usage: null, front: 'train' });
  assert.deepEqual(segments(parts, []), [
    { who: 'here', memory: 14 * GIB },
    { who: 'other', memory: 21 * GIB }
  ]);
});

function held(...gpus: readonly GpuMemoryOwnership[]): Model {
  const model = new Model();
  model.take({
    type: 'sample',
    sample: sample(
      1,
      gpus.map((_, index) => reading(index))
    )
  });
  model.take(usage([TRAIN], gpus));
  return model;
}

test('what ending a kernel takes with it is named, per GPU', () => {
  const model = held(
    gpuUsage(0, [holding(18, { kernel: 'train' })]),
    gpuUsage(1, [holding(2, { pid: 1 })]),
    gpuUsage(2, [holding(3.1, { kernel: 'train', source: 'torch' })])
  );
  const words = heldWords(trans, heldBy(model, 'train'));
  assert.equal(words, '18.0 GiB on GPU 0, 3.1 GiB on GPU 2 (torch’s own number)');
  assert.deepEqual(losses(trans, TRAIN, true, words, ['Console 1']), [
    'all its variables',
    'the cell that runs now, and those that wait',
    `what it holds: ${words}`,
    'the kernel of Console 1 too, which is the same'
  ]);
  assert.deepEqual(losses(trans, null, false, '', []), ['all its variables']);
});

test('what is held in a MIG slice is told once', () => {
  const model = new Model();
  const gpus = [gpu(0), gpu(1, { index: 0, mig_index: 2, mig_parent: 'GPU-0' })];
  model.take({ type: 'sample', sample: { ...sample(1), gpus, readings: [reading(0), reading(1)] } });
  model.take(
    usage(
      [TRAIN],
      [gpuUsage(0, [holding(4, { kernel: 'train' })]), gpuUsage(1, [holding(4, { kernel: 'train' })])]
    )
  );
  assert.equal(heldWords(trans, heldBy(model, 'train')), '4.0 GiB on GPU 0:2');
});
