import type { JupyterFrontEnd } from '@jupyterlab/application';
import { type Cell, CodeCell, type ICodeCellModel } from '@jupyterlab/cells';
import { PathExt } from '@jupyterlab/coreutils';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';

import type { CardNotebook, CellState } from './cardPlacer';
import { deadChartIn } from './journal';
import type { revealCell } from './cellTracker';
import { runsOf, type JournalModel, type JournalNotebooks } from './journalModel';
import type { Execution, IKernelActivities, KernelActivity, Phase } from '../kernel/kernelActivity';
import type { JournalRun } from '../../wire/wire';

/** Marks an output as one of gpuwidget, as the kernel does. */
const OUTPUT_METADATA = { gpuwidget: true };
/** In these phases, a kernel runs no cell. */
const ENDED: readonly Phase[] = ['idle', 'dead'];
/** Scrolls to a cell and selects it. */
export type RevealCell = typeof revealCell;

/** The notebooks that are open in this page, as JupyterLab has them. */
export class OpenNotebooks implements JournalNotebooks {
  /** When this page has seen cells start, by the clock of the kernel's machine; keyed by the cell's id. */
  private readonly starts = new WeakMap<NotebookPanel, Map<string, number>>();

  constructor(
    private readonly tracker: INotebookTracker | null,
    private readonly app: Pick<JupyterFrontEnd, 'shell' | 'commands'>,
    private readonly activities: IKernelActivities,
    private readonly revealCell: RevealCell
  ) {}

  get all(): readonly CardNotebook[] {
    const found: CardNotebook[] = [];
    this.tracker?.forEach(panel => {
      if (!panel.isDisposed) {
        found.push(this.notebookOf(panel));
      }
    });
    return found;
  }

  get active(): CardNotebook | null {
    const panel = this.tracker?.currentWidget ?? null;
    return panel === null || panel.isDisposed ? null : this.notebookOf(panel);
  }

  /** Tell `model` what happens in the notebooks, from now on. */
  connect(model: JournalModel): void {
    const { tracker } = this;
    if (tracker === null) {
      return;
    }
    const onNotebook = (): void => {
      model.update();
      model.refresh();
    };
    const follow = (panel: NotebookPanel): void => {
      panel.content.modelChanged.connect(onNotebook);
      panel.sessionContext.kernelChanged.connect(onNotebook);
      let [isConnected, wasLost] = [false, false];
      panel.sessionContext.connectionStatusChanged.connect((_, status) => {
        wasLost ||= isConnected;
        isConnected = status === 'connected';
        if (isConnected && wasLost) {
          wasLost = false;
          model.reconnect();
        }
      });
      panel.context.pathChanged.connect(onNotebook);
      panel.context.saveState.connect((_, state) => {
        // A disposed panel still gets the signals of a document that is open in another one.
        if (state.startsWith('completed') && !panel.isDisposed) {
          model.onSaved(this.notebookOf(panel));
        }
      });
      void panel.context.ready.then(onNotebook);
    };
    tracker.currentChanged.connect(onNotebook);
    tracker.widgetAdded.connect((_, panel) => {
      follow(panel);
    });
    tracker.forEach(follow);
    this.activities.follow(tracker, (activity, panel) => {
      activity.changed.connect((_, change) => {
        if (panel.isDisposed) {
          return;
        }
        if (change.kind === 'started') {
          this.onStarted(panel, change.execution);
        }
        model.onActivity(this.notebookOf(panel), change);
      });
    });
  }

  /** Return the open notebook of a run; undefined if it is not open. */
  find(run: JournalRun): CardNotebook | undefined {
    const own = this.all.filter(notebook => runsOf(notebook, [run]).length > 0);
    return own.find(notebook => runsOf(notebook, [run])[0]?.hasCell) ?? own[0];
  }

  /** Open the notebook of a run. Return undefined if it opens in another page, as in Notebook 7. */
  async open(run: JournalRun): Promise<CardNotebook | undefined> {
    await this.app.commands.execute('docmanager:open', { path: run.path, factory: 'Notebook' });
    const panel = this.tracker?.find(({ context }) => context.localPath === run.path);
    await panel?.context.ready;
    await panel?.revealed;
    return panel === undefined || panel.isDisposed ? undefined : this.notebookOf(panel);
  }

  private notebookOf(panel: NotebookPanel): CardNotebook {
    const { content, context, sessionContext } = panel;
    const connection = sessionContext.session?.kernel ?? null;
    const activity = connection && this.activities.of(connection);
    return {
      key: panel,
      path: context.localPath,
      name: PathExt.basename(context.localPath),
      kernel: connection?.id ?? null,
      activity,
      runsOwnCell: (activity?.executions ?? []).some(each => ownCell(panel, each) !== undefined),
      cells: context.isReady ? (content.model?.cells ?? null) : null,
      isSaved: content.model?.dirty === false,
      cellState: cellId => this.cellState(panel, cellId, activity),
      addCard: (cellId, data) => {
        for (const cell of content.model?.cells ?? []) {
          if (cell.id === cellId && cell.type === 'code') {
            const { outputs } = cell as ICodeCellModel;
            const output = { output_type: 'display_data', data, metadata: OUTPUT_METADATA } as const;
            const chart = deadChartIn(outputs);
            if (chart === null) {
              outputs.add(output as Parameters<typeof outputs.add>[0]);
            } else {
              outputs.set(chart, output as Parameters<typeof outputs.set>[1]);
            }
          }
        }
      },
      reveal: cellId => {
        void this.revealCell(this.app.shell, panel, cellId);
      }
    };
  }

  private cellState(panel: NotebookPanel, cellId: string, activity: KernelActivity | null): CellState {
    const cell = panel.content.widgets.find(({ model }) => model.id === cellId);
    if (!(cell instanceof CodeCell)) {
      return { isRunning: false, executionCount: null, started: null };
    }
    const request = requestOf(cell);
    // JupyterLab before 4.3 has no such state of cells. A later one keeps it if the message about the end was lost.
    const { executionState } = cell.model as { executionState?: string };
    const isQueued = executionState === 'running' && !ENDED.includes(activity?.phase ?? 'dead');
    return {
      isRunning: isQueued || (activity?.executions ?? []).some(each => each.request === request),
      executionCount: cell.model.executionCount,
      started: this.starts.get(panel)?.get(cellId) ?? null
    };
  }

  private onStarted(panel: NotebookPanel, execution: Execution): void {
    const cell = ownCell(panel, execution);
    if (cell !== undefined) {
      const starts = this.starts.get(panel) ?? new Map<string, number>();
      this.starts.set(panel, starts.set(cell.model.id, execution.started));
    }
  }
}

/** Return the cell of a notebook that is executed; undefined if this page has not started the execution. */
function ownCell({ content }: NotebookPanel, { request }: Execution): Cell | undefined {
  return content.widgets.find(widget => widget instanceof CodeCell && requestOf(widget) === request);
}

/** Return the id of the request by which this page has run a cell last; undefined if it has not. */
function requestOf(cell: CodeCell): string | undefined {
  // JupyterLab's type does not include null.
  const future = cell.outputArea.future as CodeCell['outputArea']['future'] | null;
  return future?.msg.header.msg_id;
}
