import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Clipboard, ICommandPalette } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { DoctorModel } from '../model/doctor/doctorModel';
import { DoctorSection } from '../views/doctor/doctorSection';
import { ServerClient } from '../model/server/serverClient';
import { CommandIds, DOMAIN, IGpuPanel, IGpuSettings, IMonitor } from '../tokens';
import { setAttribute } from '../ui/dom';
import { doctorIcon } from '../ui/icon';
import { showInSidebar } from '../ui/notebook7Layout';

const SECTION_RANK = 1200;

/**
 * The doctor's section in the panel. It shows the checks, from PyTorch down to the GPU, for the kernel and
 * for the server.
 */
export const doctor: JupyterFrontEndPlugin<void> = {
  id: 'jupyterlab-gpuwidget:doctor',
  description: 'Checks of everything between PyTorch and the GPU, on request.',
  autoStart: true,
  requires: [IMonitor, IGpuPanel, IGpuSettings],
  optional: [ICommandPalette, ITranslator],
  activate: (
    { commands, serviceManager, shell }: JupyterFrontEnd,
    { kernels }: IMonitor,
    panel: IGpuPanel,
    settings: IGpuSettings,
    palette: ICommandPalette | null,
    translator: ITranslator | null
  ) => {
    const { languageCode } = translator ?? nullTranslator;
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const noReply = trans.__(
      'The kernel did not answer: a long call blocks it, or its version of gpuwidget is too old.'
    );
    const server = new ServerClient(serviceManager.serverSettings, trans);
    const model = new DoctorModel(() => server.diagnose(languageCode), kernels, noReply);
    const section = new DoctorSection({
      trans,
      model,
      kernels,
      panelState: panel.panelState,
      settings,
      load: async () => {
        const chunk = await import(/* webpackChunkName: "doctor" */ '../views/doctor/chunk');
        return chunk.DoctorReport;
      },
      copy: text => {
        Clipboard.copyToSystem(text);
      }
    });
    panel.addSection(section, { rank: SECTION_RANK });
    let shown = '';
    const update = (): void => {
      const [status, summary] = section.diagnosis;
      const now = `${status ?? ''} ${summary}`;
      if (now !== shown) {
        shown = now;
        setAttribute(panel.node, 'data-doctor', status ?? '');
        commands.notifyCommandChanged(CommandIds.doctor);
      }
    };
    model.changed.connect(update);
    kernels.changed.connect(update); // Another kernel has another diagnosis.
    commands.addCommand(CommandIds.doctor, {
      label: trans.__('GPU Doctor'),
      caption: args =>
        args.toolbar === true
          ? trans.__('GPU Doctor: %1', section.diagnosis[1])
          : trans.__(
              'Check everything between PyTorch and the GPU, in the active notebook’s kernel and in the server'
            ),
      icon: args => (args.toolbar === true ? doctorIcon : undefined),
      describedBy: { args: { type: 'object', properties: {} } },
      execute: args => {
        if (args.toolbar === true && section.isOpen) {
          section.collapse();
          return;
        }
        showInSidebar(shell, panel);
        section.open();
      }
    });
    palette?.addItem({ command: CommandIds.doctor, category: trans.__('GPU') });
  }
};
