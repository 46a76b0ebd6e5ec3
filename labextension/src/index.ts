import { alerts } from './plugins/alerts';
import { cluster } from './plugins/cluster';
import { cells, clusterModel, monitor } from './plugins/models';
import { commands } from './plugins/commands';
import { dashboard } from './plugins/dashboard';
import { diagnostics } from './plugins/diagnostics';
import { memory } from './plugins/memory';
import { panel } from './plugins/panel';
import { settings } from './plugins/settings';
import { statusBar } from './plugins/statusBar';

export * from './tokens';

export default [
  settings,
  monitor,
  clusterModel,
  cells,
  memory,
  panel,
  commands,
  dashboard,
  cluster,
  statusBar,
  alerts,
  diagnostics
];
