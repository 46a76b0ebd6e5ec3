import type { ISettingRegistry } from '@jupyterlab/settingregistry';

import type { AlertSettings } from './alerts/alertRules';
import type { Thresholds } from './memory/hints';
import type { Units } from './ui/units';

/** The id of the settings, which is the id of the plugin that the schema belongs to. */
export const SETTINGS_ID = 'jupyterlab-gpuwidget:panel';

const GIB = 1024 ** 3;

/** Which sections of the user interface are shown. */
export interface ShownSections {
  readonly switches: boolean;
  readonly hints: boolean;
  readonly holders: boolean;
  readonly bands: boolean;
  readonly cells: boolean;
  readonly health: boolean;
  readonly statusBar: boolean;
}

/** The user's settings in the units that the code uses. Defaults are declared only in the settings schema. */
export interface Settings {
  /** Time span of a panel chart in seconds. */
  readonly chartSeconds: number;
  /** Minimum seconds between two samples; 0 for the server's own rate. */
  readonly sampleSeconds: number;
  readonly units: Units;
  readonly show: ShownSections;
  /** The thresholds of the panel's hints. */
  readonly hints: Thresholds;
  /** Which alerts raise a notification. */
  readonly alerts: AlertSettings;
}

/** The settings as the schema declares them. */
interface RawSettings {
  readonly chartSeconds: number;
  readonly sampleSeconds: number;
  readonly units: Units;
  readonly show: ShownSections;
  readonly hints: {
    readonly idleHours: number;
    readonly idleGib: number;
    readonly busyPercent: number;
    readonly busyMinutes: number;
  };
  readonly alerts: {
    readonly when: AlertSettings['when'];
    readonly lost: boolean;
    readonly errors: boolean;
    readonly throttle: boolean;
    readonly memory: boolean;
    readonly memoryPercent: number;
    readonly temperature: boolean;
    readonly temperatureCelsius: number;
  };
}

/** Return the current settings. */
export function readSettings(settings: ISettingRegistry.ISettings): Settings {
  const { chartSeconds, sampleSeconds, units, show, hints, alerts } =
    settings.composite as unknown as RawSettings;
  return {
    chartSeconds,
    sampleSeconds,
    units,
    show,
    hints: {
      idle: hints.idleHours * 3600,
      memory: hints.idleGib * GIB,
      utilization: hints.busyPercent,
      window: hints.busyMinutes * 60
    },
    alerts: {
      when: alerts.when,
      lost: alerts.lost,
      errors: alerts.errors,
      throttle: alerts.throttle,
      memory: alerts.memory ? alerts.memoryPercent : null,
      temperature: alerts.temperature ? alerts.temperatureCelsius : null
    }
  };
}

/** The part of JupyterLab's schema validator that is used here. */
export type SettingsValidator = Pick<ISettingRegistry['validator'], 'validateData'>;

/**
 * Return the plugin with the user's settings if the schema allows them, otherwise without them.
 *
 * JupyterLab rejects `load()` for settings that its schema does not allow, such as those of an older version;
 * every plugin that loads them would then fail to activate. `warn` receives the validator's messages.
 * Jupyter's own server already replaces such settings by `{}` without a message to the page; other servers
 * may not.
 */
export function withValidSettings(
  plugin: ISettingRegistry.IPlugin,
  validator: SettingsValidator,
  warn: (problems: string) => void
): ISettingRegistry.IPlugin {
  const problems = validator.validateData(plugin, false);
  if (problems === null) {
    return plugin;
  }
  warn(
    problems.map(({ instancePath, message }) => [instancePath, message].filter(Boolean).join(' ')).join('; ')
  );
  return { ...plugin, raw: '{}', data: { composite: {}, user: {} } };
}
