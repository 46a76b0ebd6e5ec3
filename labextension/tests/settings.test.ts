import { strict as assert } from 'node:assert';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import type { PartialJSONObject, PartialJSONValue } from '@lumino/coreutils';

import { readSettings } from '../src/model/settings/settings';
import { withValidDefaults } from '../src/model/settings/settingsSchema';
import { CommandIds, HolderCommandIds } from '../src/tokens';

interface Property {
  readonly title?: string;
  readonly type: string;
  readonly default: PartialJSONValue;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly properties?: Record<string, Property>;
}

interface Schema {
  readonly 'jupyter.lab.shortcuts': readonly {
    readonly command: string;
    readonly keys: readonly string[];
    readonly selector: string;
  }[];
  readonly properties: Record<string, Property>;
}

const schema = JSON.parse(readFileSync('labextension/schema/panel.json', 'utf-8')) as Schema;

function defaults(properties: Record<string, Property>): PartialJSONObject {
  return Object.fromEntries(
    Object.entries(properties).map(([name, { properties: inner, default: value }]) => [
      name,
      inner === undefined ? value : defaults(inner)
    ])
  );
}

test('every shortcut is unique, belongs to a command and works everywhere', () => {
  const commands: readonly string[] = [...Object.values(CommandIds), ...Object.values(HolderCommandIds)];
  const shortcuts = schema['jupyter.lab.shortcuts'];
  assert.deepEqual(
    shortcuts.map(({ command }) => command).filter(command => !commands.includes(command)),
    []
  );
  assert.deepEqual([...new Set(shortcuts.map(({ selector }) => selector))], ['body']);
  const keys = shortcuts.map(each => each.keys.join(' | '));
  assert.equal(new Set(keys).size, keys.length);
  assert.ok(keys.length <= 2);
  // On macOS, Alt is Option, which types a character with every letter. With Ctrl, it is AltGr on Windows, which
  // types brackets on many keyboards. JupyterLab and browsers use most other letters with Accel Shift.
  assert.deepEqual(keys, ['Accel Shift Y']);
});

test('settings that the server’s schema lacks or declares differently have the bundled defaults', () => {
  const complete = defaults(schema.properties);
  const [byDefault, none] = readSettings(complete);
  assert.deepEqual(none, []);
  assert.equal(byDefault.sampleSeconds, 0);
  assert.deepEqual(byDefault.units, { memory: 'GiB', temperature: 'C' });
  assert.deepEqual(
    Object.entries(byDefault.show).flatMap(([part, shown]) => (shown ? [] : [part])),
    ['switches', 'health']
  );
  assert.deepEqual(byDefault.hints, { idle: 7200, memory: 1024 ** 3, utilization: 30, window: 1800 });
  assert.equal(byDefault.alerts.temperature, null);
  assert.deepEqual(byDefault.longCells, { notify: false, seconds: 60 });

  const [nothing, all] = readSettings({});
  assert.deepEqual(nothing, byDefault);
  assert.equal(all.length, 25);

  const { show, alerts } = complete as Record<string, PartialJSONObject>;
  const [settings, replaced] = readSettings({
    ...complete,
    hints: undefined,
    show: { ...show, cells: false, health: 'no' },
    units: 'GB',
    chartSeconds: 300,
    sampleSeconds: 60,
    alerts: { ...alerts, temperature: true, temperatureCelsius: 90 }
  });
  assert.deepEqual(replaced, [
    'sampleSeconds',
    'units.memory',
    'units.temperature',
    'show.health',
    'hints.idleHours',
    'hints.idleGib',
    'hints.busyPercent',
    'hints.busyMinutes'
  ]);
  assert.deepEqual(settings, {
    ...byDefault,
    chartSeconds: 300,
    show: { ...byDefault.show, cells: false },
    alerts: { ...byDefault.alerts, temperature: 90 }
  });
});

test('every setting has a title and every number has limits', () => {
  const all = (properties: Record<string, Property>): Property[] =>
    Object.values(properties).flatMap(each => [each, ...all(each.properties ?? {})]);
  const odd = all(schema.properties).filter(
    ({ title, type, minimum, maximum, ...rest }) =>
      title === undefined ||
      (type === 'number' && !('enum' in rest) && (minimum === undefined || maximum === undefined))
  );
  assert.deepEqual(odd, []);
});

/** Return the schema with `values` as defaults, as jupyterlab_server applies overrides.json. */
function overridden(values: Record<string, unknown>): Parameters<typeof withValidDefaults>[0] {
  const properties = Object.fromEntries(
    Object.entries(schema.properties).map(([name, kind]) => [
      name,
      name in values ? { ...kind, default: values[name] } : kind
    ])
  );
  return { ...schema, properties } as unknown as Parameters<typeof withValidDefaults>[0];
}

function defaultOf(mended: Parameters<typeof withValidDefaults>[0], name: string): unknown {
  return (mended as unknown as Schema).properties[name]?.default;
}

test('what an administrator presets holds as it is', () => {
  const preset = overridden({ chartSeconds: 300, units: { memory: 'GB' }, hints: { busyMinutes: 60 } });
  assert.deepEqual(withValidDefaults(preset), [preset, []]);
  assert.deepEqual(withValidDefaults(overridden({}))[1], []);
});

test('a preset that cannot be is told and left out, and the others hold', () => {
  const [mended, unfit] = withValidDefaults(
    overridden({
      chartSeconds: 1e6,
      sampleSeconds: 'often',
      units: { memory: 'bits', temperature: 'F' },
      show: { sun: true, cells: 'no', health: false },
      hints: 'none',
      alerts: { memoryPercent: 0, when: null }
    })
  );
  assert.deepEqual(
    ['chartSeconds', 'sampleSeconds', 'units', 'show', 'hints', 'alerts'].map(name =>
      defaultOf(mended, name)
    ),
    [3600, 0, { temperature: 'F' }, { health: false }, {}, {}]
  );
  assert.deepEqual(
    unfit.map(({ name }) => name),
    [
      'chartSeconds',
      'sampleSeconds',
      'units.memory',
      'show.sun',
      'show.cells',
      'hints',
      'alerts.memoryPercent',
      'alerts.when'
    ]
  );
});
