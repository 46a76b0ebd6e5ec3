import { PageConfig } from '@jupyterlab/coreutils';
import type { Setting } from '@jupyterlab/services';
import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import type { TranslationBundle } from '@jupyterlab/translation';
import { JSONExt, type PartialJSONObject } from '@lumino/coreutils';
import { Signal, type ISignal } from '@lumino/signaling';

import bundled from '../../../schema/panel.json';
import type { IGpuSettings } from '../../tokens';
import { sentence } from '../format';
import { DEFAULTS, SETTINGS_ID, type Part, type Property, type Settings } from './settings';

type Schema = ISettingRegistry.ISchema;

/** The beginning of the Jupyter server's error message if a settings file has a syntax error. */
const UNREADABLE_FILE = 'Failed loading settings';
const TRANSLATED_KEYS: ReadonlySet<string> = new Set([
  'title',
  'description',
  'jupyter.lab.setting-icon-label'
]);

/** The dependencies of `loadSettings`. */
export interface SettingsLoaderOptions {
  /** Null if JupyterLab could not load the settings of its extensions. */
  readonly registry: ISettingRegistry | null;
  /**
   * Used to request the settings from the server if there is no registry: the server's error may explain
   * why.
   */
  readonly manager: Pick<Setting.IManager, 'fetch'>;
  readonly trans: TranslationBundle;
  /** Called with each sentence about settings that are not used, once per sentence. */
  readonly warn: (sentence: string) => void;
}

/** The settings in JupyterLab's registry, or the defaults if the settings could not be loaded. */
class GpuSettings implements IGpuSettings {
  readonly changed: ISignal<unknown, void>;

  constructor(private readonly registered: ISettingRegistry.ISettings | null) {
    this.changed = registered?.changed ?? new Signal(this);
  }

  get current(): Settings {
    return (this.registered?.composite ?? DEFAULTS) as Settings;
  }

  async togglePart(part: Part): Promise<void> {
    const show = this.registered?.user.show as PartialJSONObject | undefined;
    await this.registered?.set('show', { ...show, [part]: !this.current.show[part] });
  }
}

/**
 * Load the user's settings. If they cannot be loaded, warn the user and use the defaults.
 *
 * JupyterLab rejects settings that it cannot fetch or validate. If the settings file of any extension has a
 * syntax error, Jupyter's server lists no settings at all, and the page has no settings registry. All plugins
 * that require the registry are then missing: JupyterLab shows an empty page, while Notebook 7 still shows
 * the notebook and this extension's views.
 */
export async function loadSettings(options: SettingsLoaderOptions): Promise<IGpuSettings> {
  const { registry, manager, trans } = options;
  const warned = new Set<string>();
  const warn = (sentence: string): void => {
    if (!warned.has(sentence)) {
      warned.add(sentence);
      options.warn(sentence);
    }
  };
  try {
    if (registry === null) {
      await manager.fetch(SETTINGS_ID);
      throw new Error(trans.__('the settings of another extension are unreadable'));
    }
    registry.transform(SETTINGS_ID, { fetch: plugin => transformed(plugin, registry, trans, warn) });
    return new GpuSettings(await registry.load(SETTINGS_ID));
  } catch (error) {
    warn(loadFailure(trans, error));
    return new GpuSettings(null);
  }
}

/** Return the warning for settings that could not be loaded. */
function loadFailure(trans: TranslationBundle, error: unknown): string {
  if (Array.isArray(error)) {
    // The validator's errors: Jupyter's own server replaces invalid settings, but other servers may not.
    const problems = error
      .map(({ instancePath, message }: Record<string, string>) => [instancePath, message])
      .map(texts => texts.filter(Boolean).join(' '));
    return trans.__(
      'Your GPU settings are not valid in this version, so the defaults are used: %1. Correct or delete the file %2 and reload this page.',
      problems.join('; '),
      settingsFile()
    );
  }
  const reason = error instanceof Error ? error.message : String(error);
  return reason.startsWith(UNREADABLE_FILE)
    ? trans.__(
        'Your GPU settings are unreadable, so the defaults are used. JupyterLab itself may not work until you correct or delete the file %1 and reload this page. The server reports: %2',
        settingsFile(),
        reason
      )
    : trans.__(
        'JupyterLab could not load the GPU settings, so the defaults are used: %1 Reload this page; if this message appears again, see the log of the Jupyter server.',
        sentence(reason)
      );
}

/**
 * Return the plugin of the settings with a schema that JupyterLab's registry can load, and with translated texts.
 * `warn` receives a sentence about what is not used.
 *
 * The texts are translated here because JupyterLab's server translates only the settings of extensions whose
 * translations are in a language pack.
 */
function transformed(
  plugin: ISettingRegistry.IPlugin,
  registry: ISettingRegistry,
  trans: TranslationBundle,
  warn: (sentence: string) => void
): ISettingRegistry.IPlugin {
  const [schema, invalid] = withValidDefaults(completed(plugin.schema, bundled), registry.validator);
  for (const [name, value] of invalid) {
    warn(
      trans.__(
        'overrides.json on the server sets %1 to %2, which is not valid. The GPU settings show the value that is used instead.',
        name,
        JSON.stringify(value)
      )
    );
  }
  if (serverHasReplaced(plugin, registry)) {
    warn(
      trans.__(
        'Your GPU settings are not valid in this version, so the defaults are used. Correct or delete the file %1 and reload this page. The log of the Jupyter server names the invalid setting.',
        settingsFile()
      )
    );
  }
  return { ...plugin, schema: translatedSchema(trans, schema) };
}

/** Return the schema with translated texts, in the contexts that JupyterLab uses. */
export function translatedSchema(trans: TranslationBundle, schema: Schema): Schema {
  const translated = JSON.parse(JSON.stringify(schema), (key, value: unknown) =>
    typeof value === 'string' && TRANSLATED_KEYS.has(key) ? trans._p('settings', value) : value
  ) as Schema;
  const { title = '', description = '' } = schema;
  return { ...translated, title: trans._p('schema', title), description: trans._p('schema', description) };
}

/**
 * Return the server's schema with the settings of this page that it lacks: while gpuwidget is updated, the server
 * may have another version's.
 */
function completed<Group extends Property>(served: Group, own: Property): Group {
  const properties: Record<string, Property> = { ...served.properties };
  for (const [name, property] of Object.entries(own.properties ?? {})) {
    const known = properties[name];
    properties[name] = known === undefined ? property : completed(known, property);
  }
  return own.properties === undefined ? served : { ...served, properties };
}

/**
 * Return the schema without the invalid defaults that an administrator has set in overrides.json, and the names
 * and values of these defaults. With an invalid default, JupyterLab would load none of the settings.
 */
function withValidDefaults(
  schema: Schema,
  validator: ISettingRegistry['validator']
): [Schema, (readonly [string, unknown])[]] {
  const invalid: (readonly [string, unknown])[] = [];
  const properties = { ...schema.properties };
  const withoutDefaults = structuredClone(properties);
  for (const property of Object.values(withoutDefaults)) {
    delete property.default;
  }
  const plugin = {
    id: `${SETTINGS_ID}-defaults`,
    version: '',
    schema: { ...schema, properties: withoutDefaults },
    data: { composite: {}, user: {} }
  };
  const isValid = (name: string, value: unknown, settings: unknown): boolean => {
    const raw = JSON.stringify(settings);
    const valid = validator.validateData({ ...plugin, raw }, false) === null;
    if (!valid) {
      invalid.push([name, value]);
    }
    return valid;
  };
  for (const [name, { default: value, type }] of Object.entries(properties)) {
    // Jupyter's server adds a name in overrides.json to the schema even if it is not that of a setting.
    if (type === undefined) {
      invalid.push([name, value]);
      Reflect.deleteProperty(properties, name);
    }
  }
  for (const [name, { default: usual }] of Object.entries(bundled.properties)) {
    const { default: value, ...property } = properties[name] ?? {};
    if (JSONExt.deepEqual(value ?? null, usual)) {
      continue;
    }
    if (JSONExt.isObject(value ?? null) && JSONExt.isObject(usual)) {
      // As defaults of the members, they also apply if the user has set other members.
      const members = { ...(property.properties as Record<string, PartialJSONObject>) };
      for (const [key, member] of Object.entries(value as PartialJSONObject)) {
        if (isValid(`${name}.${key}`, member, { [name]: { [key]: member } })) {
          members[key] = { ...members[key], default: member };
        }
      }
      properties[name] = { ...property, default: usual, properties: members };
    } else if (!isValid(name, value, { [name]: value })) {
      properties[name] = { ...property, default: usual };
    }
  }
  return [{ ...schema, properties }, invalid];
}

/**
 * Return whether Jupyter's server sent `{}` because it found the user's settings invalid.
 *
 * The server reports this only in its log, and sends none of the user's settings, not even the valid ones.
 * However, in the server's list of all plugins, a plugin whose settings were replaced has no `warning`, and
 * every other plugin has `warning: null`. There are two cases in which a missing `warning` proves nothing:
 * if no plugin in the list has a `warning`, and if the plugin was fetched alone. A plugin that was fetched
 * alone has no `data`.
 */
export function serverHasReplaced(
  plugin: ISettingRegistry.IPlugin,
  { plugins }: Pick<ISettingRegistry, 'plugins'>
): boolean {
  const { raw, warning, last_modified: modified } = plugin;
  const isListed = 'data' in plugin && Object.values(plugins).some(each => each && 'warning' in each);
  return isListed && warning !== null && raw === '{}' && typeof modified === 'string';
}

/** Return the path of the file with the user's settings. */
function settingsFile(): string {
  const folder = PageConfig.getOption('userSettingsDir');
  return `${folder}/${SETTINGS_ID.replace(':', '/')}.jupyterlab-settings`;
}
