import type { JupyterFrontEnd } from '@jupyterlab/application';
import { type Cell, CodeCell } from '@jupyterlab/cells';
import { PathExt } from '@jupyterlab/coreutils';
import {
  NotebookActions,
  type INotebookTracker,
  type Notebook,
  type NotebookPanel
} from '@jupyterlab/notebook';
import type { Kernel as JupyterKernel, KernelMessage } from '@jupyterlab/services';

import type { CellRuns, RunningCells, StartedCell } from './cellRuns';
import { MAX_REPORTS, reportIn, type Outputs } from './reportReader';
import type { Clock } from '../clock';
import { releaseClosedComms } from '../kernel/closedComms';

const MAX_SCROLL_ATTEMPTS = 5;

/** Passes the active notebook to `CellRuns`, and the running cells of all notebooks to `RunningCells`. */
export class CellTracker {
  private panel: NotebookPanel | null = null;

  constructor(
    private readonly tracker: INotebookTracker,
    private readonly shell: JupyterFrontEnd.IShell,
    private readonly runs: CellRuns,
    private readonly runningCells: RunningCells,
    private readonly clock: Clock
  ) {
    tracker.currentChanged.connect(this.onCurrentChanged, this);
    // Connect to all notebooks: a cell's start is published only once, and the notebook may become active
    // later.
    tracker.widgetAdded.connect((_, panel) => {
      this.connect(panel);
    });
    tracker.forEach(panel => {
      this.connect(panel);
    });
    this.onCurrentChanged();
  }

  private onCurrentChanged(): void {
    const panel = this.tracker.currentWidget;
    if (panel !== this.panel) {
      this.panel?.content.modelChanged.disconnect(this.update, this);
      this.panel = panel;
      panel?.content.modelChanged.connect(this.update, this);
    }
    this.update();
  }

  private update(): void {
    const { panel } = this;
    if (panel === null || panel.isDisposed) {
      this.runs.setNotebook(null);
      return;
    }
    this.runs.setNotebook({
      key: panel,
      models: panel.content.model?.cells ?? null,
      reveal: cellId => {
        void this.reveal(panel, cellId);
      },
      run: code => {
        insertBelow(panel.content, code);
        void NotebookActions.run(panel.content, panel.sessionContext);
      }
    });
  }

  private async reveal(panel: NotebookPanel, cellId: string): Promise<void> {
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
    this.shell.activateById(panel.id);
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

  private connect(panel: NotebookPanel): void {
    const { sessionContext } = panel;
    releaseClosedComms(sessionContext);
    sessionContext.iopubMessage.connect((_, message) => {
      this.onIopubMessage(panel, message);
    });
    sessionContext.kernelChanged.connect(() => {
      this.runningCells.end(panel, null);
      if (panel === this.panel) {
        this.runs.clockSkew.resetKernel();
      }
    });
    sessionContext.statusChanged.connect((_, status) => {
      if (status === 'restarting' || status === 'autorestarting' || status === 'dead') {
        const cell = this.runningCells.end(panel, null);
        if (status !== 'restarting') {
          this.emitFinished(panel, cell, true);
        }
      }
    });
  }

  private emitFinished(panel: NotebookPanel, cell: StartedCell | null, died: boolean): void {
    if (cell === null) {
      return;
    }
    const { cellId, executionCount, started, received } = cell;
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
        void this.reveal(panel, cellId);
      }
    });
  }

  private onIopubMessage(panel: NotebookPanel, message: KernelMessage.IMessage): void {
    const { msg_type: type, date } = message.header;
    const request = 'msg_id' in message.parent_header ? message.parent_header.msg_id : null;
    if (type === 'execute_input' && request !== null) {
      const cell = panel.content.widgets.find(
        widget => widget instanceof CodeCell && futureOf(widget)?.msg.header.msg_id === request
      );
      if (cell !== undefined) {
        const { execution_count: executionCount } = message.content as { execution_count: number | null };
        this.runningCells.begin(panel, request, {
          cellId: cell.model.id,
          executionCount,
          started: Date.parse(date) / 1000,
          received: this.clock.now()
        });
      }
    } else if (type === 'status') {
      const { execution_state: state } = message.content as { execution_state: string };
      if (state === 'idle' && request !== null) {
        this.emitFinished(panel, this.runningCells.end(panel, request), false);
      }
      if (panel === this.panel) {
        this.runs.clockSkew.observeKernel(date, Date.now() / 1000);
      }
    }
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
