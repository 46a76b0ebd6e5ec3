import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IRunningSessionManagers, RunningSessions } from '@jupyterlab/running';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { consoleIcon, kernelIcon, notebookIcon, terminalIcon, type LabIcon } from '@jupyterlab/ui-components';
import { TabPanel, type Widget } from '@lumino/widgets';

import type { ActionTarget, HolderKind } from '../model/memory/holders';
import { RunningHolders } from '../views/memory/runningHolders';
import { DOMAIN, HolderCommandIds, IHolderActions, IMonitor } from '../tokens';

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
      confirmShutDown: (kernel: string) => {
        void app.commands.execute(HolderCommandIds.confirmShutDown, { kernel });
      },
      shutDownNow: (kernel: string) => {
        holders.shutDownNow(kernel);
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
      const panel = runningPanel(app.shell);
      if (panel !== null) {
        observer.observe(panel.node);
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

/** Return the Running panel: in a sidebar of JupyterLab, or in a tab of Notebook's page with the files. */
function runningPanel(shell: JupyterFrontEnd.IShell): Widget | null {
  const widgets = ['left', 'right', 'main'].flatMap(area => [...shell.widgets(area)]);
  const tabs = widgets.flatMap(widget => (widget instanceof TabPanel ? widget.widgets : []));
  return [...widgets, ...tabs].find(widget => widget instanceof RunningSessions) ?? null;
}
