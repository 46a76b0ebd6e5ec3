import { PageConfig } from '@jupyterlab/coreutils';
import type { Setting } from '@jupyterlab/services';
import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { PartialJSONObject, ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { Signal } from '@lumino/signaling';

import { readSettings, SETTINGS_ID, type Settings } from './settings';
import type { ShownSections } from './settingsSchema';
import { translatedSchema, withValidDefaults } from './settingsSchema';
import type { IGpuSettings } from '../../tokens';
import { sentence } from '../format';

/** The beginning of the Jupyter server's error message if a settings file has a syntax error. */
const UNREADABLE_FILE = 'Failed loading settings';

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
  /** Called with each sentence about replaced settings, once per sentence. */
  readonly warn: (sentence: string) => void;
}

/** The part of JupyterLab's schema validator that is used here. */
export type SettingsValidator = Pick<ISettingRegistry['validator'], 'validateData'>;

type ValidationErrors = NonNullable<ReturnType<SettingsValidator['validateData']>>;

/** The user's settings, updated when the registry's settings change. */
class GpuSettings implements IGpuSettings {
  private readonly _changed = new Signal<this, void>(this);

  /** `registered` is null if the settings could not be loaded, and therefore cannot be changed. */
  constructor(
    private _current: Settings,
    private readonly registered: ISettingRegistry.ISettings | null
  ) {}

  get current(): Settings {
    return this._current;
  }

  get changed(): Signal<this, void> {
    return this._changed;
  }

  async togglePart(part: keyof ShownSections): Promise<void> {
    const show = this.registered?.user.show as PartialJSONObject | undefined;
    await this.registered?.set('show', { ...show, [part]: !this._current.show[part] });
  }

  replace(settings: Settings): void {
    this._current = settings;
    this._changed.emit();
  }
}

/**
 * Load the user's settings. For settings that cannot be loaded, warn the user and use the bundled schema's
 * defaults.
 *
 * JupyterLab rejects settings that it cannot fetch or validate. If the settings file of any extension has a
 * syntax error, Jupyter's server lists no settings at all, and the page has no settings registry. All plugins
 * that require the registry are then missing: JupyterLab shows an empty page, while Notebook 7 still shows
 * the notebook and this extension's views.
 */
export async function loadSettings(options: SettingsLoaderOptions): Promise<IGpuSettings> {
  const { trans } = options;
  const warned = new Set<string>();
  const warn = (sentence: string): void => {
    if (!warned.has(sentence)) {
      warned.add(sentence);
      options.warn(sentence);
    }
  };
  const read = (composite: ReadonlyPartialJSONObject): Settings => {
    const [settings, replaced] = readSettings(composite);
    if (replaced.length > 0) {
      warn(
        trans.__(
          'The GPU settings on the server are from another version of gpuwidget, so these settings have their defaults: %1. Reload this page; if this message appears again, update gpuwidget on the server.',
          replaced.join(', ')
        )
      );
    }
    return settings;
  };
  let registered: ISettingRegistry.ISettings;
  try {
    registered = await loadRegistered(options, warn);
  } catch (error) {
    warn(loadFailure(trans, error));
    return new GpuSettings(readSettings({})[0], null);
  }
  const settings = new GpuSettings(read(registered.composite), registered);
  registered.changed.connect(({ composite }) => {
    settings.replace(read(composite));
  });
  return settings;
}

async function loadRegistered(
  { registry, manager, trans }: SettingsLoaderOptions,
  warn: (sentence: string) => void
): Promise<ISettingRegistry.ISettings> {
  if (registry === null) {
    await manager.fetch(SETTINGS_ID);
    throw new Error(trans.__('the settings of another extension are unreadable'));
  }
  transformSettings(registry, trans, warn);
  return registry.load(SETTINGS_ID);
}

/** Return the warning for settings that could not be loaded. */
function loadFailure(trans: TranslationBundle, error: unknown): string {
  const reason = Array.isArray(error)
    ? problemText(error as ValidationErrors)
    : error instanceof Error
      ? error.message
      : String(error);
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
 * Translate the settings' texts and replace invalid defaults and settings whenever the settings are
 * fetched. `warn` receives a sentence about what was replaced.
 *
 * The texts are translated here because JupyterLab's server translates only settings whose translations are
 * in a language pack.
 */
function transformSettings(
  registry: ISettingRegistry,
  trans: TranslationBundle,
  warn: (sentence: string) => void
): void {
  registry.transform(SETTINGS_ID, {
    fetch: plugin => {
      const [schema, invalid] = withValidDefaults(plugin.schema);
      for (const { name, value } of invalid) {
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
      const readable = { ...plugin, schema: translatedSchema(trans, schema) as ISettingRegistry.ISchema };
      return withValidSettings(readable, registry.validator, problems => {
        warn(
          trans.__(
            'Your GPU settings are not valid in this version, so the defaults are used: %1. Correct or delete the file %2 and reload this page.',
            problems,
            settingsFile()
          )
        );
      });
    }
  });
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

/**
 * Return the plugin with the user's settings if the plugin's schema allows them, otherwise without them.
 *
 * JupyterLab's `load()` rejects settings that the plugin's schema does not allow, such as settings saved by
 * an older version of gpuwidget. `warn` receives the validator's messages. Jupyter's own server already
 * replaces such settings by `{}`; other servers may not. If the schema itself is invalid, the plugin is
 * returned unchanged.
 */
export function withValidSettings(
  plugin: ISettingRegistry.IPlugin,
  validator: SettingsValidator,
  warn: (problems: string) => void
): ISettingRegistry.IPlugin {
  const problems = validator.validateData(plugin, false);
  const empty = { ...plugin, raw: '{}', data: { composite: {}, user: {} } };
  if (problems === null || validator.validateData(empty, false) !== null) {
    return plugin;
  }
  warn(problemText(problems));
  return empty;
}

function problemText(problems: ValidationErrors): string {
  return problems
    .map(({ instancePath, message }) => [instancePath, message].filter(Boolean).join(' '))
    .join('; ');
}

/** Return the path of the file with the user's settings. */
function settingsFile(): string {
  const folder = PageConfig.getOption('userSettingsDir');
  return `${folder}/${SETTINGS_ID.replace(':', '/')}.jupyterlab-settings`;
}
