import type { ILabShell, JupyterFrontEnd } from '@jupyterlab/application';
import { MainAreaWidget, type WidgetTracker } from '@jupyterlab/apputils';
import type { ISignal } from '@lumino/signaling';
import type { Widget } from '@lumino/widgets';

import { addBelow, selectTab } from './notebook7Layout';

/** The contents of a widget in the main area, with a state that is saved with the workspace. */
export interface MainAreaContent extends Widget {
  readonly stateChanged: ISignal<Widget, void>;
}

/** Where a widget is opened. */
export interface MainAreaPlace<Content extends MainAreaContent> {
  readonly shell: JupyterFrontEnd.IShell;
  /** Null in Notebook 7. */
  readonly labShell: ILabShell | null;
  readonly tracker: WidgetTracker<MainAreaWidget<Content>>;
}

/** Add a widget to the main area, or below the notebook in Notebook 7, and save its state when it changes. */
export function openInMainArea<Content extends MainAreaContent>(
  { shell, labShell, tracker }: MainAreaPlace<Content>,
  id: string,
  content: Content
): void {
  const widget = new MainAreaWidget({ content });
  widget.id = id;
  // Hide JupyterLab's toolbar. The content has a separate one, whose dropdowns must be inside the content.
  widget.toolbar.hide();
  content.stateChanged.connect(() => {
    void tracker.save(widget);
  });
  if (labShell === null) {
    addBelow(shell, widget);
  } else {
    shell.add(widget, 'main', { type: 'GPUs' });
  }
  void tracker.add(widget);
}

/** Show the widget with this id and focus it. */
export function activateInMainArea<Content extends MainAreaContent>(
  { shell, labShell, tracker }: MainAreaPlace<Content>,
  id: string
): void {
  const widget = tracker.find(each => each.id === id);
  if (labShell === null && widget !== undefined) {
    selectTab(widget);
  }
  shell.activateById(id);
}
