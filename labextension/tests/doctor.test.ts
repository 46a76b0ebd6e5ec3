import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import {
  mergedChecks,
  mergeSkipped,
  textAfterCommand,
  toJson,
  type ShownCheck
} from '../src/views/doctor/doctorMessages';
import { doctorSummary } from '../src/views/doctor/doctorSummary';
import { DoctorModel, type DiagnosisState } from '../src/model/doctor/doctorModel';
import { ActiveKernel } from '../src/model/kernel/activeKernel';
import type { Result } from '../src/model/server/result';
import type { TranslatedDiagnosis } from '../src/wire/kernelReply';
import type { Check, Problem } from '../src/wire/wire';
import { failed, FakeKernel, FakeClock, ok, settled, trans } from './fakes';

const NO_REPLY = 'The kernel did not answer.';

function check(id: string, status: Check['status'] = 'ok'): Check {
  return {
    id,
    title: id,
    status,
    found: '',
    reason: null,
    remedy: null,
    command: null,
    evidence: {},
    issues: []
  };
}

function problem(id: string, status: Problem['status'], affects: readonly string[] = []): Problem {
  return { check: id, status, issues: [], reasons: [], fix: null, affects };
}

/** Return a diagnosis in which each check without a good result is a separate problem. */
function diagnosis(...checks: Check[]): TranslatedDiagnosis {
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
    problems: checks
      .filter(({ status }) => status !== 'ok' && status !== 'skipped')
      .map(({ id, status }) => problem(id, status as Problem['status'])),
    links: checks,
    texts: {}
  };
}

function done(...checks: Check[]): DiagnosisState {
  return { kind: 'done', diagnosis: diagnosis(...checks) };
}

/** A server doctor that returns the diagnosis set by the test. */
class FakeDoctor {
  requests = 0;
  answer: Promise<Result<TranslatedDiagnosis>> = Promise.resolve({
    kind: 'ok',
    value: diagnosis(check('torch'))
  });

  diagnose(): Promise<Result<TranslatedDiagnosis>> {
    this.requests++;
    return this.answer;
  }
}

function setUp(): { model: DoctorModel; server: FakeDoctor; kernels: ActiveKernel } {
  const kernels = new ActiveKernel(new FakeClock());
  kernels.setPanelVisible(true);
  const server = new FakeDoctor();
  return { model: new DoctorModel(() => server.diagnose(), kernels, NO_REPLY), server, kernels };
}

/** Open a notebook whose kernel replies. */
async function openNotebook(kernels: ActiveKernel, pid = 1): Promise<FakeKernel> {
  const kernel = new FakeKernel();
  kernel.reply = ok({ pid });
  kernels.setActive({ name: 'train.ipynb', kernel });
  await settled();
  return kernel;
}

test('the checks do not run unless requested', async () => {
  const { model, server, kernels } = setUp();
  const kernel = await openNotebook(kernels);
  await settled();
  assert.deepEqual([model.server, model.kernel], [{ kind: 'none' }, { kind: 'none' }]);
  assert.deepEqual([server.requests, kernel.requests.length], [0, 1]);
});

test('the checks run once, and again only on request', async () => {
  const { model, server, kernels } = setUp();
  const kernel = await openNotebook(kernels);
  kernel.reply = { status: 'examined', doctor: diagnosis(check('gpu')), texts: {}, state: null };
  await model.runOnce();
  await model.runOnce();
  assert.deepEqual([model.server, model.kernel], [done(check('torch')), done(check('gpu'))]);
  assert.equal(server.requests, 1);
  await model.run();
  assert.equal(server.requests, 2);
  assert.deepEqual(kernel.requests.slice(1), [{ ask: 'doctor' }, { ask: 'doctor' }]);
});

test('the previous diagnosis stays while the checks run, which run only once at a time', async () => {
  const { model, server } = setUp();
  await model.run();
  const previous = diagnosis(check('torch'));
  server.answer = new Promise(() => undefined);
  void model.run();
  void model.run();
  await settled();
  assert.deepEqual([model.server, server.requests, model.running], [{ kind: 'running', previous }, 2, true]);
});

test('a failed diagnosis has a reason', async () => {
  const { model, server, kernels } = setUp();
  const kernel = await openNotebook(kernels);
  server.answer = Promise.resolve(failed('failed', 'No end within 60 seconds.'));
  kernel.reply = { status: 'error', reason: 'This kernel does not know that question.', state: null };
  await model.run();
  assert.deepEqual(model.server, { kind: 'failed', reason: 'No end within 60 seconds.' });
  assert.deepEqual(model.kernel, { kind: 'failed', reason: 'This kernel does not know that question.' });
  kernel.reply = null;
  await model.run();
  assert.deepEqual(model.kernel, { kind: 'failed', reason: NO_REPLY });
  kernel.gone = true;
  await model.run();
  assert.deepEqual(model.kernel, { kind: 'failed', reason: NO_REPLY });
});

test('a restarted kernel has no diagnosis', async () => {
  const { model, kernels } = setUp();
  const kernel = await openNotebook(kernels);
  kernel.reply = { status: 'examined', doctor: diagnosis(), texts: {}, state: null };
  await model.run();
  assert.equal(model.kernel?.kind, 'done');
  kernel.reply = ok({ pid: 2 });
  kernels.refresh();
  await settled();
  assert.deepEqual(model.kernel, { kind: 'none' });
  kernels.setActive(null);
  assert.equal(model.kernel, null);
});

test('the summary is about the worst status', () => {
  const summary = (...states: (DiagnosisState | null)[]): unknown => doctorSummary(trans, states);
  const failed: DiagnosisState = { kind: 'failed', reason: 'why' };
  assert.deepEqual(summary(null, { kind: 'none' }), [null, 'not run']);
  assert.deepEqual(summary(done(check('torch')), { kind: 'running', previous: null }), [null, 'running…']);
  assert.deepEqual(summary(null, done(check('torch'), check('MIG', 'skipped'))), ['ok', 'no problems']);
  const withoutGpu = done(check('torch'), check('gpu', 'skipped'));
  assert.deepEqual(summary(withoutGpu, withoutGpu), ['skipped', 'no NVIDIA GPU']);
  assert.deepEqual(summary(done(check('torch')), failed), ['unknown', 'could not run']);
  const broken = done(check('driver', 'broken'), check('gpu', 'unknown'));
  assert.deepEqual(summary(broken, broken), ['broken', '1 problem: driver']);
  const following = { ...diagnosis(check('torch', 'broken'), check('driver', 'broken')) };
  const one = { ...following, problems: [problem('driver', 'broken', ['torch'])] };
  assert.deepEqual(summary({ kind: 'done', diagnosis: one }), ['broken', '1 problem: driver']);
  assert.deepEqual(summary(done(check('cuda', 'broken')), broken), ['broken', '2 problems: cuda, driver']);
  assert.deepEqual(summary(broken, failed), ['broken', '1 problem: driver']);
  const doubtful = done(check('shm', 'warning'), check('gpu', 'unknown'));
  assert.deepEqual(summary(doubtful), ['warning', '1 warning: shm; no result: gpu']);
  const unknown = done(check('gpu', 'unknown'), check('nccl', 'unknown'));
  assert.deepEqual(summary(unknown, unknown), ['unknown', 'no result: gpu, nccl']);
});

test('the summary counts problems, not checks, as the summary of a diagnosis does', () => {
  const summary = (...diagnoses: TranslatedDiagnosis[]): unknown =>
    doctorSummary(
      trans,
      diagnoses.map(found => ({ kind: 'done', diagnosis: found }))
    );
  const of = (status: Problem['status'], ...ids: string[]): TranslatedDiagnosis => ({
    ...diagnosis(check('nccl', status)),
    problems: ids.map(id => ({ ...problem('nccl', status), issues: [id] }))
  });
  assert.deepEqual(summary(of('broken', 'a', 'b')), ['broken', '2 problems: nccl']);
  assert.deepEqual(summary(of('broken', 'a'), of('broken', 'a')), ['broken', '1 problem: nccl']);
  assert.deepEqual(summary(of('broken', 'a', 'b'), of('broken', 'b', 'c')), ['broken', '3 problems: nccl']);
  assert.deepEqual(summary(of('warning', 'a', 'b')), ['warning', '2 warnings: nccl']);
});

test('the summary is about unfinished checks unless something is broken', () => {
  const unfinished = (...checks: Check[]): DiagnosisState => ({
    kind: 'done',
    diagnosis: { ...diagnosis(...checks), unfinished: ['import torch'] }
  });
  const summary = (state: DiagnosisState): unknown => doctorSummary(trans, [state]);
  assert.deepEqual(summary(unfinished(check('gpu'))), ['unknown', 'incomplete']);
  const doubtful = [check('shm', 'warning'), check('gpu', 'unknown')];
  assert.deepEqual(summary(unfinished(...doubtful)), ['unknown', 'incomplete']);
  const broken = unfinished(...doubtful, check('driver', 'broken'));
  assert.deepEqual(summary(broken), ['broken', '1 problem: driver']);
});

test("the text after a fix's command begins without the punctuation that joins it", () => {
  const known: [string, string][] = [
    ['.', ''],
    ['. If this is a container, restart the container.', 'If this is a container, restart the container.'],
    ['。如果这是容器，请重启容器。', '如果这是容器，请重启容器。']
  ];
  for (const [after, expected] of known) {
    assert.equal(textAfterCommand(after), expected);
  }
});

test('the JSON is that of the command line', () => {
  assert.equal(toJson(diagnosis()).split('\n')[1], '  "schema": 1,');
  assert.equal(toJson({ ...diagnosis(), texts: { a: 'b' } }), toJson(diagnosis()));
});

test('problems come first, and equal results of the kernel and the server are shown once', () => {
  const ids = (checks: readonly ShownCheck[]): string[] => checks.map(shown => shown.check.id);
  const { shared, kernel, server } = mergedChecks(
    diagnosis(check('torch', 'broken'), check('driver'), check('gpu', 'broken'), check('shm', 'warning')),
    diagnosis(check('torch'), check('driver'), check('gpu', 'broken'), check('mig', 'skipped'))
  );
  assert.deepEqual(ids(shared), ['gpu', 'driver']);
  assert.deepEqual(ids(kernel), ['torch', 'shm']);
  assert.deepEqual(ids(server), ['torch', 'mig']);
  const visible = (count: string): Check => ({
    ...check('visible'),
    evidence: { 'GPUs in NVML': '2', 'GPUs visible to this notebook': count }
  });
  assert.deepEqual(
    mergedChecks(diagnosis(visible('2')), diagnosis(visible('1'))),
    {
      shared: [
        { check: { ...check('visible'), evidence: { 'GPUs in NVML': '2' } }, problems: [], causes: [] }
      ],
      kernel: [],
      server: []
    },
    'the raw data of a check of both are those that are the same in both'
  );
  const alone = mergedChecks(null, diagnosis(check('torch'), check('gpu', 'unknown')));
  assert.deepEqual([alone.shared, alone.kernel, ids(alone.server)], [[], [], ['gpu', 'torch']]);
});

test('skipped checks are one line, which expands to the reason of each', () => {
  const skipped = (id: string, found: string): Check => ({ ...check(id, 'skipped'), found });
  const shown = (...checks: Check[]): readonly ShownCheck[] =>
    mergeSkipped(trans, mergedChecks(null, diagnosis(...checks)).server, text => text.toUpperCase());
  const lines = shown(
    skipped('driver', 'no gpu'),
    check('torch'),
    skipped('gpu', 'no gpu'),
    skipped('shm', 'none')
  );
  assert.deepEqual(
    lines.map(line => [line.check.status, line.check.title, line.check.found, line.check.evidence]),
    [
      ['ok', 'torch', '', {}],
      ['skipped', '3 checks', 'NO GPU, NONE', { DRIVER: 'NO GPU', GPU: 'NO GPU', SHM: 'NONE' }]
    ]
  );
  const [only] = shown(skipped('mig', 'off'));
  assert.equal(only?.check.title, 'mig');
});

test('a check that follows from a problem comes after the problems, with the check that found the cause', () => {
  const checks = [check('torch', 'warning'), check('gpu', 'broken'), check('driver', 'broken')];
  const problems = [problem('driver', 'broken', ['gpu']), problem('torch', 'warning')];
  const kernel = { ...diagnosis(...checks), problems };
  const { server } = mergedChecks(null, kernel);
  assert.deepEqual(
    server.map(shown => [shown.check.id, shown.problems.map(({ affects }) => affects), shown.causes]),
    [
      ['driver', [['gpu']], []],
      ['torch', [[]], []],
      ['gpu', [], ['driver']]
    ]
  );
  const other = { ...kernel, problems: [problem('driver', 'broken'), problem('gpu', 'broken')] };
  assert.deepEqual(
    mergedChecks(kernel, other).shared.map(shown => shown.check.id),
    ['driver']
  );
});
