import { strict as assert } from 'node:assert';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import type { ISettingRegistry } from '@jupyterlab/settingregistry';

import { read } from '../src/settings';
import { CommandIds, HolderCommandIds } from '../src/tokens';

interface Property {
  readonly title?: string;
  readonly type: string;
  readonly default: unknown;
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

function defaults(properties: Record<string, Property>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(properties).map(([name, { properties: inner, default: value }]) => [
      name,
      inner === undefined ? value : defaults(inner)
    ])
  );
}

function settings(composite: unknown): ISettingRegistry.ISettings {
  return { composite } as unknown as ISettingRegistry.ISettings;
}

test('each shortcut is a key of its own for a command that there is, wherever the keyboard is', () => {
  const commands: readonly string[] = [...Object.values(CommandIds), ...Object.values(HolderCommandIds)];
  const shortcuts = schema['jupyter.lab.shortcuts'];
  assert.deepEqual(
    shortcuts.map(({ command }) => command).filter(command => !commands.includes(command)),
    []
  );
  assert.deepEqual([...new Set(shortcuts.map(({ selector }) => selector))], ['body']);
  const keys = shortcuts.map(each => each.keys.join(' | '));
  assert.equal(new Set(keys).size, keys.length);
  // Alt and Shift with these letters: JupyterLab has only digits there, Chromium A B C I N P R T W X Z.
  assert.deepEqual(
    keys.filter(key => !/^Alt Shift [DEFGHV]$/.test(key)),
    []
  );
});

test('what the settings are before anybody touches them', () => {
  const { sampleSeconds, units, show, alerts } = read(settings(defaults(schema.properties)));
  assert.equal(sampleSeconds, 0);
  assert.deepEqual(units, { memory: 'binary', temperature: 'celsius' });
  assert.deepEqual([...new Set(Object.values(show))], [true]);
  assert.equal(alerts.temperature, null);
});

test('every setting has a name, and each number its limits', () => {
  const all = (properties: Record<string, Property>): Property[] =>
    Object.values(properties).flatMap(each => [each, ...all(each.properties ?? {})]);
  const odd = all(schema.properties).filter(
    ({ title, type, minimum, maximum, ...rest }) =>
      title === undefined ||
      (type === 'number' && !('enum' in rest) && (minimum === undefined || maximum === undefined))
  );
  assert.deepEqual(odd, []);
});
