import { commands } from './plugins/commands';
import { dashboard } from './plugins/dashboard';
import { monitor } from './plugins/monitor';
import { panel } from './plugins/panel';

export default [monitor, panel, commands, dashboard];
