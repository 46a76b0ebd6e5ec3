import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import type { TranslationBundle } from '@jupyterlab/translation';

import { translatedSchema } from '../src/settingsSchema';

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
