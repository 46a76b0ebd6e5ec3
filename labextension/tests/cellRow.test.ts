import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { parseReport, type CellReport } from '../src/model/cells/report';
import {
  cellName,
  energyText,
  energyTitle,
  memoryTitle,
  outcomeMark,
  totalsText
} from '../src/views/panel/cellRow';
import { trans } from './fakes';
import { report, reportedGpu, span } from './fakes_cells';

function read(changes: Record<string, unknown> = {}, cell: Record<string, unknown> = {}): CellReport {
  const found = parseReport(report(3, changes, cell));
  assert.ok(found);
  return found;
}

test('the tooltip of the memory contains what it measures and each GPU’s part', () => {
  assert.equal(memoryTitle(trans, read()), 'Allocated by PyTorch: +2.0 GiB, peak 5.0 GiB\nGPU 0 (cuda:0)');
  assert.equal(
    memoryTitle(trans, read({ gpus: [reportedGpu(0), reportedGpu(1, { torch_device: null })] })),
    'Allocated by PyTorch: +4.0 GiB, peak 5.0 GiB\nGPU 0 (cuda:0): +2.0 GiB, peak 5.0 GiB\nGPU 1: +2.0 GiB, peak 5.0 GiB'
  );
});

test('memory of child processes is labeled as theirs too', () => {
  const held = { torch: null, process_memory: span(0, 0, 5) };
  assert.equal(
    memoryTitle(trans, read({ gpus: [reportedGpu(0, { ...held, children: ['python child.py'] })] })),
    'Held by this notebook and its child processes: ±0, sampled peak 5 B\nGPU 0 (cuda:0)'
  );
  assert.match(memoryTitle(trans, read({ gpus: [reportedGpu(0, held)] })), /^Held by this notebook: ±0,/);
});

test('an unknown figure has its reason, and an unused GPU is labeled as unused', () => {
  const gpu = reportedGpu(0, {
    torch: null,
    process_memory: span(null, null, 5),
    energy_j: null,
    missing: { process_memory: 'the driver did not answer', energy_j: 'below 0.1 s' }
  });
  assert.match(
    memoryTitle(trans, read({ gpus: [gpu] })),
    /n\/a, sampled peak 5 B\n.*\nthe driver did not answer$/s
  );
  assert.equal(energyTitle(trans, read({ gpus: [gpu] })), 'GPU 0 (cuda:0): n/a\nbelow 0.1 s');
  assert.equal(memoryTitle(trans, read({ gpus: [] })), 'The machine had no GPU');
  const source = { reason_id: { id: 'not-sampled', params: {} } };
  assert.equal(memoryTitle(trans, read({ gpus: [], source })), 'The GPUs could not be measured');
  assert.equal(
    energyTitle(trans, read({ gpus: [reportedGpu(0, { shown: false })] })),
    'The cell used no GPU'
  );
});

test('a figure of the whole GPU is labeled as one', () => {
  const gpu = reportedGpu(0, { torch: null, process_memory: null });
  assert.match(
    memoryTitle(trans, read({ gpus: [gpu] })),
    /^Whole GPU \(this notebook’s share is unknown\): \+2.0 GiB/
  );
});

test('errors, interrupts and out-of-memory errors have a mark and a text', () => {
  const torch = { allocated: span(0, 0, 1), reserved: span(0, 0, 1), ooms: 2 };
  assert.equal(outcomeMark(trans, read()), null);
  assert.deepEqual(outcomeMark(trans, read({}, { status: 'error' })), ['✕', 'stopped by an error']);
  assert.deepEqual(outcomeMark(trans, read({}, { status: 'interrupted' })), ['■', 'interrupted']);
  assert.deepEqual(outcomeMark(trans, read({}, { status: 'died' })), ['✕', 'the kernel died']);
  assert.equal(outcomeMark(trans, read({}, { status: 'of a later version' })), null);
  assert.deepEqual(outcomeMark(trans, read({ gpus: [reportedGpu(0, { torch })] }, { status: 'error' })), [
    '✕',
    'stopped by an error, 2 out-of-memory errors'
  ]);
  assert.deepEqual(outcomeMark(trans, read({ gpus: [reportedGpu(0, { torch })] })), [
    '▲',
    '2 out-of-memory errors'
  ]);
});

test('a run without an execution count, a label and code is unnamed', () => {
  const name = (label: string | null, code: string): string =>
    cellName(trans, { report: { ...read(), executionCount: null, label }, code });
  assert.equal(name(null, ''), '(unnamed)');
  assert.equal(name('epoch 1', ''), 'epoch 1');
  assert.equal(name(null, 'train()'), 'train()');
});

test('an energy with an unknown part is shown as a lower bound', () => {
  assert.equal(energyText({ joules: 2300, atLeast: true }), '≥2.3 kJ');
  assert.equal(energyText({ joules: null, atLeast: true }), 'n/a');
});

test('the totals leave out what is unknown', () => {
  assert.equal(totalsText(trans, 0, { seconds: null, joules: null, atLeast: false }), '');
  assert.equal(totalsText(trans, 1, { seconds: 185, joules: null, atLeast: true }), '1 run · 3 min 05 s');
  assert.equal(
    totalsText(trans, 2, { seconds: 0.5, joules: 850, atLeast: false }),
    '2 runs · 500 ms · 850 J'
  );
});

test('the totals of untrusted runs are labeled', () => {
  const sums = { seconds: 2, joules: null, atLeast: false };
  assert.equal(totalsText(trans, 3, sums), '3 runs · 2.0 s');
  assert.equal(totalsText(trans, 3, sums, false), 'Not trusted · 3 runs · 2.0 s');
});
