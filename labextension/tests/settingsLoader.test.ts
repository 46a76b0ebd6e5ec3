import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { PageConfig } from '@jupyterlab/coreutils';
import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import { Signal } from '@lumino/signaling';

import schema from '../schema/panel.json';
import { readSettings } from '../src/model/settings/settings';
import {
  loadSettings,
  serverHasReplaced,
  withValidSettings,
  type SettingsValidator
} from '../src/model/settings/settingsLoader';
import { trans } from './fakes';

type Plugin = ISettingRegistry.IPlugin;

PageConfig.setOption('userSettingsDir', '/home/me/.jupyter/lab/user-settings');

const FILE = '/home/me/.jupyter/lab/user-settings/jupyterlab-gpuwidget/panel.jupyterlab-settings';
const SYNTAX_ERROR = 'Failed loading settings (jupyterlab-gpuwidget:panel): <string>:1 Unexpected end';
const [DEFAULTS] = readSettings({});
const COMPLETE = {
  chartSeconds: 120,
  sampleSeconds: 0,
  units: { memory: 'GiB', temperature: 'C' },
  statusBar: 'meter',
  show: DEFAULTS.show,
  hints: { idleHours: 2, idleGib: 1, busyPercent: 30, busyMinutes: 30 },
  alerts: {
    when: 'panel',
    lost: true,
    errors: true,
    throttle: false,
    memory: false,
    memoryPercent: 95,
    temperature: false,
    temperatureCelsius: 85
  },
  longCells: { notify: false, seconds: 60 }
};

/** A validator that allows only `{}`. */
const STRICT: SettingsValidator = {
  validateData: ({ raw }) =>
    raw === '{}'
      ? null
      : [{ instancePath: '/units', keyword: 'enum', schemaPath: '', message: 'must be equal to a constant' }]
};

/** The settings of a registry, which can be changed. */
class FakeSettings {
  readonly changed = new Signal<this, void>(this);

  constructor(public composite: object) {}

  change(composite: object): void {
    this.composite = composite;
    this.changed.emit();
  }
}

/** A settings registry that loads `settings`, or rejects with it if it is an error. */
class FakeRegistry {
  fetched: ((plugin: Plugin) => Plugin) | null = null;
  readonly plugins: Record<string, object> = { another: { warning: null } };
  readonly validator = STRICT;

  constructor(private readonly _settings: FakeSettings | Error) {}

  transform(_: string, transforms: { fetch: (plugin: Plugin) => Plugin }): void {
    this.fetched = transforms.fetch;
  }

  load(): Promise<FakeSettings> {
    const settings = this._settings;
    return settings instanceof FakeSettings ? Promise.resolve(settings) : Promise.reject(settings);
  }
}

function listed(raw: string, more: object = { warning: null }): Plugin {
  const data = { composite: {}, user: {} };
  const modified = { last_modified: '2026-01-01T00:00:00Z' };
  return { id: 'p', raw, schema: { type: 'object' }, version: '1', data, ...modified, ...more };
}

/**
 * Load the settings of this registry. Return them with the array of warnings, to which later warnings are
 * added.
 */
async function loaded(registry: FakeRegistry | null, fetch = () => Promise.resolve({})) {
  const warnings: string[] = [];
  const settings = await loadSettings({
    registry: registry as unknown as ISettingRegistry | null,
    manager: { fetch } as unknown as Parameters<typeof loadSettings>[0]['manager'],
    trans,
    warn: sentence => {
      warnings.push(sentence);
    }
  });
  return { settings, warnings };
}

test('changed settings apply, without a warning', async () => {
  const registered = new FakeSettings(COMPLETE);
  const { settings, warnings } = await loaded(new FakeRegistry(registered));
  assert.deepEqual(settings.current, DEFAULTS);
  const charts: number[] = [];
  settings.changed.connect(({ current }) => {
    charts.push(current.chartSeconds);
  });
  registered.change({ ...COMPLETE, chartSeconds: 60 });
  assert.deepEqual([charts, settings.current.chartSeconds, warnings], [[60], 60, []]);
});

test('a settings file with a syntax error leaves the defaults and one warning that names the file', async () => {
  const unreadable = [
    `Your GPU settings are unreadable, so the defaults are used. JupyterLab itself may not work until you correct or delete the file ${FILE} and reload this page. The server reports: ${SYNTAX_ERROR}`
  ];
  const fetched = await loaded(new FakeRegistry(new Error(SYNTAX_ERROR)));
  assert.deepEqual([fetched.settings.current, fetched.warnings], [DEFAULTS, unreadable]);
  // In this case, Jupyter's own server lists no settings at all, so JupyterLab has no registry.
  const withoutRegistry = await loaded(null, () => Promise.reject(new Error(SYNTAX_ERROR)));
  assert.deepEqual([withoutRegistry.settings.current, withoutRegistry.warnings], [DEFAULTS, unreadable]);
});

test('settings that cannot be loaded for another reason leave the defaults and one warning', async () => {
  const sentence = (reason: string): string =>
    `JupyterLab could not load the GPU settings, so the defaults are used: ${reason}. Reload this page; if this message appears again, see the log of the Jupyter server.`;
  const errors = [
    { instancePath: '/units', message: 'must be object' },
    { instancePath: '', message: 'no' }
  ];
  for (const [registry, reason] of [
    [new FakeRegistry(new Error('Schema not found')), 'Schema not found'],
    // If settings are invalid, JupyterLab's registry rejects with the validator's array of errors.
    [new FakeRegistry(errors as unknown as Error), '/units must be object; no'],
    [null, 'the settings of another extension are unreadable']
  ] as const) {
    const { settings, warnings } = await loaded(registry);
    assert.deepEqual([settings.current, warnings], [DEFAULTS, [sentence(reason)]]);
  }
});

test('an older schema on the server leaves the settings that it has, and one warning for those it lacks', async () => {
  const { hints, ...older } = COMPLETE;
  const registered = new FakeSettings({
    ...older,
    hints: { ...hints, idleHours: undefined },
    chartSeconds: 60
  });
  const { settings, warnings } = await loaded(new FakeRegistry(registered));
  assert.deepEqual(settings.current, { ...DEFAULTS, chartSeconds: 60 });
  registered.change(registered.composite);
  assert.deepEqual(warnings, [
    'The GPU settings on the server are from another version of gpuwidget, so these settings have their defaults: hints.idleHours. Reload this page; if this message appears again, update gpuwidget on the server.'
  ]);
});

test('settings that the server or the page finds invalid are named once', async () => {
  const registry = new FakeRegistry(new FakeSettings(COMPLETE));
  const { warnings } = await loaded(registry);
  const bundled = { schema } as object;
  registry.fetched?.(listed('{}', { ...bundled, warning: null }));
  assert.deepEqual(warnings, []);
  for (let times = 0; times < 2; times += 1) {
    registry.fetched?.(listed('{}', bundled));
    registry.fetched?.(listed('{"units": 7}', { ...bundled, warning: null }));
  }
  assert.deepEqual(warnings, [
    `Your GPU settings are not valid in this version, so the defaults are used. Correct or delete the file ${FILE} and reload this page. The log of the Jupyter server names the invalid setting.`,
    `Your GPU settings are not valid in this version, so the defaults are used: /units must be equal to a constant. Correct or delete the file ${FILE} and reload this page.`
  ]);
});

test('only a listed plugin whose file the server replaced counts as replaced', () => {
  const fetchedAlone: Partial<Plugin> = listed('{}', {});
  delete fetchedAlone.data;
  const registry = { plugins: { another: listed('{}') } };
  const replaced = [
    listed('{}', {}),
    listed('{}'),
    listed('{"a": 1}', {}),
    listed('{}', { last_modified: null }),
    fetchedAlone as Plugin
  ].map(plugin => serverHasReplaced(plugin, registry));
  assert.deepEqual(replaced, [true, false, false, false, false]);
  // If no plugin in the list has `warning`, its absence does not show that settings were replaced.
  assert.equal(serverHasReplaced(listed('{}', {}), { plugins: { another: listed('{}', {}) } }), false);
});

test('settings that the schema does not allow are replaced by defaults with a warning', () => {
  const warnings: string[] = [];
  const warn = (problems: string): void => {
    warnings.push(problems);
  };
  const valid = listed('{}');
  assert.equal(withValidSettings(valid, STRICT, warn), valid);
  assert.deepEqual(warnings, []);
  assert.equal(withValidSettings(listed('{"units": 7}'), STRICT, warn).raw, '{}');
  assert.deepEqual(warnings, ['/units must be equal to a constant']);
});

test('a plugin with an invalid schema is unchanged', () => {
  const invalid = listed('{"units": 7}');
  const none: SettingsValidator = {
    validateData: () => [{ instancePath: 'type', keyword: 'schema', schemaPath: '', message: 'bad' }]
  };
  assert.equal(
    withValidSettings(invalid, none, () => {
      assert.fail();
    }),
    invalid
  );
});
