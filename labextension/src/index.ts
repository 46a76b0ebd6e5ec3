import { cells } from './plugins/cells';
import { commands } from './plugins/commands';
import { monitor } from './plugins/monitor';
import { panel } from './plugins/panel';
import { statusBar } from './plugins/statusBar';

export default [monitor, cells, panel, commands, statusBar];
