/** The settings' own texts in the language of the page: JupyterLab's server translates those of language packs only. */

import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { PartialJSONObject, PartialJSONValue } from '@lumino/coreutils';

import { sound } from './overrides';
import { SETTINGS_ID, withValidSettings } from './settings';

const TEXTS: ReadonlySet<string> = new Set(['title', 'description', 'jupyter.lab.setting-icon-label']);

/**
 * Have the settings' editor show them so, and say of which defaults it makes no use; to be called before anybody loads
 * the settings.
 */
export function translateSettings(
  registry: ISettingRegistry,
  trans: TranslationBundle,
  warn: (sentence: string) => void
): void {
  const said = new Set<string>();
  const warnOnce = (sentence: string): void => {
    if (!said.has(sentence)) {
      said.add(sentence);
      warn(sentence);
    }
  };
  registry.transform(SETTINGS_ID, {
    fetch: plugin => {
      const [schema, unfit] = sound(plugin.schema);
      for (const { name, value } of unfit) {
        warnOnce(
          trans.__(
            'overrides.json on the server sets %1 to %2, which cannot be. Another value is used; the settings of the GPUs say which.',
            name,
            JSON.stringify(value)
          )
        );
      }
      const readable = { ...plugin, schema: translated(trans, schema) as ISettingRegistry.ISchema };
      return withValidSettings(readable, registry.validator, problems => {
        warnOnce(
          trans.__('Your GPU settings are not valid in this version, so the defaults are used: %1', problems)
        );
      });
    }
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
