import type { JupyterFrontEnd } from '@jupyterlab/application';
import { type Cell, CodeCell } from '@jupyterlab/cells';
import {
  NotebookActions,
  type INotebookTracker,
  type Notebook,
  type NotebookPanel
} from '@jupyterlab/notebook';
import type { Kernel as JupyterKernel, KernelMessage } from '@jupyterlab/services';

import type { Cells } from './cells';
import type { Runs } from './runs';
import type { Clock } from '../clock';

/** So often a notebook is asked to scroll to a cell. */
const SCROLL_TRIES = 5;

/** Tells `cells` which notebook is in front, and `runs` what the kernels of all notebooks begin and end. */
export class NotebookCells {
  private panel: NotebookPanel | null = null;

  constructor(
    private readonly tracker: INotebookTracker,
    private readonly shell: JupyterFrontEnd.IShell,
    private readonly cells: Cells,
    private readonly runs: Runs,
    private readonly timers: Clock
  ) {
    tracker.currentChanged.connect(this.follow, this);
    // All of them: a cell's beginning is heard once, and its notebook may come to the front later.
    tracker.widgetAdded.connect((_, panel) => {
      this.listen(panel);
    });
    tracker.forEach(panel => {
      this.listen(panel);
    });
    this.follow();
  }

  private follow(): void {
    const panel = this.tracker.currentWidget;
    if (panel !== this.panel) {
      this.panel?.content.modelChanged.disconnect(this.show, this);
      this.panel = panel;
      panel?.content.modelChanged.connect(this.show, this);
    }
    this.show();
  }

  private show(): void {
    const { panel } = this;
    if (panel === null || panel.isDisposed) {
      this.cells.show(null);
      return;
    }
    this.cells.show({
      key: panel,
      models: panel.content.model?.cells ?? null,
      reveal: cellId => {
        void this.reveal(panel, cellId);
      }
    });
  }

  private async reveal(panel: NotebookPanel, cellId: string): Promise<void> {
    const notebook = panel.content;
    const index = notebook.widgets.findIndex(({ model }) => model.id === cellId);
    const cell = notebook.widgets[index];
    if (cell === undefined || panel.isDisposed) {
      return; // Deleted in this moment.
    }
    NotebookActions.expandParent(cell, notebook);
    notebook.mode = 'command';
    notebook.deselectAll();
    notebook.activeCellIndex = index;
    this.shell.activateById(panel.id);
    // A windowed notebook has not laid out what is far away: it scrolls to where it guesses the cell, and gives
    // up where anything else scrolls meanwhile, such as its own way to the active cell.
    for (let tries = 0; tries < SCROLL_TRIES && notebook.isAttached && !cell.node.isConnected; tries++) {
      await notebook.scrollToItem(index, 'smart').catch(() => undefined);
    }
    showWhole(cell, notebook);
    if (panel.isAttached && !panel.node.contains(document.activeElement)) {
      notebook.activate(); // Only what is laid out can have the keyboard.
    }
  }

  private listen(panel: NotebookPanel): void {
    const { sessionContext } = panel;
    sessionContext.iopubMessage.connect((_, message) => {
      this.heard(panel, message);
    });
    sessionContext.kernelChanged.connect(() => {
      this.runs.ended(panel, null);
      if (panel === this.panel) {
        this.cells.clocks.forgetKernel();
      }
    });
    sessionContext.statusChanged.connect((_, status) => {
      if (status === 'restarting' || status === 'autorestarting' || status === 'dead') {
        this.runs.ended(panel, null);
      }
    });
  }

  private heard(panel: NotebookPanel, message: KernelMessage.IMessage): void {
    const { msg_type: type, date } = message.header;
    const asked = 'msg_id' in message.parent_header ? message.parent_header.msg_id : null;
    if (type === 'execute_input' && asked !== null) {
      const cell = panel.content.widgets.find(
        widget => widget instanceof CodeCell && futureOf(widget)?.msg.header.msg_id === asked
      );
      if (cell !== undefined) {
        const { execution_count: executionCount } = message.content as { execution_count: number | null };
        this.runs.began(panel, asked, {
          cellId: cell.model.id,
          executionCount,
          started: Date.parse(date) / 1000,
          heard: this.timers.now()
        });
      }
    } else if (type === 'status') {
      const { execution_state: state } = message.content as { execution_state: string };
      if (state === 'idle' && asked !== null) {
        this.runs.ended(panel, asked);
      }
      if (panel === this.panel) {
        this.cells.clocks.heardKernel(date, Date.now() / 1000);
      }
    }
  }
}

/** What a cell waits for; its type forgets that a cell that has not run waits for nothing. */
function futureOf(cell: CodeCell): JupyterKernel.IShellFuture | null {
  return cell.outputArea.future as JupyterKernel.IShellFuture | null;
}

/** Scroll until all of `cell` is seen, or its beginning, well away from the edges; not at all if it is already. */
function showWhole(cell: Cell, notebook: Notebook): void {
  const shown = notebook.node.getBoundingClientRect();
  const { height, top, bottom } = cell.node.getBoundingClientRect();
  if (top < shown.top || bottom > shown.bottom) {
    cell.node.scrollIntoView({ block: height > shown.height ? 'start' : 'center' });
  }
}
