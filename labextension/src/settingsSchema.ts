import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { PartialJSONObject, PartialJSONValue } from '@lumino/coreutils';

import { SETTINGS_ID, withValidSettings } from './settings';

const TRANSLATED_KEYS: ReadonlySet<string> = new Set([
  'title',
  'description',
  'jupyter.lab.setting-icon-label'
]);

/** A default in overrides.json that the schema does not allow. */
export interface InvalidDefault {
  /** The setting, such as `units.memory`. */
  readonly name: string;
  readonly value: PartialJSONValue | undefined;
}

interface Property {
  readonly type?: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly enum?: readonly PartialJSONValue[];
  readonly oneOf?: readonly { readonly const: PartialJSONValue }[];
  readonly properties?: Readonly<Record<string, Property>>;
  readonly default?: PartialJSONValue;
}

/**
 * Translate the settings' texts and replace invalid defaults and settings whenever they are fetched. Call
 * this function before any plugin loads the settings. `warn` receives a sentence about what was replaced.
 *
 * JupyterLab's server translates only the settings of language packs.
 */
export function transformSettingsSchema(
  registry: ISettingRegistry,
  trans: TranslationBundle,
  warn: (sentence: string) => void
): void {
  const warned = new Set<string>();
  const warnOnce = (sentence: string): void => {
    if (!warned.has(sentence)) {
      warned.add(sentence);
      warn(sentence);
    }
  };
  registry.transform(SETTINGS_ID, {
    fetch: plugin => {
      const [schema, invalid] = withValidDefaults(plugin.schema);
      for (const { name, value } of invalid) {
        warnOnce(
          trans.__(
            'overrides.json on the server sets %1 to %2, which cannot be. Another value is used; the settings of the GPUs say which.',
            name,
            JSON.stringify(value)
          )
        );
      }
      const readable = { ...plugin, schema: translatedSchema(trans, schema) as ISettingRegistry.ISchema };
      return withValidSettings(readable, registry.validator, problems => {
        warnOnce(
          trans.__('Your GPU settings are not valid in this version, so the defaults are used: %1', problems)
        );
      });
    }
  });
}

/** Return a schema with its texts translated, in the contexts that JupyterLab uses for them. */
export function translatedSchema(trans: TranslationBundle, schema: PartialJSONObject): PartialJSONObject {
  return translatedObject(trans, schema, 'schema');
}

function translatedObject(
  trans: TranslationBundle,
  object: PartialJSONObject,
  context: string
): PartialJSONObject {
  const translated = (key: string, value: PartialJSONValue | undefined): PartialJSONValue | undefined => {
    if (typeof value === 'string') {
      const where = key === 'title' || key === 'description' ? context : 'settings';
      return TRANSLATED_KEYS.has(key) ? trans._p(where, value) : value;
    }
    if (Array.isArray(value)) {
      return value.map(item => translated('', item) ?? null);
    }
    return typeof value === 'object' && value !== null ? translatedObject(trans, value, 'settings') : value;
  };
  return Object.fromEntries(Object.entries(object).map(([key, value]) => [key, translated(key, value)]));
}

/**
 * Return a schema whose defaults are valid, and the invalid defaults that were replaced.
 *
 * An administrator's overrides.json changes the defaults. With an invalid default, JupyterLab would load none
 * of the settings, and therefore no part of this extension. An invalid number is replaced by the nearest
 * valid one, and an invalid value in a group by its own default.
 */
export function withValidDefaults(schema: PartialJSONObject): [PartialJSONObject, InvalidDefault[]] {
  const invalid: InvalidDefault[] = [];
  const { properties = {} } = schema as Property;
  const valid = Object.entries(properties).map(
    ([name, property]) => [name, withValidDefault(name, property, invalid)] as const
  );
  return [{ ...schema, properties: Object.fromEntries(valid) as PartialJSONObject }, invalid];
}

function withValidDefault(name: string, property: Property, invalid: InvalidDefault[]): Property {
  const { properties, default: value } = property;
  if (properties === undefined) {
    if (isValid(property, value)) {
      return property;
    }
    invalid.push({ name, value });
    const { minimum = 0, maximum = Infinity } = property;
    const number = typeof value === 'number' ? value : -Infinity;
    return { ...property, default: Math.max(minimum, Math.min(number, maximum)) };
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    invalid.push({ name, value });
    return { ...property, default: {} };
  }
  const kept = Object.entries(value).filter(([key, inner]) => {
    const known = properties[key];
    const valid = known !== undefined && isValid(known, inner);
    if (!valid) {
      invalid.push({ name: `${name}.${key}`, value: inner });
    }
    return valid;
  });
  return { ...property, default: Object.fromEntries<PartialJSONValue | undefined>(kept) };
}

function isValid(property: Property, value: PartialJSONValue | undefined): boolean {
  if (value === undefined || typeof value !== property.type) {
    return false;
  }
  const { minimum = -Infinity, maximum = Infinity } = property;
  if (typeof value === 'number' && (value < minimum || value > maximum)) {
    return false;
  }
  const choices = property.enum ?? property.oneOf?.map(choice => choice.const);
  return choices === undefined || choices.includes(value);
}
