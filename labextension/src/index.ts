import { cells } from './plugins/cells';
import { commands } from './plugins/commands';
import { monitor } from './plugins/monitor';
import { panel } from './plugins/panel';

export default [monitor, cells, panel, commands];
