import type { ISettingRegistry } from '@jupyterlab/settingregistry';

/** What the user may set. The defaults stand in the settings' schema only. */
export interface Settings {
  /** Seconds of the past that a chart shows. */
  readonly chartSeconds: number;
}

/** What the settings say now. */
export function read(settings: ISettingRegistry.ISettings): Settings {
  return { chartSeconds: settings.composite.chartSeconds as number };
}
