import type { ISettingRegistry } from '@jupyterlab/settingregistry';

import type { AlertSettings } from './alerts/rules';
import type { Thresholds } from './holders/hints';

/** The settings' id: that of the plugin whose schema has their defaults. */
export const SETTINGS = 'jupyterlab-gpuwidget:panel';

const GIB = 1024 ** 3;

/** What the user may set. The defaults stand in the settings' schema only. */
export interface Settings {
  /** Seconds of the past that a chart shows. */
  readonly chartSeconds: number;
  /** Whether the status bar tells the GPU and the memory of the notebook in front. */
  readonly statusBar: boolean;
  /** When something is pointed out. */
  readonly hints: Thresholds;
  /** What is told by a notification. */
  readonly alerts: AlertSettings;
}

/** What the settings say, in the words of the schema. */
interface Said {
  readonly chartSeconds: number;
  readonly statusBar: boolean;
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
  const { chartSeconds, statusBar, hints, alerts } = settings.composite as unknown as Said;
  return {
    chartSeconds,
    statusBar,
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
