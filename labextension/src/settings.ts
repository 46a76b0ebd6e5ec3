import type { ISettingRegistry } from '@jupyterlab/settingregistry';

import type { AlertSettings } from './alerts/rules';
import type { Thresholds } from './memory/hints';
import type { Units } from './ui/units';

/** The settings' id: that of the plugin whose schema has their defaults. */
export const SETTINGS = 'jupyterlab-gpuwidget:panel';

const GIB = 1024 ** 3;

/** Which parts are shown. */
export interface Shown {
  readonly switches: boolean;
  readonly hints: boolean;
  readonly holders: boolean;
  readonly bands: boolean;
  readonly cells: boolean;
  readonly health: boolean;
  readonly statusBar: boolean;
}

/** What the user may set. The defaults stand in the settings' schema only. */
export interface Settings {
  /** Seconds of the past that a chart shows. */
  readonly chartSeconds: number;
  /** Seconds from one sample to the next at least; 0 for as few as the server's. */
  readonly sampleSeconds: number;
  readonly units: Units;
  readonly show: Shown;
  /** When something is pointed out. */
  readonly hints: Thresholds;
  /** What is told by a notification. */
  readonly alerts: AlertSettings;
}

/** What the settings say, in the words of the schema. */
interface Said {
  readonly chartSeconds: number;
  readonly sampleSeconds: number;
  readonly units: Units;
  readonly show: Shown;
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

/** What the settings say now. */
export function read(settings: ISettingRegistry.ISettings): Settings {
  const { chartSeconds, sampleSeconds, units, show, hints, alerts } = settings.composite as unknown as Said;
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
