import { cells } from './plugins/cells';
import { commands } from './plugins/commands';
import { dashboard } from './plugins/dashboard';
import { monitor } from './plugins/monitor';
import { panel } from './plugins/panel';
import { statusBar } from './plugins/statusBar';

export default [monitor, cells, panel, commands, dashboard, statusBar];
