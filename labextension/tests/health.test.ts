import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { Health, type Examination, type ServerDoctor } from '../src/health/health';
import { asJson, commandIn, healthSummary } from '../src/health/words';
import { Kernels } from '../src/kernel/kernels';
import type { Diagnosis, Check } from '../src/wire';
import { FakeKernel, FakeTimers, ok, settled, trans } from './fakes';

const SILENCE = 'The kernel did not answer.';

function link(id: string, status: Check['status'] = 'ok'): Check {
  return { id, title: id, status, found: '', reason: null, remedy: null, command: null, evidence: {} };
}

function doctor(...links: Check[]): Diagnosis {
  return {
    schema: 1,
    version: '0.1.0',
    time: 1,
    place: 'server',
    python: '/usr/bin/python',
    variables: {},
    status: 'ok',
    summary: '',
    unfinished: [],
    links
  };
}

function examined(...links: Check[]): Examination {
  return { kind: 'examined', doctor: doctor(...links) };
}

/** A server whose answers are the test's. */
class FakeDoctor implements ServerDoctor {
  asked = 0;
  answer: Promise<Diagnosis> = Promise.resolve(doctor(link('torch')));

  examine(): Promise<Diagnosis> {
    this.asked++;
    return this.answer;
  }
}

function made(): { health: Health; server: FakeDoctor; kernels: Kernels } {
  const kernels = new Kernels(new FakeTimers());
  kernels.start();
  const server = new FakeDoctor();
  return { health: new Health(server, kernels, SILENCE), server, kernels };
}

/** A kernel in front that answers. */
async function front(kernels: Kernels, pid = 1): Promise<FakeKernel> {
  const kernel = new FakeKernel();
  kernel.answer = ok({ pid });
  kernels.show({ notebook: 'train.ipynb', kernel, phase: 'idle' });
  await settled();
  return kernel;
}

test('nobody is asked before somebody wants to know', async () => {
  const { health, server, kernels } = made();
  const kernel = await front(kernels);
  await settled();
  assert.deepEqual([health.server, health.kernel], [{ kind: 'unasked' }, { kind: 'unasked' }]);
  assert.deepEqual([server.asked, kernel.questions.length], [0, 1]);
});

test('both are asked once, and again only on request', async () => {
  const { health, server, kernels } = made();
  const kernel = await front(kernels);
  kernel.answer = { status: 'examined', doctor: doctor(link('gpu')), state: null };
  await health.askOnce();
  await health.askOnce();
  assert.deepEqual([health.server, health.kernel], [examined(link('torch')), examined(link('gpu'))]);
  assert.equal(server.asked, 1);
  await health.ask();
  assert.equal(server.asked, 2);
  assert.deepEqual(kernel.questions.slice(1), [
    { schema: 1, ask: 'doctor' },
    { schema: 1, ask: 'doctor' }
  ]);
});

test('while it looks again what it said before stands, and it is not asked twice', async () => {
  const { health, server } = made();
  await health.ask();
  const before = doctor(link('torch'));
  server.answer = new Promise(() => undefined);
  void health.ask();
  void health.ask();
  await settled();
  assert.deepEqual([health.server, server.asked, health.asking], [{ kind: 'asking', before }, 2, true]);
});

test('what could not be looked at says why', async () => {
  const { health, server, kernels } = made();
  const kernel = await front(kernels);
  server.answer = Promise.reject(new Error('No end within 60 seconds.'));
  kernel.answer = { status: 'error', reason: 'This kernel does not know that question.', state: null };
  await health.ask();
  assert.deepEqual(health.server, { kind: 'failed', reason: 'No end within 60 seconds.' });
  assert.deepEqual(health.kernel, { kind: 'failed', reason: 'This kernel does not know that question.' });
  kernel.answer = null;
  await health.ask();
  assert.deepEqual(health.kernel, { kind: 'failed', reason: SILENCE });
});

test('a restarted kernel, and another one, are not what was examined', async () => {
  const { health, kernels } = made();
  const kernel = await front(kernels);
  kernel.answer = { status: 'examined', doctor: doctor(), state: null };
  await health.ask();
  assert.equal(health.kernel?.kind, 'examined');
  kernel.answer = ok({ pid: 2 });
  kernels.again();
  await settled();
  assert.deepEqual(health.kernel, { kind: 'unasked' });
  kernels.show({ notebook: null, kernel: null, phase: null });
  assert.equal(health.kernel, null);
});

test('the worst comes first in the one line', () => {
  const said = (...known: (Examination | null)[]): unknown => healthSummary(trans, known);
  const failed: Examination = { kind: 'failed', reason: 'why' };
  assert.deepEqual(said(null, { kind: 'unasked' }), [null, 'not looked at yet']);
  assert.deepEqual(said(examined(link('torch')), { kind: 'asking', before: null }), [null, 'looking…']);
  assert.deepEqual(said(null, examined(link('torch'), link('MIG', 'skipped'))), ['ok', 'all links found']);
  assert.deepEqual(said(examined(link('torch')), failed), ['unknown', 'could not be looked at']);
  const broken = examined(link('driver', 'broken'), link('gpu', 'unknown'));
  assert.deepEqual(said(broken, broken), ['broken', '1 link broken: driver']);
  assert.deepEqual(said(examined(link('cuda', 'broken')), broken), [
    'broken',
    '2 links broken: cuda, driver'
  ]);
  assert.deepEqual(said(broken, failed), ['broken', '1 link broken: driver']);
  const doubtful = examined(link('shm', 'warning'), link('gpu', 'unknown'));
  assert.deepEqual(said(doubtful), ['warning', '2 to look at: shm, gpu']);
});

test('a remedy is divided at its command', () => {
  const again = '/opt/my\\ env/bin/python -m pip install --force-reinstall --no-deps';
  const known: [string, string, string, string][] = [
    ['Install it: pip install torch.', 'pip install torch', 'Install it:', ''],
    [
      `Keep the right one: ${again} 'a>=1, b' --dry-run && ${again} 'a>=1, b'.`,
      `${again} 'a>=1, b' --dry-run && ${again} 'a>=1, b'`,
      'Keep the right one:',
      ''
    ],
    [
      'Load it again: sudo rmmod a; sudo modprobe a. In a container, restart it.',
      'sudo rmmod a; sudo modprobe a',
      'Load it again:',
      'In a container, restart it.'
    ]
  ];
  for (const [remedy, command, before, after] of known) {
    assert.deepEqual(commandIn({ remedy, command }), { before, command, after });
  }
});

test('a remedy without a command is a sentence', () => {
  assert.equal(commandIn({ remedy: 'Start it: docker run --gpus all …', command: null }), null);
  assert.equal(commandIn({ remedy: 'Mend the driver first.', command: 'sudo reboot' }), null);
  // A kernel with an older gpuwidget sends none.
  const { command, ...older } = { ...link('torch'), remedy: 'Install it: pip install torch.' };
  assert.equal(command, null);
  assert.equal(commandIn(older as Check), null);
});

test('JSON is what the command line writes', () => {
  assert.equal(asJson(doctor()).split('\n')[1], '  "schema": 1,');
});
