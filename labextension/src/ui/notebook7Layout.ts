import type { JupyterFrontEnd } from '@jupyterlab/application';
import { SplitPanel, TabPanel, type Widget } from '@lumino/widgets';

/**
 * If a widget below the notebook has less than this fraction of the height, it is enlarged to `DOWN_SHARE`.
 */
const MIN_DOWN_SHARE = 0.3;
const DOWN_SHARE = 0.5;

/**
 * Show a widget of a sidebar and activate it. In Notebook 7.2, `activateById` hides the widget if it is
 * already visible.
 */
export function showInSidebar(shell: JupyterFrontEnd.IShell, widget: Widget): void {
  if (widget.isVisible) {
    widget.activate();
  } else {
    shell.activateById(widget.id);
  }
}

/** Add a widget below the notebook, because Notebook 7 allows only the notebook in its main area. */
export function addBelow(shell: JupyterFrontEnd.IShell, widget: Widget): void {
  shell.add(widget, 'down', { type: 'GPUs' });
  enlarge(widget);
}

/** Select the tab of a widget below the notebook, which `activateById` of Notebook 7 does not. */
export function selectTab(widget: Widget): void {
  const tabs = widget.parent?.parent;
  if (tabs instanceof TabPanel) {
    tabs.currentWidget = widget;
  }
}

/**
 * Enlarge a widget in the area below the notebook. Notebook 7 does not give a new widget enough height there.
 */
function enlarge(widget: Widget): void {
  for (let child = widget; child.parent !== null; child = child.parent) {
    const panel = child.parent;
    if (!(panel instanceof SplitPanel) || panel.orientation !== 'vertical') {
      continue;
    }
    const index = panel.widgets.indexOf(child);
    const sizes = panel.relativeSizes();
    const share = sizes[index] ?? 0;
    if (share < MIN_DOWN_SHARE) {
      const scale = (1 - DOWN_SHARE) / (1 - share);
      panel.setRelativeSizes(sizes.map((size, at) => (at === index ? DOWN_SHARE : size * scale)));
    }
    return;
  }
}
