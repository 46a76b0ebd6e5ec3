import type { TranslationBundle } from '@jupyterlab/translation';
import type {
  PartialJSONObject,
  PartialJSONValue,
  ReadonlyPartialJSONObject,
  ReadonlyPartialJSONValue
} from '@lumino/coreutils';

import bundled from '../../../schema/panel.json';

/** Which sections of the user interface are shown, as the schema declares them. */
export type ShownSections = Readonly<Record<keyof typeof bundled.properties.show.properties, boolean>>;

const TRANSLATED_KEYS: ReadonlySet<string> = new Set([
  'title',
  'description',
  'jupyter.lab.setting-icon-label'
]);

/** A default in overrides.json that the schema does not allow. */
export interface InvalidDefault {
  /** The setting's name, such as `units.memory`. */
  readonly name: string;
  readonly value: PartialJSONValue | undefined;
}

interface Property {
  readonly type?: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly enum?: readonly ReadonlyPartialJSONValue[];
  readonly oneOf?: readonly { readonly const: ReadonlyPartialJSONValue }[];
  readonly properties?: Readonly<Record<string, Property>>;
  readonly default?: PartialJSONValue | undefined;
}

/** Return the parts of the user interface that the user may show or hide, each with its translated title. */
export function partTitles(trans: TranslationBundle): [keyof ShownSections, string][] {
  const { properties } = bundled.properties.show;
  const translated = translatedObject(trans, properties, 'settings') as typeof properties;
  return Object.entries(translated).map(([part, { title }]) => [part as keyof ShownSections, title]);
}

/**
 * Return a schema with translated texts. The translation contexts are those that JupyterLab uses for
 * settings.
 */
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
 * An administrator can change the defaults in overrides.json. If a default is invalid, JupyterLab loads none
 * of the settings, and therefore no part of this extension. An invalid number is replaced by the nearest
 * valid one, and any other invalid default by the bundled schema's. An invalid value in the default of a group
 * is removed, so that the schema's default for that setting applies.
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
    const { type, minimum = -Infinity, maximum = Infinity } = property;
    if (typeof value === 'number' && (type === 'number' || type === 'integer')) {
      const whole = type === 'integer' ? Math.round(value) : value;
      return { ...property, default: Math.max(minimum, Math.min(whole, maximum)) };
    }
    const bundledProperties: Readonly<Record<string, Property>> = bundled.properties;
    return { ...property, default: bundledProperties[name]?.default };
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

function isValid(property: Property, value: ReadonlyPartialJSONValue | undefined): boolean {
  if (value === undefined) {
    return false;
  }
  const type = Array.isArray(value) ? 'array' : Number.isInteger(value) ? 'integer' : typeof value;
  if (type !== property.type && !(type === 'integer' && property.type === 'number')) {
    return false;
  }
  const { minimum = -Infinity, maximum = Infinity } = property;
  if (typeof value === 'number' && (value < minimum || value > maximum)) {
    return false;
  }
  const choices = property.enum ?? property.oneOf?.map(choice => choice.const);
  return choices === undefined || choices.includes(value);
}

/**
 * Return the value of each setting that the bundled schema declares, and the names of the settings that have
 * the bundled default because `values` has no valid value for them.
 */
export function withBundledDefaults(
  values: ReadonlyPartialJSONObject
): [ReadonlyPartialJSONObject, string[]] {
  const replaced: string[] = [];
  return [groupValues(bundled, values, '', replaced), replaced];
}

function groupValues(
  { properties = {} }: Property,
  values: ReadonlyPartialJSONObject,
  prefix: string,
  replaced: string[]
): ReadonlyPartialJSONObject {
  const valueOf = (key: string, property: Property): ReadonlyPartialJSONValue | undefined => {
    const value = values[key];
    if (property.properties !== undefined) {
      const isGroup = typeof value === 'object' && value !== null && !Array.isArray(value);
      return groupValues(
        property,
        isGroup ? (value as ReadonlyPartialJSONObject) : {},
        `${prefix}${key}.`,
        replaced
      );
    }
    if (isValid(property, value)) {
      return value;
    }
    replaced.push(prefix + key);
    return property.default;
  };
  return Object.fromEntries(
    Object.entries(properties).map(([key, property]) => [key, valueOf(key, property)])
  );
}
