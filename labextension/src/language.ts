/** The settings' own texts in the language of the page: JupyterLab's server translates those of language packs only. */

import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { PartialJSONObject, PartialJSONValue } from '@lumino/coreutils';

import { SETTINGS } from './settings';

const TEXTS: ReadonlySet<string> = new Set(['title', 'description', 'jupyter.lab.setting-icon-label']);

/** Have the settings' editor show them so; to be called before anybody loads the settings. */
export function translateSettings(registry: ISettingRegistry, trans: TranslationBundle): void {
  registry.transform(SETTINGS, {
    fetch: plugin => ({
      ...plugin,
      schema: translated(trans, plugin.schema) as ISettingRegistry.ISchema
    })
  });
}

/** A schema with its texts translated, in the contexts that JupyterLab gives them. */
export function translated(trans: TranslationBundle, schema: PartialJSONObject): PartialJSONObject {
  return within(trans, schema, 'schema');
}

function within(trans: TranslationBundle, object: PartialJSONObject, context: string): PartialJSONObject {
  const told = (key: string, value: PartialJSONValue | undefined): PartialJSONValue | undefined => {
    if (typeof value === 'string') {
      const where = key === 'title' || key === 'description' ? context : 'settings';
      return TEXTS.has(key) ? trans._p(where, value) : value;
    }
    if (Array.isArray(value)) {
      return value.map(one => told('', one) ?? null);
    }
    return typeof value === 'object' && value !== null ? within(trans, value, 'settings') : value;
  };
  return Object.fromEntries(Object.entries(object).map(([key, value]) => [key, told(key, value)]));
}
