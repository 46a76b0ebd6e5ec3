import { Signal, type ISignal } from '@lumino/signaling';

import { cellById, hasNewerReport, idOf, includesRun, isEdited, reportedRuns } from './journal';
import type { JournalModel, JournalNotebook, JournalSource } from './journalModel';
import type { CellModel } from './reportReader';
import type { JournalRun } from '../../wire/wire';

/** An open notebook to which a card can be added. */
export interface CardNotebook extends JournalNotebook {
  /** Return what is known of a cell of the notebook. */
  cellState(cellId: string): CellState;
  /** Add an output with a card to a cell, in place of a live chart that the cell's run has left. */
  addCard(cellId: string, data: Readonly<Record<string, unknown>>): void;
  /** Activate the notebook, scroll to a cell and select it. */
  reveal(cellId: string): void;
}

/** What is known of a cell beyond its source and its outputs. */
export interface CellState {
  /** Whether the cell is running, or waits for its turn. */
  readonly isRunning: boolean;
  readonly executionCount: number | null;
  /** When the kernel started the cell last while this page was open, in epoch seconds; null if it did not. */
  readonly started: number | null;
}

/** Why the user is asked before a card is put under a cell. */
export type Doubt = 'edited' | 'run-again' | 'edited-and-run-again';

/** What has become of a card. `present`: the notebook has it already. `pending`: it is being put there. */
export type Placement =
  | { readonly kind: 'placed' | 'present' | 'no-cell' | 'running' | 'canceled' | 'pending' }
  | { readonly kind: 'failed'; readonly reason: string | null };

/** Puts cards of the journal under their cells. */
export class CardPlacer {
  private readonly pending = new Set<string>();
  private readonly changes = new Signal<this, void>(this);

  /** `confirm` asks the user whether to put a card under a cell that has changed since. */
  constructor(
    private readonly source: Pick<JournalSource, 'card'>,
    private readonly journal: Pick<JournalModel, 'isRunning'>,
    private readonly confirm: (run: JournalRun, doubt: Doubt) => Promise<boolean>
  ) {}

  /** Emitted when `isPending` has changed. */
  get changed(): ISignal<this, void> {
    return this.changes;
  }

  /** Return whether the card of a run is being put under its cell. */
  isPending(id: string): boolean {
    return this.pending.has(id);
  }

  /** Put the card of a run under its cell. Existing outputs stay, apart from the live chart of the run. */
  async place(run: JournalRun, notebook: CardNotebook): Promise<Placement> {
    const id = idOf(run);
    if (this.pending.has(id)) {
      return { kind: 'pending' };
    }
    this.pending.add(id);
    this.changes.emit();
    try {
      return await this.tryToPlace(run, notebook);
    } finally {
      this.pending.delete(id);
      this.changes.emit();
    }
  }

  private async tryToPlace(run: JournalRun, notebook: CardNotebook): Promise<Placement> {
    const obstacle = this.obstacleOf(run, notebook);
    if (obstacle !== null) {
      return obstacle;
    }
    const result = await this.source.card(run.id);
    if (result.kind !== 'ok') {
      return { kind: 'failed', reason: result.reason };
    }
    const { data } = result.value;
    const cell = cellById(notebook.cells, run.cell);
    if (data === null) {
      return { kind: 'failed', reason: null };
    }
    const doubt = cell === undefined ? null : doubtOf(run, cell, notebook);
    if (doubt !== null && !(await this.confirm(run, doubt))) {
      return { kind: 'canceled' };
    }
    // Meanwhile, the user may have run or deleted the cell, and the card may have arrived by another page.
    const late = this.obstacleOf(run, notebook);
    if (late !== null || cell === undefined) {
      return late ?? { kind: 'no-cell' };
    }
    notebook.addCard(cell.id, data);
    return { kind: 'placed' };
  }

  /** Return why a card can't be put under its cell; null if it can. */
  private obstacleOf(run: JournalRun, notebook: CardNotebook): Placement | null {
    const cell = cellById(notebook.cells, run.cell);
    const reported = new Set(reportedRuns(notebook.cells ?? []).map(({ id }) => id));
    if (includesRun(reported, run)) {
      return { kind: 'present' };
    }
    if (cell?.outputs === undefined) {
      return { kind: 'no-cell' };
    }
    return notebook.cellState(cell.id).isRunning || this.journal.isRunning(notebook, cell.id)
      ? { kind: 'running' }
      : null;
  }
}

/** Return what has happened to a cell since its run; null if nothing has. */
function doubtOf(run: JournalRun, cell: CellModel, notebook: CardNotebook): Doubt | null {
  const { executionCount, started } = notebook.cellState(cell.id);
  // A lower count may be that of an earlier run, with which the file was saved.
  const isRunAgain =
    (executionCount ?? 0) > (run.execution_count ?? Infinity) ||
    (started ?? 0) > run.started ||
    hasNewerReport(run, cell);
  if (isEdited(run, cell)) {
    return isRunAgain ? 'edited-and-run-again' : 'edited';
  }
  return isRunAgain ? 'run-again' : null;
}
