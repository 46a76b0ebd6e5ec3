import { strict as assert } from 'node:assert';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { runInThisContext } from 'node:vm';
import { ModuleKind, transpileModule } from 'typescript';

import { PageConfig } from '@jupyterlab/coreutils';
import type { ISettingRegistry, SettingRegistry } from '@jupyterlab/settingregistry';
import type { TranslationBundle } from '@jupyterlab/translation';

import schema from '../schema/panel.json';
import { loadSettings, serverHasReplaced, translatedSchema } from '../src/model/settings/loadSettings';
import { DEFAULTS, SETTINGS_ID } from '../src/model/settings/settings';
import type { IGpuSettings } from '../src/tokens';
import { trans } from './fakes';

type Plugin = ISettingRegistry.IPlugin;

PageConfig.setOption('userSettingsDir', '/home/me/.jupyter/lab/user-settings');

const FILE = '/home/me/.jupyter/lab/user-settings/jupyterlab-gpuwidget/panel.jupyterlab-settings';
const SYNTAX_ERROR = 'Failed loading settings (jupyterlab-gpuwidget:panel): <string>:1 Unexpected end';
/** Another extension's settings in the server's list. */
const OTHER: Plugin = { ...plugin({ schema: { type: 'object' } }), id: 'another:plugin' };

/**
 * JupyterLab's settings registry. Node cannot load its module as it is, because its imports have no suffixes, and
 * one of them, which shortcuts need, needs a browser.
 */
const RegistryClass = ((): typeof SettingRegistry => {
  const file = require.resolve('@jupyterlab/settingregistry/lib/settingregistry.js');
  const compilerOptions = { module: ModuleKind.CommonJS, esModuleInterop: true };
  const { outputText } = transpileModule(readFileSync(file, 'utf-8'), { compilerOptions });
  const exported = {} as { SettingRegistry: typeof SettingRegistry };
  const run = runInThisContext(`(exports, require) => {${outputText}\n}`) as (
    exports: typeof exported,
    require: (name: string) => unknown
  ) => void;
  const requireThere = createRequire(file) as (name: string) => unknown;
  run(exported, name => (name === '@lumino/commands' ? {} : requireThere(name)));
  return exported.SettingRegistry;
})();

/** Return the plugin with the settings as Jupyter's server lists it. */
function plugin(changes: Partial<Plugin> = {}): Plugin {
  return {
    id: SETTINGS_ID,
    raw: '{}',
    schema: structuredClone(schema) as unknown as Plugin['schema'],
    version: '1',
    data: { composite: {}, user: {} },
    last_modified: '2026-01-01T00:00:00Z',
    warning: null,
    ...changes
  };
}

/** Return the plugin with these defaults, as jupyterlab_server applies overrides.json. */
function overridden(presets: Record<string, unknown>): Plugin {
  const served = structuredClone(schema) as { properties: Record<string, { default?: unknown }> };
  for (const [name, value] of Object.entries(presets)) {
    served.properties[name] = { ...served.properties[name], default: value };
  }
  return plugin({ schema: served as Plugin['schema'] });
}

/** Return JupyterLab's registry with the plugins that the server lists, and a server that saves settings. */
function registryOf(listed: Plugin): SettingRegistry {
  let { raw } = listed;
  const connector = {
    fetch: () => Promise.resolve({ ...structuredClone(listed), raw }),
    save: (_: string, saved: string) => {
      raw = saved;
      return Promise.resolve();
    }
  };
  const plugins = [OTHER, listed];
  return new RegistryClass({ connector, plugins } as unknown as SettingRegistry.IOptions);
}

/** Load the settings. Return them with the array of warnings, to which later warnings are added. */
async function loaded(
  registry: ISettingRegistry | null,
  fetch: () => Promise<unknown> = () => Promise.resolve({})
): Promise<{ settings: IGpuSettings; warnings: string[] }> {
  const warnings: string[] = [];
  const manager = { fetch } as unknown as Parameters<typeof loadSettings>[0]['manager'];
  const warn = (sentence: string): void => {
    warnings.push(sentence);
  };
  return { settings: await loadSettings({ registry, manager, trans, warn }), warnings };
}

test('without settings of the user, every setting has the default of the schema, without a warning', async () => {
  const { settings, warnings } = await loaded(registryOf(plugin()));
  assert.deepEqual([settings.current, warnings], [DEFAULTS, []]);
  assert.deepEqual(DEFAULTS, {
    chartSeconds: 120,
    sampleSeconds: 0,
    units: { memory: 'GiB', temperature: 'C' },
    statusBar: 'meter',
    show: { switches: false, hints: true, holders: true, bands: true, cells: true, health: false },
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
  });
});

test('the user’s settings apply, also when they change, and parts can be shown and hidden', async () => {
  const registry = registryOf(plugin({ raw: '{"units": {"memory": "GB"}, "show": {"cells": false}}' }));
  const { settings, warnings } = await loaded(registry);
  assert.deepEqual(settings.current.units, { memory: 'GB', temperature: 'C' });
  const charts: number[] = [];
  settings.changed.connect(() => {
    charts.push(settings.current.chartSeconds);
  });
  await registry.set(SETTINGS_ID, 'chartSeconds', 60);
  await settings.togglePart('health');
  assert.deepEqual(charts, [60, 60]);
  assert.deepEqual(settings.current, {
    ...DEFAULTS,
    chartSeconds: 60,
    units: { memory: 'GB', temperature: 'C' },
    show: { ...DEFAULTS.show, cells: false, health: true }
  });
  assert.deepEqual(warnings, []);
});

test('an administrator’s defaults stay when the user sets other members of the same group', async () => {
  const presets = { show: { bands: false, switches: true }, hints: { busyMinutes: 60 } };
  const registry = registryOf({ ...overridden(presets), raw: '{"hints": {"idleGib": 4}}' });
  const { settings, warnings } = await loaded(registry);
  await settings.togglePart('health');
  await settings.togglePart('switches');
  assert.deepEqual(
    [settings.current, warnings],
    [
      {
        ...DEFAULTS,
        show: { ...DEFAULTS.show, bands: false, switches: false, health: true },
        hints: { ...DEFAULTS.hints, busyMinutes: 60, idleGib: 4 }
      },
      []
    ]
  );
});

test('an administrator’s defaults apply, and an invalid one is named once and left out', async () => {
  const valid = { chartSeconds: 300, units: { memory: 'GB' }, hints: { busyMinutes: 60 } };
  const preset = await loaded(registryOf(overridden(valid)));
  assert.deepEqual(preset.settings.current, {
    ...DEFAULTS,
    chartSeconds: 300,
    units: { memory: 'GB', temperature: 'C' },
    hints: { ...DEFAULTS.hints, busyMinutes: 60 }
  });
  assert.deepEqual(preset.warnings, []);

  const registry = registryOf(
    overridden({
      chartSecond: 300,
      chartSeconds: 1e6,
      sampleSeconds: 'often',
      statusBar: null,
      units: { memory: 'bits', temperature: 'F' },
      show: { sun: true, cells: 'no', hints: false },
      hints: 'none',
      alerts: { memoryPercent: 0, when: null }
    })
  );
  const { settings, warnings } = await loaded(registry);
  const expected = {
    ...DEFAULTS,
    units: { memory: 'GiB', temperature: 'F' },
    show: { ...DEFAULTS.show, hints: false }
  };
  assert.deepEqual(settings.current, expected);
  const told = [
    'chartSecond to 300',
    'chartSeconds to 1000000',
    'sampleSeconds to "often"',
    'units.memory to "bits"',
    'statusBar to null',
    'show.sun to true',
    'show.cells to "no"',
    'hints to "none"',
    'alerts.when to null',
    'alerts.memoryPercent to 0'
  ].map(
    what =>
      `overrides.json on the server sets ${what}, which is not valid. The GPU settings show the value that is used instead.`
  );
  assert.deepEqual([...warnings].sort(), [...told].sort());
  // The user can still change settings, and is not told again.
  await registry.set(SETTINGS_ID, 'chartSeconds', 60);
  assert.deepEqual(settings.current, { ...expected, chartSeconds: 60 });
  assert.equal(warnings.length, told.length);
});

test('settings that another version’s schema on the server lacks have the defaults, and the others apply', async () => {
  const served = structuredClone(schema) as { properties: Record<string, object> };
  delete served.properties.alerts;
  Object.assign(served.properties.hints ?? {}, { properties: {} });
  served.properties.added = { type: 'boolean', default: true };
  const other = plugin({ schema: served as Plugin['schema'], raw: '{"chartSeconds": 60}' });
  const { settings, warnings } = await loaded(registryOf(other));
  assert.deepEqual([settings.current, warnings], [{ ...DEFAULTS, chartSeconds: 60, added: true }, []]);
});

test('a settings file with a syntax error leaves the defaults and one warning that names the file', async () => {
  // Jupyter's own server then lists no settings at all, so JupyterLab has no registry.
  const { settings, warnings } = await loaded(null, () => Promise.reject(new Error(SYNTAX_ERROR)));
  assert.deepEqual(settings.current, DEFAULTS);
  await settings.togglePart('health'); // Nothing can be changed, and nothing fails.
  assert.deepEqual(warnings, [
    `Your GPU settings are unreadable, so the defaults are used. JupyterLab itself may not work until you correct or delete the file ${FILE} and reload this page. The server reports: ${SYNTAX_ERROR}`
  ]);
});

test('settings that cannot be loaded for another reason leave the defaults and one warning', async () => {
  const failing = { connector: { fetch: () => Promise.reject(new Error('Schema not found')) } };
  for (const [registry, reason] of [
    [new RegistryClass(failing as unknown as SettingRegistry.IOptions), 'Schema not found'],
    [null, 'the settings of another extension are unreadable']
  ] as const) {
    const { settings, warnings } = await loaded(registry);
    assert.deepEqual(
      [settings.current, warnings],
      [
        DEFAULTS,
        [
          `JupyterLab could not load the GPU settings, so the defaults are used: ${reason}. Reload this page; if this message appears again, see the log of the Jupyter server.`
        ]
      ]
    );
  }
});

test('settings that the server should have replaced leave the defaults, and the warning names the file', async () => {
  for (const [raw, reason] of [
    ['{"units": 7, "removed": 1}', 'must NOT have additional properties'],
    ['{"units": 7}', '/units must be object']
  ] as const) {
    const { settings, warnings } = await loaded(registryOf(plugin({ raw })));
    assert.deepEqual(
      [settings.current, warnings],
      [
        DEFAULTS,
        [
          `Your GPU settings are not valid in this version, so the defaults are used: ${reason}. Correct or delete the file ${FILE} and reload this page.`
        ]
      ]
    );
  }
});

test('settings that the server has replaced are reported with the file', async () => {
  const replaced = plugin();
  delete replaced.warning;
  const { settings, warnings } = await loaded(registryOf(replaced));
  assert.deepEqual(settings.current, DEFAULTS);
  assert.deepEqual(warnings, [
    `Your GPU settings are not valid in this version, so the defaults are used. Correct or delete the file ${FILE} and reload this page. The log of the Jupyter server names the invalid setting.`
  ]);
});

test('only a listed plugin whose file the server replaced counts as replaced', () => {
  const without = (name: string, changes: Partial<Plugin> = {}): Plugin =>
    Object.fromEntries(Object.entries(plugin(changes)).filter(([key]) => key !== name)) as Plugin;
  const fetchedAlone = without('data');
  delete fetchedAlone.warning;
  const replaced = [
    without('warning'),
    plugin(),
    without('warning', { raw: '{"a": 1}' }),
    without('warning', { last_modified: null }),
    fetchedAlone
  ].map(each => serverHasReplaced(each, { plugins: { another: OTHER } }));
  assert.deepEqual(replaced, [true, false, false, false, false]);
  // If no plugin in the list has `warning`, its absence does not show that settings were replaced.
  assert.equal(serverHasReplaced(without('warning'), { plugins: { another: without('warning') } }), false);
});

test('the settings’ texts are translated in JupyterLab’s contexts, and nothing else is', () => {
  /** A translation bundle that prefixes each text with its context. */
  const marked = {
    _p: (context: string, text: string) => `${context}|${text}`
  } as unknown as TranslationBundle;
  const { properties, title, ...rest } = translatedSchema(
    marked,
    schema as unknown as Plugin['schema']
  ) as unknown as typeof schema;
  const { statusBar, chartSeconds } = properties;
  assert.deepEqual(
    [title, rest.description, rest['jupyter.lab.setting-icon'], rest['jupyter.lab.setting-icon-label']],
    ['schema|GPUs', 'schema|The GPU panel.', 'gpuwidget:gpu', 'settings|GPUs']
  );
  assert.deepEqual(chartSeconds, {
    ...schema.properties.chartSeconds,
    title: 'settings|Chart length (s)',
    description: `settings|${schema.properties.chartSeconds.description}`
  });
  assert.deepEqual(
    statusBar.oneOf,
    schema.properties.statusBar.oneOf.map(choice => ({ ...choice, title: `settings|${choice.title}` }))
  );
  assert.deepEqual(statusBar.default, 'meter');
});
