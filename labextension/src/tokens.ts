import { Token } from '@lumino/coreutils';

import type { Monitor } from './stream/monitor';
import type { GpuPanel } from './panel/panel';

/** The domain of this extension's translations. */
export const DOMAIN = 'jupyterlab_gpuwidget';

/** The samples of the server and the kernel of the notebook in front. */
export const IMonitor = new Token<Monitor>(
  'jupyterlab-gpuwidget:IMonitor',
  'Live GPU samples, while somebody looks.'
);

/** The panel of the sidebar. */
export const IGpuPanel = new Token<GpuPanel>('jupyterlab-gpuwidget:IGpuPanel', 'The GPU panel.');

/** The commands that this extension adds. */
export const CommandIds = {
  show: 'gpuwidget:show-panel',
  device: 'gpuwidget:choose-device',
  watch: 'gpuwidget:watch-cells',
  load: 'gpuwidget:load-in-kernel',
  doctor: 'gpuwidget:examine'
} as const;
