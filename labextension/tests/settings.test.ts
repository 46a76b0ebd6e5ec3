import { strict as assert } from 'node:assert';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { setUnits, memoryScale, temperatureUnit, type Units } from '../src/model/format';
import { CommandIds, HolderCommandIds } from '../src/tokens';

interface Property {
  readonly title?: string;
  readonly type: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly oneOf?: readonly { readonly const: string }[];
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

test('every unit of the schema can be displayed', () => {
  const choices = (name: string): string[] =>
    schema.properties.units?.properties?.[name]?.oneOf?.map(choice => choice.const) ?? [];
  const shown = choices('memory').flatMap(memory =>
    choices('temperature').map(temperature => {
      setUnits({ memory, temperature } as Units);
      return [memoryScale()[0].name, temperatureUnit().name];
    })
  );
  assert.deepEqual(shown, [
    ['GiB', '°C'],
    ['GiB', '°F'],
    ['GB', '°C'],
    ['GB', '°F']
  ]);
});
