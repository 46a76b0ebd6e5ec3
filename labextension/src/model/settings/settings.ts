import type { TranslationBundle } from '@jupyterlab/translation';

import bundled from '../../../schema/panel.json';

/** The id of the settings, which is the id of the plugin that the schema belongs to. */
export const SETTINGS_ID = 'jupyterlab-gpuwidget:panel';

/** The values that a group of the schema declares: the type of a setting is that of its default. */
type Values<Group> = Group extends { readonly properties: infer Properties }
  ? { readonly [Name in keyof Properties]: Values<Properties[Name]> }
  : Group extends { readonly default: infer Default }
    ? Default
    : never;

/** The user's settings, as `schema/panel.json` declares them. Defaults are declared only there. */
export type Settings = Values<typeof bundled>;

/** A part of the user interface that the user may show or hide. */
export type Part = keyof Settings['show'];

/** A setting of the schema, or a group of settings. */
export interface Property {
  readonly default?: unknown;
  readonly properties?: Readonly<Record<string, Property>>;
}

/** The schema's defaults, for a page that has no settings. */
export const DEFAULTS = defaults(bundled) as Settings;

function defaults({ properties, default: value }: Property): unknown {
  return properties === undefined
    ? value
    : Object.fromEntries(Object.entries(properties).map(([name, each]) => [name, defaults(each)]));
}

/** Return the parts of the user interface that the user may show or hide, each with its translated title. */
export function partTitles(trans: TranslationBundle): [Part, string][] {
  return Object.entries(bundled.properties.show.properties).map(([part, { title }]) => [
    part as Part,
    trans._p('settings', title)
  ]);
}
