import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import type { TranslationBundle } from '@jupyterlab/translation';
import type { PartialJSONObject, PartialJSONValue } from '@lumino/coreutils';

import { translatedSchema, withValidDefaults } from '../src/model/settings/settingsSchema';

/** A translation bundle that prefixes each text with its context. */
const marked = {
  _p: (context: string, text: string) => `${context}|${text}`
} as unknown as TranslationBundle;

test('the settings’ texts are translated in JupyterLab’s contexts, and nothing else is', () => {
  const schema = {
    title: 'GPUs',
    'jupyter.lab.setting-icon': 'gpuwidget:gpu',
    'jupyter.lab.setting-icon-label': 'GPUs',
    properties: {
      title: { title: 'Heading', type: 'string', default: 'title', enum: ['a', 'b'] },
      when: { description: 'When', oneOf: [{ const: 'never', title: 'Never' }], default: null }
    }
  };
  assert.deepEqual(translatedSchema(marked, schema), {
    title: 'schema|GPUs',
    'jupyter.lab.setting-icon': 'gpuwidget:gpu',
    'jupyter.lab.setting-icon-label': 'settings|GPUs',
    properties: {
      title: { title: 'settings|Heading', type: 'string', default: 'title', enum: ['a', 'b'] },
      when: {
        description: 'settings|When',
        oneOf: [{ const: 'never', title: 'settings|Never' }],
        default: null
      }
    }
  });
});

test('valid presets of every type hold, and others are replaced by the nearest number or what is bundled', () => {
  const kinds = {
    whole: { type: 'integer', minimum: 1, maximum: 8 },
    list: { type: 'array' },
    flag: { type: 'boolean' },
    chartSeconds: { type: 'number', minimum: 60 }
  } as const;
  const schema = (values: Record<keyof typeof kinds, PartialJSONValue>): PartialJSONObject => ({
    properties: Object.fromEntries(
      Object.entries(kinds).map(([name, kind]) => [
        name,
        { ...kind, default: values[name as keyof typeof kinds] }
      ])
    )
  });
  const defaults = (values: Record<keyof typeof kinds, PartialJSONValue>): unknown[] => {
    const [{ properties }, invalid] = withValidDefaults(schema(values));
    const found = properties as Record<string, { default: unknown }>;
    return [Object.values(found).map(property => property.default), invalid.map(({ name }) => name)];
  };
  const valid = { whole: 8, list: ['a'], flag: false, chartSeconds: 90.5 };
  assert.deepEqual(defaults(valid), [[8, ['a'], false, 90.5], []]);
  assert.deepEqual(defaults({ whole: 2.6, list: 'a', flag: 1, chartSeconds: 'long' }), [
    [3, undefined, undefined, 120],
    ['whole', 'list', 'flag', 'chartSeconds']
  ]);
  assert.deepEqual(defaults({ ...valid, list: {} }), [[8, undefined, false, 90.5], ['list']]);
});
