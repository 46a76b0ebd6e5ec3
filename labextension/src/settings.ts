import type { ISettingRegistry } from '@jupyterlab/settingregistry';

/** What the user may set. The defaults stand in the settings' schema only. */
export interface Settings {
  /** Seconds of the past that a chart shows. */
  readonly chartSeconds: number;
  /** Whether the status bar tells the GPU and the memory of the notebook in front. */
  readonly statusBar: boolean;
}

/** What the settings say now. */
export function read(settings: ISettingRegistry.ISettings): Settings {
  const { chartSeconds, statusBar } = settings.composite;
  return { chartSeconds: chartSeconds as number, statusBar: statusBar as boolean };
}
