import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { CsvExport, fileName, quoteField, toCsv, type TableGpu } from '../src/views/dashboard/csvExport';
import { metricTexts } from '../src/wire/metricTable';
import type { Result } from '../src/model/server/result';
import type { ServerClient } from '../src/model/server/serverClient';
import { setUnits } from '../src/model/format';
import type { MetricHistory } from '../src/wire/wire';
import { failed, GIB, trans } from './fakes';

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
        memory_used: { mean: [GIB / 2, 100.123456789 * GIB], min: null, max: null },
        pcie_tx: { mean: [2.5e8, 2e9], min: [2.5e8, 2e9], max: [2.5e8, 2e9] }
      }
    },
    {
      uuid: 'GPU-1',
      metrics: {
        utilization: { mean: [1, 2], min: null, max: null },
        temperature_c: { mean: [50, null], min: null, max: null }
      }
    }
  ]
};

const GPUS: readonly TableGpu[] = ['0', '1'].map(number => ({
  uuid: `GPU-${number}`,
  name: 'H200',
  number,
  memoryTotal: 140 * GIB,
  powerLimit: 700
}));

test('a table has the names and units of the charts, and one column per GPU if mean, min and max of all are the same', () => {
  const table = toCsv(trans, COURSE, GPUS, ['utilization', 'memory_used', 'pcie_tx', 'tensor']);
  const [utilization] = metricTexts(trans, 'utilization');
  assert.deepEqual(table.split('\r\n'), [
    [
      'time (ISO 8601),time (epoch s),step (s),samples',
      `GPU 0 (H200) ${utilization} mean (%),GPU 0 (H200) ${utilization} min (%),GPU 0 (H200) ${utilization} max (%)`,
      'GPU 0 (H200) Memory (GiB),GPU 0 (H200) PCIe sent (GB/s)',
      `GPU 1 (H200) ${utilization} mean (%),GPU 1 (H200) ${utilization} min (%),GPU 1 (H200) ${utilization} max (%)`
    ].join(','),
    '2023-11-14T22:13:20.000Z,1700000000,2,10,12.5,0,99.5,0.5,0.25,1,1,1',
    '2023-11-14T22:13:22.000Z,1700000002,2,4,,,,100.12346,2,2,2,2',
    ''
  ]);
});

test('a table has the units of the settings', () => {
  setUnits({ memory: 'GB', temperature: 'F' });
  const [header = '', row = ''] = toCsv(trans, COURSE, GPUS, ['memory_used', 'temperature_c']).split('\r\n');
  setUnits({ memory: 'GiB', temperature: 'C' });
  assert.deepEqual(
    [header.split(',').slice(4), row.split(',').slice(4)],
    [
      ['GPU 0 (H200) Memory (GB)', 'GPU 1 (H200) Temperature (°F)'],
      ['0.53687091', '122']
    ]
  );
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
  const [header] = toCsv(trans, COURSE, GPUS.slice(1), ['utilization']).split('\r\n');
  assert.equal(header?.includes('GPU 0'), false);
  assert.equal(header.split(',').length, 5);
});

test('the file name tells a recording', () => {
  assert.match(fileName(1_700_000_000, false, null), /^gpus 2023-11-1\d \d\d\.\d\d\.\d\d\.csv$/);
  assert.match(fileName(1_700_000_000, true, null), /^recording of gpus 2023/);
  assert.match(fileName(1_700_000_000, false, '../node 1'), /^gpus of \.\._node_1 2023/);
});

/** A server that replies when the test calls `reply` or `fail`. */
class FakeHistoryServer implements Pick<ServerClient, 'history'> {
  signal: AbortSignal | null = null;
  reply: (result: Result<MetricHistory>) => void = () => undefined;

  history(_: unknown, signal: AbortSignal): Promise<Result<MetricHistory>> {
    this.signal = signal;
    return new Promise(resolve => {
      this.reply = resolve;
    });
  }
}

const REQUEST = {
  range: { from: 1, to: 2 },
  gpus: GPUS.slice(0, 1),
  metrics: ['utilization'],
  isRecording: false,
  node: null
} as const;

test('an export saves one file', async () => {
  const server = new FakeHistoryServer();
  const saved: string[] = [];
  const running = new CsvExport(trans, server, name => saved.push(name)).run(REQUEST);
  server.reply({ kind: 'ok', value: COURSE });
  assert.equal(await running, null);
  assert.equal(saved.length, 1);
});

test('a canceled export aborts its request, saves nothing and reports no error', async () => {
  const server = new FakeHistoryServer();
  const saved: string[] = [];
  const csvExport = new CsvExport(trans, server, name => saved.push(name));
  for (const result of [{ kind: 'ok', value: COURSE } as const, failed('unreachable')]) {
    const running = csvExport.run(REQUEST);
    csvExport.cancel();
    assert.equal(server.signal?.aborted, true);
    server.reply(result);
    assert.equal(await running, null);
  }
  assert.deepEqual(saved, []);
});

test('an export that fails has a reason', async () => {
  const server = new FakeHistoryServer();
  const running = new CsvExport(trans, server, () => undefined).run(REQUEST);
  server.reply(failed('busy', 'Too busy.'));
  assert.equal(await running, 'Too busy.');
});
