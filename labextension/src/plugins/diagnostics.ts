import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Clipboard, ICommandPalette } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { DiagnosticsModel } from '../model/diagnostics/diagnosticsModel';
import { DiagnosticsSection } from '../views/diagnostics/diagnosticsSection';
import { ServerClient } from '../model/server/serverClient';
import { CommandIds, DOMAIN, IGpuPanel, IGpuSettings, IMonitor } from '../tokens';
import { setAttribute, setHidden } from '../ui/dom';
import { doctorIcon } from '../ui/icon';
import { showInSidebar } from '../ui/notebook7Layout';

/**
 * The doctor's section in the panel. It shows the checks, from PyTorch down to the GPU, for the kernel and
 * for the server.
 */
export const diagnostics: JupyterFrontEndPlugin<void> = {
  id: 'jupyterlab-gpuwidget:diagnostics',
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
    const model = new DiagnosticsModel(() => server.diagnose(languageCode), kernels, noReply);
    const section = new DiagnosticsSection({
      trans,
      model,
      kernels,
      panelState: panel.panelState,
      copy: text => {
        Clipboard.copyToSystem(text);
      }
    });
    setHidden(section.node, !settings.current.show.health);
    settings.changed.connect(() => {
      setHidden(section.node, !settings.current.show.health);
    });
    panel.addSection(section);
    let shown = '';
    const update = (): void => {
      section.update();
      const now = `${section.status} ${section.summaryText}`;
      if (now !== shown) {
        shown = now;
        setAttribute(panel.node, 'data-doctor', section.status);
        commands.notifyCommandChanged(CommandIds.doctor);
      }
    };
    model.changed.connect(update);
    kernels.changed.connect(update); // Another kernel has another diagnosis.
    commands.addCommand(CommandIds.doctor, {
      label: trans.__('GPU Doctor'),
      caption: args =>
        args.toolbar === true
          ? trans.__('GPU Doctor: %1', section.summaryText)
          : trans.__(
              'Check everything between PyTorch and the GPU, in the active notebook’s kernel and in the server'
            ),
      icon: args => (args.toolbar === true ? doctorIcon : undefined),
      describedBy: { args: { type: 'object', properties: {} } },
      execute: args => {
        if (args.toolbar === true && section.isOpen) {
          section.node.open = false;
          setHidden(section.node, !settings.current.show.health);
          return;
        }
        showInSidebar(shell, panel);
        setHidden(section.node, false); // The command shows the section even if the settings hide it.
        section.open();
      }
    });
    palette?.addItem({ command: CommandIds.doctor, category: trans.__('GPU') });
  }
};
