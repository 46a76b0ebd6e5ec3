import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import {
  approximateDuration,
  holderName,
  holdersOf,
  kernelName,
  kernelStateText,
  sharedReason,
  sortedHolders,
  targetOf,
  type Holder,
  holdingsOf,
  holdingsText,
  losses
} from '../src/model/memory/holders';
import { memorySegments } from '../src/views/panel/memoryBar';
import { parseStreamMessage } from '../src/wire/streamMessages';
import { memoryShares, StreamModel } from '../src/model/stream/streamModel';
import { GIB, gpu, gpuUsage, holding, kernelGpu, reading, sample, serverKernel, trans, usage } from './fakes';
import type { GpuMemoryOwnership, ServerKernel } from '../src/wire/wire';

const TRAIN = serverKernel('train');
const EVAL = serverKernel('eval');

function holders(
  reported: GpuMemoryOwnership,
  activeKernelId: string | null = null,
  kernels: readonly ServerKernel[] = [TRAIN, EVAL]
): Holder[] {
  return holdersOf(reported, new Map(kernels.map(each => [each.id, each])), activeKernelId);
}

function keys(all: readonly Holder[]): string[] {
  return all.map(({ key }) => key);
}

function titles(all: readonly Holder[], kernels: readonly ServerKernel[]): string[] {
  return all.map(holder => holderName(trans, holder, kernels)[0]);
}

test('notebooks, consoles, terminals and other processes are distinguished and named', () => {
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
      holding(4, { pid: 7, user: 'ada', program: 'python x.py' }),
      holding(3, { pid: 8 }),
      holding(2, { other_users: true }),
      holding(1)
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
    'ada: python x.py',
    'process 8',
    'Other users',
    'Unknown process'
  ]);
});

test('a process with an invalid id is unknown, and not one of other users', () => {
  const listed = [holding(2, { pid: -1 }), holding(1, { other_users: true })];
  const message = parseStreamMessage(JSON.stringify(usage([], [gpuUsage(0, listed)])));
  assert.ok(message?.type === 'usage');
  assert.deepEqual(
    holders(message.gpus[0] ?? gpuUsage(0, [])).map(holder => [
      holder.kind,
      ...holderName(trans, holder, [])
    ]),
    [
      ['process', 'Unknown process', ''],
      ['other-users', 'Other users', 'Memory that processes of other users hold']
    ]
  );
});

test('the holders of an older server, which does not send other_users, are read', () => {
  const sent = JSON.stringify(usage([], [gpuUsage(0, [holding(2, { pid: 7 })])]));
  const older = sent.replace(/,?"other_users":false/, '');
  assert.notEqual(older, sent);
  const message = parseStreamMessage(older);
  assert.ok(message?.type === 'usage');
  assert.deepEqual(message.gpus[0]?.holdings, [holding(2, { pid: 7 })]);
});

test("a process's tooltip adds its id", () => {
  const all = holders(
    gpuUsage(0, [
      holding(4, { pid: 7, user: 'ada', program: 'python x.py' }),
      holding(3, { pid: 8 }),
      holding(2, { terminal: '1', program: 'python x.py' })
    ])
  );
  assert.deepEqual(
    all.map(holder => holderName(trans, holder, [])),
    [
      ['ada: python x.py', 'ada: python x.py (process 7)'],
      ['process 8', ''],
      ['terminal 1 · python x.py', 'python x.py']
    ]
  );
});

test('only kernels and terminals of this server are targets of actions', () => {
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

test('unattributed memory has a line unless it is zero; with a reason it keeps its line', () => {
  assert.deepEqual(keys(holders(gpuUsage(0, []))), []);
  assert.deepEqual(keys(holders(gpuUsage(0, [], { unattributed: GIB }))), ['unattributed']);
  for (const unattributed of [null, 0, GIB]) {
    const lines = holders(gpuUsage(0, [], { unattributed, reason: 'No process list.' }));
    assert.deepEqual(
      lines.map(({ key, memory }) => [key, memory]),
      [['unattributed', unattributed]]
    );
  }
});

test('notebooks with one name are distinguished by their folders', () => {
  const kernels = ['a/run.ipynb', 'b/run.ipynb', 'x/b/run.ipynb', 'other.ipynb', 'run.ipynb'].map(
    (path, place) => serverKernel(String(place), { path, name: path.split('/').pop() ?? null })
  );
  assert.deepEqual(
    kernels.map(kernel => kernelName(trans, kernel, kernels)),
    ['a/run.ipynb', 'b/run.ipynb', 'x/b/run.ipynb', 'other.ipynb', 'run.ipynb']
  );
});

test('the active notebook comes first, unattributed memory last, the others by size', () => {
  const reported = gpuUsage(
    0,
    [
      holding(30, { pid: 1 }),
      holding(20, { kernel: 'eval' }),
      holding(1, { kernel: 'train' }),
      holding(null, { pid: 2 })
    ],
    { unattributed: 50 * GIB }
  );
  assert.deepEqual(keys(sortedHolders(holders(reported, 'train'), [])), [
    'kernel train',
    'pid 1',
    'kernel eval',
    'pid 2',
    'unattributed'
  ]);
});

test('holders of about the same size keep their order; a clearly larger one moves up', () => {
  const reported = (one: number, two: number): Holder[] =>
    holders(
      gpuUsage(
        0,
        [holding(one, { pid: 1 }), holding(two, { pid: 2 })].sort((a, b) => (b.memory ?? 0) - (a.memory ?? 0))
      )
    );
  let order = keys(sortedHolders(reported(10, 9.9), []));
  assert.deepEqual(order, ['pid 1', 'pid 2']);
  order = keys(sortedHolders(reported(10, 10.9), order));
  assert.deepEqual(order, ['pid 1', 'pid 2']);
  order = keys(sortedHolders(reported(10, 12), order));
  assert.deepEqual(order, ['pid 2', 'pid 1']);
});

test('a new holder is inserted by its size and the others keep their order', () => {
  const reported = gpuUsage(
    0,
    [5, 4, 3, 2].map((gib, pid) => holding(gib, { pid }))
  );
  assert.deepEqual(keys(sortedHolders(holders(reported), ['pid 0', 'pid 2', 'pid 3'])), [
    'pid 0',
    'pid 1',
    'pid 2',
    'pid 3'
  ]);
});

test('a short idle time is not shown, a long one in one unit', () => {
  const state = (changes: Partial<ServerKernel>): string =>
    kernelStateText(trans, serverKernel('k', changes), 10_000);
  assert.deepEqual(
    [
      state({ idle_since: 9990 }),
      state({ idle_since: 9000 }),
      state({ idle_since: null }),
      state({ state: 'busy', idle_since: null }),
      state({ state: 'unknown', idle_since: null }),
      kernelStateText(trans, null, 10_000)
    ],
    ['idle', 'idle 16 min', 'idle', 'busy', '', '']
  );
  assert.deepEqual([59, 60, 3599, 3600, 171_000, 172_800].map(approximateDuration), [
    '59 s',
    '1 min',
    '59 min',
    '1 h',
    '47 h',
    '2 d'
  ]);
});

const now = { gpu: gpu(0), reading: reading(0), kernel: null };

test('the memory of the active notebook is the driver’s figure, even if its kernel is silent', () => {
  const reported = gpuUsage(0, [holding(14, { kernel: 'train' })]);
  assert.equal(memoryShares({ ...now, usage: reported, activeKernelId: 'train' }).here, 14 * GIB);
  assert.equal(memoryShares({ ...now, usage: reported, activeKernelId: 'eval' }).here, 0);
  assert.equal(memoryShares({ ...now, usage: reported, activeKernelId: null }).here, null);
});

test('a notebook that is not listed may hold unattributed memory', () => {
  const reported = gpuUsage(0, [], { unattributed: 35 * GIB, reason: 'In a container.' });
  assert.equal(memoryShares({ ...now, usage: reported, activeKernelId: 'train' }).here, null);
});

test('torch’s figure is not subtracted: its context would count as other processes’', () => {
  const reported = gpuUsage(0, [holding(14, { kernel: 'train', source: 'torch' })], {
    unattributed: null,
    reason: '…'
  });
  assert.deepEqual(
    [memoryShares({ ...now, usage: reported, activeKernelId: 'train' })].map(({ here, other }) => [
      here,
      other
    ]),
    [[null, null]]
  );
  const withKernel = { ...now, kernel: kernelGpu(0), usage: reported, activeKernelId: 'train' };
  assert.equal(memoryShares(withKernel).here, 14 * GIB);
});

test('hidden processes of other users are one holder without actions, and all shares add up', () => {
  const reported = gpuUsage(0, [holding(14, { kernel: 'train' }), holding(9, { other_users: true })], {
    unattributed: 12 * GIB
  });
  const all = holders(reported, 'train');
  assert.deepEqual(
    all.map(holder => [holder.kind, ...holderName(trans, holder, []), targetOf(holder)]),
    [
      [
        'notebook',
        'train.ipynb',
        'train.ipynb · kernel python3 (train)',
        { kernel: 'train', terminal: null }
      ],
      ['other-users', 'Other users', 'Memory that processes of other users hold', null],
      ['unattributed', 'Unknown process', 'Memory in use that no known process holds', null]
    ]
  );
  const parts = memoryShares({ ...now, usage: reported, activeKernelId: 'train' });
  assert.deepEqual(parts, { here: 14 * GIB, other: 21 * GIB, used: 35 * GIB, free: 105 * GIB });
  assert.deepEqual(memorySegments(parts, all), [
    { who: 'here', memory: 14 * GIB },
    { who: 'other', memory: 9 * GIB },
    { who: 'unknown', memory: 12 * GIB }
  ]);
});

test('the bar contains the active notebook, each other holder and unattributed memory', () => {
  const reported = gpuUsage(0, [holding(20, { pid: 1 }), holding(10, { kernel: 'train' })], {
    unattributed: 5 * GIB
  });
  const parts = memoryShares({ ...now, usage: reported, activeKernelId: 'train' });
  assert.deepEqual(memorySegments(parts, sortedHolders(holders(reported, 'train'), [])), [
    { who: 'here', memory: 10 * GIB },
    { who: 'other', memory: 20 * GIB },
    { who: 'unknown', memory: 5 * GIB }
  ]);
});

test('the segments never exceed the used memory, and small holders share one', () => {
  const reported = gpuUsage(0, [holding(30, { pid: 1 }), holding(30, { pid: 2 })]);
  assert.deepEqual(
    memorySegments(memoryShares({ ...now, usage: reported, activeKernelId: null }), holders(reported)),
    [
      { who: 'other', memory: 30 * GIB },
      { who: 'other', memory: 5 * GIB }
    ]
  );
  const many = gpuUsage(
    0,
    Array.from({ length: 10 }, (_, pid) => holding(1, { pid }))
  );
  const pieces = memorySegments(memoryShares({ ...now, usage: many, activeKernelId: null }), holders(many));
  assert.deepEqual(
    pieces.map(({ memory }) => memory / GIB),
    [1, 1, 1, 1, 1, 5, 25]
  );
});

test('without the server’s usage the bar shows the kernel’s figures', () => {
  const parts = memoryShares({ ...now, kernel: kernelGpu(0), usage: null, activeKernelId: 'train' });
  assert.deepEqual(memorySegments(parts, []), [
    { who: 'here', memory: 14 * GIB },
    { who: 'other', memory: 21 * GIB }
  ]);
});

function held(...gpus: readonly GpuMemoryOwnership[]): StreamModel {
  const model = new StreamModel();
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

test('the losses of a restart or shutdown are listed with the memory on each GPU', () => {
  const model = held(
    gpuUsage(0, [holding(18, { kernel: 'train' })]),
    gpuUsage(1, [holding(2, { pid: 1 })]),
    gpuUsage(2, [holding(3.1, { kernel: 'train', source: 'torch' })])
  );
  const words = holdingsText(trans, holdingsOf(model, 'train'));
  assert.equal(words, '18.0 GiB on GPU 0, 3.1 GiB on GPU 2 (reported by PyTorch)');
  assert.deepEqual(losses(trans, TRAIN, true, words, ['Console 1']), [
    'all variables',
    'the running cell and the cells in the queue',
    `GPU memory: ${words}`,
    'the kernel of Console 1 (same kernel)'
  ]);
  assert.deepEqual(losses(trans, null, false, '', []), ['all variables']);
});

test('the memory that an older reading had is not listed as a loss', () => {
  const model = held(gpuUsage(0, [holding(18, { kernel: 'train' })], { older: true }));
  assert.equal(holdingsText(trans, holdingsOf(model, 'train')), 'n/a on GPU 0');
});

test('memory in a MIG slice counts once', () => {
  const model = new StreamModel();
  const gpus = [gpu(0), gpu(1, { index: 0, mig_index: 2, mig_parent: 'GPU-0' })];
  model.take({ type: 'sample', sample: { ...sample(1), gpus, readings: [reading(0), reading(1)] } });
  model.take(
    usage(
      [TRAIN],
      [gpuUsage(0, [holding(4, { kernel: 'train' })]), gpuUsage(1, [holding(4, { kernel: 'train' })])]
    )
  );
  assert.equal(holdingsText(trans, holdingsOf(model, 'train')), '4.0 GiB on GPU 0:2');
});

test('the memory of holders from an older reading is unknown now, and so is unattributed memory', () => {
  const older = gpuUsage(0, [holding(2, { pid: 7 })], { unattributed: null, reason: 'Why.', older: true });
  assert.deepEqual(
    holders(older).map(({ key, memory, holding: held }) => [key, memory, held?.memory ?? null]),
    [
      ['pid 7', null, 2 * GIB],
      ['unattributed', null, null]
    ]
  );
  const shares = memoryShares({ ...now, usage: older, activeKernelId: null });
  assert.deepEqual(memorySegments(shares, holders(older)), [{ who: 'unknown', memory: 35 * GIB }]);
});

test('a reason that all of several GPUs have is shown once', () => {
  const reasons = (...texts: (string | null)[]): string =>
    sharedReason(
      usage(
        [],
        texts.map((reason, index) => gpuUsage(index, [], { reason }))
      )
    );
  assert.deepEqual(
    [reasons('A.', 'A.'), reasons('A.', 'B.'), reasons('A.'), reasons(null, null), sharedReason(null)],
    ['A.', '', '', '', '']
  );
});
