import { strict as assert } from 'node:assert';
import { afterEach, test } from 'node:test';

import { alertText } from '../src/alerts/words';
import { csv } from '../src/dashboard/csv';
import { figureIn, unitOf } from '../src/dashboard/metrics';
import { statusText } from '../src/status/words';
import { change, figure, memory, memoryChange, memoryUnit, temperature } from '../src/ui/format';
import { measureIn, memoryScale, unitsChanged, type Units } from '../src/ui/units';
import { GIB, gpu, kernelGpu, kernelState, trans } from './fakes';

const USUAL: Units = { memory: 'GiB', temperature: 'C' };
const OTHER: Units = { memory: 'GB', temperature: 'F' };

afterEach(() => {
  measureIn(USUAL);
});

test('memory is read in decimal units where the settings have it, each in the one that fits', () => {
  measureIn(OTHER);
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

test('figures that stand together share a unit of the chosen kind', () => {
  measureIn(OTHER);
  const [large, small] = [memoryUnit([null, 3e6, 2e9]), memoryUnit([null, 682e6])];
  assert.deepEqual([large.name, small.name], ['GB', 'MB']);
  assert.deepEqual(
    [figure(3e6, large), figure(2.5e9, large), figure(682e6, small), change(3.2e9, large)],
    ['<0.1', '2.5', '682', '+3.2']
  );
});

test('a temperature is read in the chosen degrees, and what is not known has none', () => {
  assert.deepEqual([0, 51, 99.6, null].map(temperature), ['0 °C', '51 °C', '100 °C', 'n/a']);
  measureIn(OTHER);
  assert.deepEqual([0, 51, 100, null].map(temperature), ['32 °F', '124 °F', '212 °F', 'n/a']);
});

test('the dashboard’s charts have the chosen units, and rates stay those of the hardware’s makers', () => {
  measureIn(OTHER);
  const told = (name: Parameters<typeof unitOf>[0], top: number, value: number | null): string =>
    `${figureIn(value, unitOf(name, top))} ${unitOf(name, top).name}`;
  assert.equal(told('memory_used', 140 * GIB, 35 * GIB), '37.6 GB');
  assert.equal(told('temperature_c', 100, 50), '122 °F');
  assert.equal(told('temperature_c', 100, 0), '32 °F');
  assert.equal(told('pcie_rx', 2e9, 2e9), '2 GB/s');
});

test('alerts and the status bar obey the units', () => {
  measureIn(OTHER);
  const hot = { kind: 'temperature', gpu: gpu(0), state: 'on', value: 85 } as const;
  assert.equal(alertText(trans, { kind: 'temperature', about: [hot] }, 1000), 'GPU 0: 185 °F.');
  const state = kernelState({ gpus: [kernelGpu(0, { process_memory: 14e9 })] });
  const view = { notebook: 'a', kernel: null, busy: false, restarted: false, silentFor: null };
  const still = {
    rejection: null,
    requested: { device: undefined, watching: undefined, switches: new Map() }
  };
  const said = statusText(trans, { ...view, ...still, condition: { kind: 'ready', state } }, false);
  assert.equal(said?.text, 'cuda:0 · 14.0 GB');
});

test('a table is in bytes and degrees Celsius in any case, and its heads say so', () => {
  measureIn(OTHER);
  const steps = { mean: [1], min: null, max: null };
  const course = {
    since: 0,
    until: 1,
    step_s: 1,
    newest: 1,
    t: [0],
    samples: [1],
    gpus: [{ uuid: 'GPU-0', metrics: { memory_used: steps, temperature_c: steps } }]
  };
  const table = csv(course, [{ uuid: 'GPU-0', name: 'GPU 0' }], ['memory_used', 'temperature_c']);
  const [heads = ''] = table.split('\r\n');
  assert.match(heads, /GPU 0 memory_used mean \(B\),.*GPU 0 temperature_c mean \(°C\)/);
});

test('views are told once when the units are others, and not when they are the same', () => {
  let told = 0;
  const count = (): number => told++;
  unitsChanged.connect(count);
  const before = memoryScale();
  measureIn({ ...USUAL });
  assert.deepEqual([told, memoryScale() === before], [0, true]);
  measureIn(OTHER);
  assert.deepEqual([told, memoryScale() === before], [1, false]);
  unitsChanged.disconnect(count);
});
