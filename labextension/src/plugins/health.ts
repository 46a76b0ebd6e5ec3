import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Clipboard, ICommandPalette } from '@jupyterlab/apputils';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { Health } from '../health/health';
import { HealthSection } from '../health/section';
import { JupyterServerDoctor } from '../health/server';
import { read, SETTINGS } from '../settings';
import type { Monitor } from '../stream/monitor';
import { CommandIds, DOMAIN, IGpuPanel, IMonitor } from '../tokens';

/** The doctor in the panel: the chain from PyTorch to the GPU, of the notebook in front and of the server. */
export const health: JupyterFrontEndPlugin<void> = {
  id: 'jupyterlab-gpuwidget:health',
  description: 'The chain from PyTorch to the GPU, link by link, when somebody asks.',
  autoStart: true,
  requires: [IMonitor, IGpuPanel, ISettingRegistry],
  optional: [ICommandPalette, ITranslator],
  activate: async (
    { commands, shell }: JupyterFrontEnd,
    { kernels }: Monitor,
    panel: IGpuPanel,
    registry: ISettingRegistry,
    palette: ICommandPalette | null,
    translator: ITranslator | null
  ) => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const silence = trans.__(
      'The kernel did not answer: a long call holds it, or it has an older gpuwidget.'
    );
    const known = new Health(new JupyterServerDoctor(trans), kernels, silence);
    const section = new HealthSection(
      { trans, health: known, kernels, panelState: panel.panelState },
      text => {
        Clipboard.copyToSystem(text);
      }
    );
    const settings = await registry.load(SETTINGS);
    section.node.hidden = !read(settings).show.health;
    settings.changed.connect(changed => {
      section.node.hidden = !read(changed).show.health;
    });
    panel.addSection(section);
    commands.addCommand(CommandIds.doctor, {
      label: trans.__('Examine the GPU Software (Doctor)'),
      caption: trans.__('Look at every link from PyTorch to the GPU, in this kernel and in the server'),
      describedBy: { args: { type: 'object', properties: {} } },
      execute: () => {
        shell.activateById(panel.id);
        section.node.hidden = false; // Who asks for it wants to see it, whatever the settings say.
        section.open();
      }
    });
    palette?.addItem({ command: CommandIds.doctor, category: trans.__('GPU') });
  }
};
