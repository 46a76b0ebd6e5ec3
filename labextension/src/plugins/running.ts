import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IRunningSessionManagers } from '@jupyterlab/running';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { consoleIcon, kernelIcon, notebookIcon, terminalIcon, type LabIcon } from '@jupyterlab/ui-components';

import type { ActionTarget, HolderKind } from '../model/memory/holders';
import { RunningHolders } from '../views/memory/runningHolders';
import { DOMAIN, HolderCommandIds, IHolderActions, IMonitor } from '../tokens';

/** The class of the Running panel in JupyterLab and on Notebook's page with the files. */
const RUNNING_PANEL = '.jp-RunningSessions';

const ICONS: Readonly<Partial<Record<HolderKind, LabIcon>>> = {
  notebook: notebookIcon,
  console: consoleIcon,
  terminal: terminalIcon
};

/** The section of JupyterLab's Running panel with the holders of GPU memory. */
export const running: JupyterFrontEndPlugin<void> = {
  id: 'jupyterlab-gpuwidget:running',
  description: 'The holders of GPU memory in the Running panel.',
  autoStart: true,
  requires: [IMonitor, IHolderActions],
  optional: [IRunningSessionManagers, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    monitor: IMonitor,
    holders: IHolderActions,
    managers: IRunningSessionManagers | null,
    translator: ITranslator | null
  ) => {
    if (managers === null) {
      return; // A page without a Running panel, such as a notebook in Notebook 7.
    }
    const actions = {
      goTo: (target: ActionTarget) => {
        holders.goTo(target);
      },
      shutDown: (kernel: string) => {
        void app.commands.execute(HolderCommandIds.shutDown, { kernel });
      },
      shutDownNow: (kernel: string) => {
        holders.shutDown(kernel);
      }
    };
    // Samples are needed only while the Running panel is visible. JupyterLab adds the panel to the page after
    // this plugin is activated, and lists the section whenever it shows the panel.
    let visible = false;
    const observer = new IntersectionObserver(entries => {
      visible = entries.at(-1)?.isIntersecting ?? false;
      updateVisibility();
    });
    const observe = (): void => {
      const panel = document.querySelector(RUNNING_PANEL);
      if (panel !== null) {
        observer.observe(panel);
      }
    };
    const section = new RunningHolders(
      (translator ?? nullTranslator).load(DOMAIN),
      monitor,
      actions,
      kind => ICONS[kind] ?? kernelIcon,
      observe
    );
    const updateVisibility = (): void => {
      monitor.setBackground(section, visible && document.visibilityState === 'visible');
    };
    managers.add(section);
    document.addEventListener('visibilitychange', updateVisibility);
    monitor.changed.connect(() => {
      if (visible) {
        section.update();
      }
    });
    void app.restored.then(observe);
  }
};
