import { Token } from '@lumino/coreutils';

import type { Cells } from './cells/cells';
import type { GpuMonitor } from './stream/gpuMonitor';
import type { HolderPorts } from './holders/ports';
import type { GpuPanel } from './panel/panel';

/** The domain of this extension's translations. */
export const DOMAIN = 'jupyterlab_gpuwidget';

/** The samples of the server and the kernel of the notebook in front. */
export const IMonitor = new Token<GpuMonitor>(
  'jupyterlab-gpuwidget:IMonitor',
  'Live GPU samples, while somebody looks.'
);

/** What the cells of the notebook in front did. */
export const ICells = new Token<Cells>(
  'jupyterlab-gpuwidget:ICells',
  'What the cells of the notebook in front did, and which one runs.'
);

/** The panel of the sidebar. */
export const IGpuPanel = new Token<GpuPanel>('jupyterlab-gpuwidget:IGpuPanel', 'The GPU panel.');

/** What can be done about those that hold memory. */
export const IHolders = new Token<HolderPorts>(
  'jupyterlab-gpuwidget:IHolders',
  'Actions on those that hold memory.'
);

/** The commands that this extension adds. */
export const CommandIds = {
  show: 'gpuwidget:show-panel',
  toggle: 'gpuwidget:toggle-panel',
  device: 'gpuwidget:choose-device',
  watch: 'gpuwidget:watch-cells',
  load: 'gpuwidget:load-in-kernel',
  dashboard: 'gpuwidget:open-dashboard',
  doctor: 'gpuwidget:examine'
} as const;

/** Those about one that holds memory. */
export const HolderCommandIds = {
  goTo: 'gpuwidget:go-to-holder',
  freeCache: 'gpuwidget:free-cache',
  shutDown: 'gpuwidget:shut-down-kernel'
} as const;
