import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { csv, field, fileName } from '../src/dashboard/csv';
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

test('a row a step, three columns a metric of a GPU, unknown empty', () => {
  const table = csv(
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

test('a spreadsheet runs no formula out of a name', () => {
  for (const evil of ['=cmd()', '+1', '-1', '@sum', '\t=1', ' =1', '\r=1', '\n+1']) {
    assert.match(field(evil), /^"'/);
  }
  assert.equal(field('=HYPERLINK("x","y")'), '"\'=HYPERLINK(""x"",""y"")"');
  assert.equal(field('a "b", c'), '"a ""b"", c"');
  assert.equal(field('GPU 0 (=1)'), 'GPU 0 (=1)');
});

test('a GPU that is not shown is not in the table', () => {
  const [header] = csv(COURSE, [{ uuid: 'GPU-1', name: 'GPU 1' }], ['utilization']).split('\r\n');
  assert.equal(header?.includes('GPU 0'), false);
  assert.equal(header.split(',').length, 7);
});

test('the file of a recording is called one', () => {
  assert.match(fileName(1_700_000_000, false), /^gpus 2023-11-1\d \d\d\.\d\d\.\d\d\.csv$/);
  assert.match(fileName(1_700_000_000, true), /^recording of gpus 2023/);
});
