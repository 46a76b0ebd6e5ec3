import { strict as assert } from 'node:assert';
import { afterEach, test } from 'node:test';

import { alertText } from '../src/model/alerts/alertRules';
import { formatIn, unitOf } from '../src/model/metrics';
import { statusText } from '../src/views/status/statusModel';
import {
  change,
  figure,
  memory,
  memoryChange,
  memoryUnit,
  temperature,
  setUnits,
  memoryScale,
  unitsChanged,
  type Units
} from '../src/model/format';
import { GIB, gpu, kernelGpu, kernelState, trans } from './fakes';

const USUAL: Units = { memory: 'GiB', temperature: 'C' };
const OTHER: Units = { memory: 'GB', temperature: 'F' };

afterEach(() => {
  setUnits(USUAL);
});

test('memory is written in decimal units if the settings request it', () => {
  setUnits(OTHER);
  const sizes = [0, 900, 512e3, 3e6, 64e6, 999.6e6, 15.6e9, 15.6 * GIB];
  assert.deepEqual(sizes.map(memory), [
    '0 MB',
    '900 B',
    '512 kB',
    '3.0 MB',
    '64 MB',
    '1.0 GB',
    '15.6 GB',
    '16.8 GB'
  ]);
  assert.deepEqual([memoryChange(-3.2e9), memoryChange(0), memory(null)], ['−3.2 GB', '±0', 'n/a']);
});

test('a common unit is decimal if the settings request it', () => {
  setUnits(OTHER);
  const [large, small] = [memoryUnit([null, 3e6, 2e9]), memoryUnit([null, 682e6])];
  assert.deepEqual([large.name, small.name], ['GB', 'MB']);
  assert.deepEqual(
    [figure(3e6, large), figure(2.5e9, large), figure(682e6, small), change(3.2e9, large)],
    ['<0.1', '2.5', '682', '+3.2']
  );
});

test('temperatures are written in the unit of the settings', () => {
  assert.deepEqual([0, 51, 99.6, null].map(temperature), ['0 °C', '51 °C', '100 °C', 'n/a']);
  setUnits(OTHER);
  assert.deepEqual([0, 51, 100, null].map(temperature), ['32 °F', '124 °F', '212 °F', 'n/a']);
});

test('the charts use the units of the settings, but rates are always decimal', () => {
  setUnits(OTHER);
  const told = (name: Parameters<typeof unitOf>[0], top: number, value: number | null): string =>
    `${formatIn(value, unitOf(name, top))} ${unitOf(name, top).name}`;
  assert.equal(told('memory_used', 140 * GIB, 35 * GIB), '37.6 GB');
  assert.equal(told('temperature_c', 100, 50), '122 °F');
  assert.equal(told('temperature_c', 100, 0), '32 °F');
  assert.equal(told('pcie_rx', 2e9, 2e9), '2 GB/s');
});

test('alerts and the status bar use the units of the settings', () => {
  setUnits(OTHER);
  const hot = { kind: 'temperature', gpu: gpu(0), state: 'on', value: 85 } as const;
  assert.equal(alertText(trans, { kind: 'temperature', findings: [hot] }, 1000), 'GPU 0: 185 °F.');
  const state = kernelState({ gpus: [kernelGpu(0, { process_memory: 14e9 })] });
  const view = { notebook: 'a', kernel: null, busy: false, restarted: false, silentFor: null };
  const still = {
    rejection: null,
    pending: []
  };
  const said = statusText(trans, { ...view, ...still, condition: { kind: 'ready', state } }, null, false);
  assert.equal(said?.text, 'Default: cpu · 14.0 GB GPU memory');
});

test('the signal is emitted only when the units change', () => {
  let told = 0;
  const count = (): number => told++;
  unitsChanged.connect(count);
  const before = memoryScale();
  setUnits({ ...USUAL });
  assert.deepEqual([told, memoryScale() === before], [0, true]);
  setUnits(OTHER);
  assert.deepEqual([told, memoryScale() === before], [1, false]);
  unitsChanged.disconnect(count);
});
