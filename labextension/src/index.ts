import { commands } from './plugins/commands';
import { health } from './plugins/health';
import { monitor } from './plugins/monitor';
import { panel } from './plugins/panel';

export default [monitor, panel, commands, health];
