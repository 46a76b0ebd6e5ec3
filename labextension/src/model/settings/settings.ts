import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import type { AlertSettings } from '../alerts/alertRules';
import type { Thresholds } from '../memory/hints';
import { withBundledDefaults, type ShownSections } from './settingsSchema';
import type { Units } from '../format';

/** The id of the settings, which is the id of the plugin that the schema belongs to. */
export const SETTINGS_ID = 'jupyterlab-gpuwidget:panel';

const GIB = 1024 ** 3;

/** When a browser notification reports a finished cell. */
export interface LongCellSettings {
  readonly notify: boolean;
  /** Only cells that ran for at least this many seconds are reported. */
  readonly seconds: number;
}

/** The user's settings in the units that the code uses. Defaults are declared only in the settings schema. */
export interface Settings {
  /** Time span of a panel chart in seconds. */
  readonly chartSeconds: number;
  /** Minimum seconds between two samples; 0 for the server's own rate. */
  readonly sampleSeconds: number;
  readonly units: Units;
  /** What the item in the status bar is. */
  readonly statusBar: 'off' | 'meter' | 'sentence';
  readonly show: ShownSections;
  /** The thresholds of the panel's hints. */
  readonly hints: Thresholds;
  /** Which alerts raise a notification. */
  readonly alerts: AlertSettings;
  readonly longCells: LongCellSettings;
}

/** The settings as the schema declares them. */
interface RawSettings {
  readonly chartSeconds: number;
  readonly sampleSeconds: number;
  readonly units: Units;
  readonly statusBar: Settings['statusBar'];
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
  readonly longCells: LongCellSettings;
}

/**
 * Return the settings from `composite`, in which JupyterLab combines the user's settings with the defaults of
 * the server's schema. Also return the names of the settings for which `composite` has no valid value,
 * because the server has another version of the schema. These settings have the bundled schema's defaults.
 */
export function readSettings(composite: ReadonlyPartialJSONObject): [Settings, string[]] {
  const [values, replaced] = withBundledDefaults(composite);
  const { chartSeconds, sampleSeconds, units, statusBar, show, hints, alerts, longCells } =
    values as unknown as RawSettings;
  const settings = {
    chartSeconds,
    sampleSeconds,
    units,
    statusBar,
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
    },
    longCells
  };
  return [settings, replaced];
}
