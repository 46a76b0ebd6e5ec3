import { cells } from './plugins/cells';
import { alerts } from './plugins/alerts';
import { commands } from './plugins/commands';
import { dashboard } from './plugins/dashboard';
import { holders } from './plugins/holders';
import { diagnostics } from './plugins/diagnostics';
import { monitor } from './plugins/monitor';
import { panel } from './plugins/panel';
import { statusBar } from './plugins/statusBar';

export default [monitor, cells, holders, panel, commands, dashboard, statusBar, alerts, diagnostics];
