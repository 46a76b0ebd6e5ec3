import type { JupyterFrontEnd } from '@jupyterlab/application';
import { type Cell, CodeCell } from '@jupyterlab/cells';
import { PathExt } from '@jupyterlab/coreutils';
import {
  NotebookActions,
  type INotebookTracker,
  type Notebook,
  type NotebookPanel
} from '@jupyterlab/notebook';
import type { Kernel as JupyterKernel } from '@jupyterlab/services';

import type { CellRuns } from './cellRuns';
import { MAX_REPORTS, reportIn, type Outputs } from './reportReader';
import type { Clock } from '../clock';
import type { ActivityChange, Execution, IKernelActivities, KernelActivity } from '../kernel/kernelActivity';

const MAX_SCROLL_ATTEMPTS = 5;

interface NotebookCell {
  readonly panel: NotebookPanel;
  readonly cellId: string;
}

/** Passes the active notebook to `CellRuns`, and which of the notebooks' cells are executed. */
export class CellTracker {
  private panel: NotebookPanel | null = null;
  /** The cells that were executed. */
  private readonly cells = new WeakMap<Execution, NotebookCell>();

  constructor(
    private readonly tracker: INotebookTracker,
    private readonly shell: JupyterFrontEnd.IShell,
    private readonly runs: CellRuns,
    private readonly activities: IKernelActivities,
    private readonly clock: Clock
  ) {
    activities.follow(tracker, (activity, panel) => {
      activity.changed.connect((_, change) => {
        this.onActivityChanged(panel, activity, change);
      });
    });
    tracker.currentChanged.connect(this.onCurrentChanged, this);
    this.onCurrentChanged();
  }

  private onCurrentChanged(): void {
    const panel = this.tracker.currentWidget;
    if (panel !== this.panel) {
      this.panel?.content.modelChanged.disconnect(this.update, this);
      this.panel?.sessionContext.kernelChanged.disconnect(this.update, this);
      this.panel = panel;
      panel?.content.modelChanged.connect(this.update, this);
      panel?.sessionContext.kernelChanged.connect(this.update, this);
    }
    this.update();
  }

  private update(): void {
    const { panel } = this;
    if (panel === null || panel.isDisposed) {
      this.runs.setNotebook(null);
      return;
    }
    const connection = panel.sessionContext.session?.kernel;
    this.runs.setNotebook({
      key: panel,
      activity: connection ? this.activities.of(connection) : null,
      cellOf: execution => {
        const cell = this.cells.get(execution);
        return cell?.panel === panel ? cell.cellId : null;
      },
      models: panel.content.model?.cells ?? null,
      reveal: cellId => {
        void revealCell(this.shell, panel, cellId);
      },
      run: code => {
        insertBelow(panel.content, code);
        void NotebookActions.run(panel.content, panel.sessionContext);
      }
    });
  }

  private onActivityChanged(panel: NotebookPanel, activity: KernelActivity, change: ActivityChange): void {
    if (change.kind === 'started' && !panel.isDisposed) {
      const cell = panel.content.widgets.find(
        widget =>
          widget instanceof CodeCell && futureOf(widget)?.msg.header.msg_id === change.execution.request
      );
      if (cell !== undefined) {
        this.cells.set(change.execution, { panel, cellId: cell.model.id });
      }
    }
    const cell = 'execution' in change ? this.cells.get(change.execution) : undefined;
    if (cell?.panel === panel || change.kind === 'process-ended') {
      this.runs.executed.emit({ notebook: panel, activity });
    }
    if (cell?.panel === panel && change.kind === 'ended' && change.outcome !== 'lost') {
      this.emitFinished(cell, change.execution, change.outcome === 'died');
    }
  }

  private emitFinished(
    { panel, cellId }: NotebookCell,
    { executionCount, started, received }: Execution,
    died: boolean
  ): void {
    this.runs.finished.emit({
      notebook: PathExt.basename(panel.context.localPath),
      executionCount,
      started,
      seconds: (this.clock.now() - received) / 1000,
      died,
      outputs: () => {
        const widget = panel.content.widgets.find(({ model }) => model.id === cellId);
        return widget instanceof CodeCell ? outcomesIn(widget.model.outputs) : [];
      },
      reveal: () => {
        void revealCell(this.shell, panel, cellId);
      }
    });
  }
}

/** Activate a notebook, scroll to a cell and select it. */
export async function revealCell(
  shell: JupyterFrontEnd.IShell,
  panel: NotebookPanel,
  cellId: string
): Promise<void> {
  const notebook = panel.content;
  const index = notebook.widgets.findIndex(({ model }) => model.id === cellId);
  const cell = notebook.widgets[index];
  if (cell === undefined || panel.isDisposed) {
    return; // The cell was deleted a moment ago.
  }
  const focused = document.activeElement;
  NotebookActions.expandParent(cell, notebook);
  notebook.mode = 'command';
  notebook.deselectAll();
  notebook.activeCellIndex = index;
  shell.activateById(panel.id);
  // A windowed notebook has no layout for distant cells, so it scrolls to an estimated position. The
  // scrolling ends early if something else scrolls at the same time, as the notebook does when the active
  // cell changes. Therefore, repeat the call until the cell is rendered, or the user goes to another cell.
  const wanted = (): boolean => notebook.isAttached && notebook.activeCell === cell;
  // The active cell may be in the document without being displayed.
  const rendered = (): boolean => cell.node.getClientRects().length > 0;
  for (let attempt = 0; attempt < MAX_SCROLL_ATTEMPTS && wanted() && !rendered(); attempt++) {
    await notebook.scrollToItem(index, 'smart').catch(() => undefined);
  }
  if (!wanted()) {
    return;
  }
  scrollIntoView(cell, notebook);
  // This must follow scrolling: a cell without layout cannot be focused.
  if (document.activeElement === focused || document.activeElement === document.body) {
    notebook.activate();
  }
}

/** Insert a code cell with this code below the active one, and select it. */
export function insertBelow(notebook: Notebook, code: string): void {
  NotebookActions.insertBelow(notebook);
  if (notebook.activeCell?.model.type !== 'code') {
    NotebookActions.changeCellType(notebook, 'code'); // The user's default cell type is another one.
  }
  notebook.activeCell?.model.sharedModel.setSource(code);
}

/** Return the errors and the last reports in a cell's outputs, in the notebook format. */
function outcomesIn(outputs: Outputs): readonly object[] {
  const found: object[] = [];
  for (let index = outputs.length; index-- > 0 && found.length < MAX_REPORTS;) {
    const output = outputs.get(index);
    if (output.type === 'error' || reportIn(output) !== undefined) {
      found.push(output.toJSON());
    }
  }
  return found;
}

/**
 * Return the future of a cell's execution; null if the cell was not run. JupyterLab's type does not include
 * null.
 */
function futureOf(cell: CodeCell): JupyterKernel.IShellFuture | null {
  return cell.outputArea.future as JupyterKernel.IShellFuture | null;
}

/** Scroll until the whole cell is visible, or its start if it is taller than the notebook. */
function scrollIntoView(cell: Cell, notebook: Notebook): void {
  const visible = notebook.node.getBoundingClientRect();
  const { height, top, bottom } = cell.node.getBoundingClientRect();
  if (top < visible.top || bottom > visible.bottom) {
    cell.node.scrollIntoView({ block: height > visible.height ? 'start' : 'center' });
  }
}
