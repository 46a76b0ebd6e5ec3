import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { parseReport, type CellReport } from '../src/model/cells/report';
import { memoryTitle } from '../src/views/panel/cellRow';
import { GIB, trans } from './fakes';
import { report, reportedGpu, span } from './fakes_cells';

function read(value: unknown): CellReport {
  const found = parseReport(value);
  assert.ok(found);
  return found;
}

test('the memory is torch’s where torch has figures', () => {
  const { kind, delta, peak, energy, atLeast } = read(report(3));
  assert.deepEqual([kind, delta, peak, energy, atLeast], ['torch', 2 * GIB, 5 * GIB, 100, false]);
});

test('without torch it is the process’s, else the whole GPU’s', () => {
  const process = read(report(3, { gpus: [reportedGpu(0, { torch: null })] }));
  assert.deepEqual([process.kind, process.delta, process.peak], ['process', 2 * GIB, 6 * GIB]);
  const device = read(report(3, { gpus: [reportedGpu(0, { torch: null, process_memory: null })] }));
  assert.deepEqual([device.kind, device.delta, device.peak], ['device', 2 * GIB, 30 * GIB]);
});

test('an unused torch does not count, nor does it for child processes', () => {
  const unused = { allocated: span(0, 0, 0), reserved: span(0, 0, 0), ooms: 0 };
  assert.equal(read(report(3, { gpus: [reportedGpu(0, { torch: unused })] })).kind, 'process');
  assert.equal(read(report(3, { gpus: [reportedGpu(0, { children: ['python worker'] })] })).kind, 'process');
});

test('the growth and the energy of several GPUs are added, their peaks are not', () => {
  const second = reportedGpu(1, {
    torch: { allocated: span(0, GIB, 9 * GIB), reserved: span(0, GIB, 9 * GIB), ooms: 0 }
  });
  const { delta, peak, energy, gpus } = read(report(3, { gpus: [reportedGpu(0), second] }));
  assert.deepEqual([delta, peak, energy], [3 * GIB, 9 * GIB, 200]);
  assert.deepEqual(
    gpus.map(gpu => [gpu.number, gpu.torchDevice, gpu.delta]),
    [
      ['0', 'cuda:0', 2 * GIB],
      ['1', 'cuda:1', GIB]
    ]
  );
});

test('only the GPUs that the cell used count', () => {
  const { gpus, delta, energy, hasGpus } = read(report(3, { gpus: [reportedGpu(0, { shown: false })] }));
  assert.deepEqual([gpus, delta, energy, hasGpus], [[], null, null, true]);
  assert.equal(read(report(3, { gpus: [] })).hasGpus, false);
  const unmeasured = {
    kind: 'none',
    reason: null,
    recording: null,
    reason_id: { id: 'not-sampled', params: {} }
  };
  assert.equal(read(report(3, { gpus: [], source: unmeasured })).hasGpus, null);
});

test('an unknown figure has its reason, and a sum with an unknown part is unknown', () => {
  const missing = { energy_j: 'too short', process_memory: 'no permission' };
  const unknown = reportedGpu(1, {
    torch: { allocated: span(null, GIB, null), reserved: span(0, GIB, GIB), ooms: 0 },
    energy_j: null,
    missing
  });
  const both = read(report(3, { gpus: [reportedGpu(0), unknown] }));
  assert.deepEqual([both.delta, both.peak, both.energy, both.atLeast], [null, 5 * GIB, 100, true]);
  assert.deepEqual(both.missing, missing);
  assert.equal(read(report(3, { gpus: [unknown] })).energy, null);
});

test('a MIG slice has its parent’s number before its own', () => {
  assert.equal(read(report(3, { gpus: [reportedGpu(2, { mig_index: 1 })] })).gpus[0]?.number, '2:1');
});

/** What a card of 22 GPUs saves: the totals of all GPUs, and those GPUs that fit. */
const TOTALS = {
  gpus: 22,
  memory_kind: 'torch',
  memory: span(22 * GIB, 44 * GIB, 9 * GIB),
  utilization: 50,
  utilization_gpus: 22,
  energy_j: 57_700,
  energy_gpus: 22,
  ooms: 3
};

test('a sum includes the GPUs that a large report does not list', () => {
  const gpus = [reportedGpu(0), reportedGpu(1)];
  const large = read(report(3, { gpus, totals: TOTALS }));
  assert.deepEqual(
    [large.kind, large.delta, large.peak, large.energy, large.atLeast, large.ooms, large.unlisted],
    ['torch', 22 * GIB, 9 * GIB, 57_700, false, 3, 20]
  );
  const partly = read(report(3, { gpus, totals: { ...TOTALS, energy_gpus: 21 } }));
  assert.deepEqual([partly.energy, partly.atLeast], [57_700, true]);
});

test('totals that no run can have are not used', () => {
  for (const totals of [null, 7, { gpus: -1 }, { ...TOTALS, gpus: 'x' }, { ...TOTALS, memory_kind: 'x' }]) {
    const { delta, energy, unlisted } = read(report(3, { totals }));
    assert.deepEqual([delta, energy, unlisted], [2 * GIB, 100, 0]);
  }
});

test('memory in a MIG slice, which its parent repeats, counts once', () => {
  const slice = { uuid: 'MIG-0', mig_index: 0, mig_parent: 'GPU-0', energy_j: null };
  const { gpus, delta, energy, shown } = read(
    report(3, { gpus: [reportedGpu(0, { torch: null }), reportedGpu(0, slice)] })
  );
  assert.deepEqual(
    [gpus.map(gpu => gpu.number), delta, energy, shown],
    [['0:0'], 2 * GIB, null, ['GPU-0', 'MIG-0']]
  );
});

test('GPUs on which only others worked do not count', () => {
  const idle = { utilization: { mean: 0, max: 0 } };
  const others = reportedGpu(1, { worked: false, utilization: { mean: 90, max: 99 } });
  const numbers = (...gpus: unknown[]): string[] => read(report(3, { gpus })).gpus.map(gpu => gpu.number);
  assert.deepEqual(numbers(reportedGpu(0, { worked: true }), others), ['0']);
  assert.deepEqual(numbers(reportedGpu(0, { worked: null }), others), ['0']);
  assert.deepEqual(numbers(reportedGpu(0, { worked: false, ...idle }), others), ['0']);
  assert.deepEqual(numbers(others), []);
});

test('the status and the out-of-memory errors are read', () => {
  const torch = { allocated: span(0, 0, GIB), reserved: span(0, 0, GIB), ooms: 1 };
  const { status, ooms } = read(report(3, { gpus: [reportedGpu(0, { torch })] }, { status: 'error' }));
  assert.deepEqual([status, ooms], ['error', 1]);
});

test('a report of another version, or no report at all, is not read', () => {
  for (const value of [report(3, { schema: 2 }), { schema: 1 }, {}, null, 'text', 7, [report(3)]]) {
    assert.equal(parseReport(value), null);
  }
});

test('values of another type count as unknown', () => {
  const strange = report(
    3,
    {
      source: 'x',
      gpus: [null, 7, { uuid: 'GPU-9', torch: 'y', missing: [1], device_memory: { start: '1' } }]
    },
    { execution_count: 'n', label: { a: 1 }, started: 'now', duration_s: NaN, status: 'odd' }
  );
  const found = read(strange);
  assert.deepEqual(
    [found.executionCount, found.label, found.started, found.duration, found.status, found.recording],
    [null, null, null, null, 'ok', null]
  );
  assert.deepEqual(
    found.gpus.map(({ uuid, number, delta, peak, energy }) => [uuid, number, delta, peak, energy]),
    [['GPU-9', '?', null, null, null]]
  );
  assert.deepEqual(read(report(3, { gpus: 'none' })).gpus, []);
});

test('a report of a recording is labeled as one, and what changed in it is not what the cell kept', () => {
  const source = { kind: 'replay', reason: null, recording: 'Recording of 4 × NVIDIA H200' };
  const parsed = read(report(3, { source }));
  const { recording, delta, peak, gpus } = parsed;
  assert.equal(recording, 'Recording of 4 × NVIDIA H200');
  assert.deepEqual([delta, peak !== null, gpus.map(gpu => gpu.delta)], [null, true, [null]]);
  assert.equal(
    memoryTitle(trans, parsed),
    [
      'Allocated by PyTorch: n/a, peak 5.0 GiB',
      'GPU 0 (cuda:0): n/a, peak 5.0 GiB',
      'The change is unknown: what changed in a recording is not what the cell kept.',
      'Recording of 4 × NVIDIA H200'
    ].join('\n')
  );
});

test('numbers that no run can have are unknown', () => {
  for (const impossible of [-1, 1e300, -1e300, 2 ** 60]) {
    const gpu = reportedGpu(0, {
      index: impossible,
      torch: {
        allocated: span(impossible, GIB, impossible),
        reserved: span(0, GIB, GIB),
        ooms: impossible
      },
      energy_j: impossible
    });
    const cell = { execution_count: impossible, duration_s: impossible, started: 1e13 };
    const { executionCount, duration, started, ooms, delta, peak, energy, gpus } = read(
      report(3, { gpus: [gpu] }, cell)
    );
    assert.deepEqual([executionCount, duration, started, ooms], [null, null, null, 0]);
    assert.deepEqual([delta, peak, energy, gpus[0]?.number], [null, null, null, '?']);
  }
});

test('texts are cut and contain no invisible characters; markup is only text', () => {
  const label = '<b>x</b>\u202e\u0000\n5 GiB';
  const gpu = reportedGpu(0, {
    uuid: 'G'.repeat(1e6),
    torch_device: '\u2067cuda:0',
    missing: { energy_j: 'y'.repeat(1e6) }
  });
  const found = read(report(3, { gpus: [gpu] }, { label }));
  assert.equal(found.label, '<b>x</b> 5 GiB');
  assert.deepEqual(
    [found.gpus[0]?.uuid.length, found.gpus[0]?.torchDevice, found.missing.energy_j?.length],
    [200, 'cuda:0', 200]
  );
  assert.equal(read(report(3, {}, { label: '\u202e\n' })).label, null);
});

test('a report of any size and depth is read in part', () => {
  const missing = Object.fromEntries(
    Array.from({ length: 1e5 }, (_, index) => [`field ${String(index)}`, 'x'])
  );
  const nested = JSON.parse(`${'['.repeat(1000)}1${']'.repeat(1000)}`) as unknown;
  const gpus = Array.from({ length: 1e5 }, (_, index) => reportedGpu(index, { missing }));
  const found = read(report(3, { gpus, nested }, { label: nested, duration_s: nested }));
  assert.deepEqual([found.gpus.length, found.missing, found.label, found.duration], [64, {}, null, null]);
});

test('the names of a prototype are no fields', () => {
  const evil = '{"__proto__": {"shown": false, "polluted": 1}, "constructor": 1, "hasOwnProperty": 1}';
  const keys = JSON.parse(evil) as Record<string, unknown>;
  const { gpus, missing } = read(
    report(3, { ...keys, gpus: [{ ...reportedGpu(0), missing: keys, ...keys }] })
  );
  assert.deepEqual([gpus.length, missing], [1, {}]);
  assert.equal(({} as { polluted?: number }).polluted, undefined);
});
