import { alerts } from './plugins/alerts';
import { commands } from './plugins/commands';
import { holders } from './plugins/holders';
import { monitor } from './plugins/monitor';
import { panel } from './plugins/panel';

export default [monitor, holders, panel, commands, alerts];
