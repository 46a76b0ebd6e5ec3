import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { CsvExport, fileName, quoteField, toCsv } from '../src/dashboard/csvExport';
import type { HistoryServer } from '../src/stream/serverApi';
import type { MetricHistory } from '../src/wire';

const COURSE: MetricHistory = {
  since: 0,
  until: 10,
  step_s: 2,
  newest: 3,
  t: [1_700_000_000, 1_700_000_002],
  samples: [10, 4],
  gpus: [
    {
      uuid: 'GPU-0',
      metrics: {
        utilization: { mean: [12.5, null], min: [0, null], max: [99.5, null] },
        memory_used: { mean: [1024, 2048], min: null, max: null }
      }
    },
    { uuid: 'GPU-1', metrics: { utilization: { mean: [1, 2], min: null, max: null } } }
  ]
};

test('a table has a row per step and three columns per GPU and metric', () => {
  const table = toCsv(
    COURSE,
    [
      { uuid: 'GPU-0', name: 'GPU 0 (NVIDIA H200)' },
      { uuid: 'GPU-1', name: 'GPU 1 (NVIDIA H200)' }
    ],
    ['utilization', 'memory_used', 'tensor']
  );
  assert.deepEqual(table.split('\r\n'), [
    [
      'time (ISO 8601),time (epoch s),step (s),samples',
      'GPU 0 (NVIDIA H200) utilization mean (%),GPU 0 (NVIDIA H200) utilization min (%),GPU 0 (NVIDIA H200) utilization max (%)',
      'GPU 0 (NVIDIA H200) memory_used mean (B),GPU 0 (NVIDIA H200) memory_used min (B),GPU 0 (NVIDIA H200) memory_used max (B)',
      'GPU 1 (NVIDIA H200) utilization mean (%),GPU 1 (NVIDIA H200) utilization min (%),GPU 1 (NVIDIA H200) utilization max (%)'
    ].join(','),
    '2023-11-14T22:13:20.000Z,1700000000,2,10,12.5,0,99.5,1024,1024,1024,1,1,1',
    '2023-11-14T22:13:22.000Z,1700000002,2,4,,,,2048,2048,2048,2,2,2',
    ''
  ]);
});

test('a name is never a formula in a spreadsheet', () => {
  for (const evil of ['=cmd()', '+1', '-1', '@sum', '\t=1', ' =1', '\r=1', '\n+1']) {
    assert.match(quoteField(evil), /^"'/);
  }
  assert.equal(quoteField('=HYPERLINK("x","y")'), '"\'=HYPERLINK(""x"",""y"")"');
  assert.equal(quoteField('a "b", c'), '"a ""b"", c"');
  assert.equal(quoteField('GPU 0 (=1)'), 'GPU 0 (=1)');
});

test('a hidden GPU is not in the table', () => {
  const [header] = toCsv(COURSE, [{ uuid: 'GPU-1', name: 'GPU 1' }], ['utilization']).split('\r\n');
  assert.equal(header?.includes('GPU 0'), false);
  assert.equal(header.split(',').length, 7);
});

test('the file name tells a recording', () => {
  assert.match(fileName(1_700_000_000, false, null), /^gpus 2023-11-1\d \d\d\.\d\d\.\d\d\.csv$/);
  assert.match(fileName(1_700_000_000, true, null), /^recording of gpus 2023/);
  assert.match(fileName(1_700_000_000, false, '../node 1'), /^gpus of \.\._node_1 2023/);
});

/** A server that replies when the test calls `reply` or `fail`. */
class FakeHistoryServer implements HistoryServer {
  signal: AbortSignal | null = null;
  reply: (course: MetricHistory) => void = () => undefined;
  fail: (error: Error) => void = () => undefined;

  history(_: unknown, signal: AbortSignal): Promise<MetricHistory> {
    this.signal = signal;
    return new Promise((resolve, reject) => {
      this.reply = resolve;
      this.fail = reject;
    });
  }
}

const REQUEST = {
  range: { from: 1, to: 2 },
  gpus: [{ uuid: 'GPU-0', name: 'GPU 0' }],
  metrics: ['utilization'],
  isRecording: false,
  node: null
} as const;

test('an export saves one file', async () => {
  const server = new FakeHistoryServer();
  const saved: string[] = [];
  const running = new CsvExport(server, name => saved.push(name)).run(REQUEST);
  server.reply(COURSE);
  await running;
  assert.equal(saved.length, 1);
});

test('a canceled export aborts its request, saves nothing and reports no error', async () => {
  const server = new FakeHistoryServer();
  const saved: string[] = [];
  const csvExport = new CsvExport(server, name => saved.push(name));
  for (const finish of [
    () => {
      server.reply(COURSE);
    },
    () => {
      server.fail(new Error('aborted'));
    }
  ]) {
    const running = csvExport.run(REQUEST);
    csvExport.cancel();
    assert.equal(server.signal?.aborted, true);
    finish();
    await running;
  }
  assert.deepEqual(saved, []);
});

test('an export that fails rejects', async () => {
  const server = new FakeHistoryServer();
  const running = new CsvExport(server, () => undefined).run(REQUEST);
  server.fail(new Error('Too busy.'));
  await assert.rejects(running, /Too busy/);
});
