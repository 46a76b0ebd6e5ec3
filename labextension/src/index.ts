import { alerts } from './plugins/alerts';
import { cards } from './plugins/cards';
import { cluster } from './plugins/cluster';
import { cells, clusterModel, monitor } from './plugins/models';
import { commands } from './plugins/commands';
import { dashboard } from './plugins/dashboard';
import { doctor } from './plugins/doctor';
import { journal } from './plugins/journal';
import { longCells } from './plugins/longCells';
import { memory } from './plugins/memory';
import { notebookButton } from './plugins/notebookButton';
import { panel } from './plugins/panel';
import { running } from './plugins/running';
import { settings } from './plugins/settings';
import { statusBar } from './plugins/statusBar';

export * from './tokens';

export default [
  settings,
  monitor,
  clusterModel,
  cells,
  cards,
  memory,
  running,
  panel,
  notebookButton,
  commands,
  dashboard,
  cluster,
  statusBar,
  alerts,
  longCells,
  journal,
  doctor
];
