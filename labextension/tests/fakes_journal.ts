/** Stand-ins for the journal of runs, and for the notebooks whose runs it has. */

import { Signal } from '@lumino/signaling';

import type { CardNotebook, CellState } from '../src/model/cells/cardPlacer';
import { crc32 } from '../src/model/cells/journal';
import { JournalModel, type JournalSource, type RunNews } from '../src/model/cells/journalModel';
import { KnownRuns } from '../src/model/cells/knownRuns';
import { REPORT_MIME } from '../src/model/cells/report';
import type { Phase } from '../src/model/kernel/kernelActivity';
import type { FailureKind, Result } from '../src/model/server/result';
import type { JournalCard, JournalRun, JournalRuns } from '../src/wire/wire';
import { FakeClock, GIB } from './fakes';
import { codeCell, FakeCells, FakeOutput, report } from './fakes_cells';

/** The page's clock in epoch seconds at the start of a test, 2026-11-30 at noon in the time zone of the machine. */
export const NOON = new Date(2026, 10, 30, 12).getTime() / 1000;
/** When the run of `journalRun` ended: at 3:12. */
export const ENDED = NOON - (8 * 60 + 48) * 60;
/** The source of the cells that `codeCell` makes. */
export const CODE_OF_CELL_7 = crc32('# cell-7');

/** Return a run of cell 7 of train.ipynb, which took an hour and ended at 3:12. */
export function journalRun(changes: Partial<JournalRun> = {}): JournalRun {
  return {
    id: 'run-7',
    state: 'ended',
    status: 'ok',
    path: 'work/train.ipynb',
    name: 'train.ipynb',
    kernel: 'kernel-1',
    cell: 'cell-7',
    code: CODE_OF_CELL_7,
    execution_count: 7,
    label: null,
    started: ENDED - 3600,
    seconds: 3600,
    peak: 61 * GIB,
    peak_kind: 'torch',
    death: null,
    ...changes
  };
}

/** Return the output that has the card of a run. */
export function cardOf(run: JournalRun): FakeOutput {
  const cell = { started: Math.round(1000 * run.started) / 1000, duration_s: run.seconds };
  return FakeOutput.report(report(run.execution_count, {}, cell));
}

/** A server with a journal, which counts the requests. */
export class FakeSource implements JournalSource {
  list: JournalRun[] = [];
  problem: string | null = null;
  failure: FailureKind | null = null;
  data: JournalCard['data'] = { 'text/plain': 'card', 'text/html': '<b>card</b>', [REPORT_MIME]: {} };
  /** The times of the requests for the list, in milliseconds. */
  readonly asked: number[] = [];
  /** The ids of the runs that were requested. */
  readonly askedCards: string[] = [];
  /** If this is set, a card arrives when the promise resolves. */
  delay: Promise<void> | null = null;

  constructor(private readonly clock: FakeClock) {}

  runs(): Promise<Result<JournalRuns>> {
    this.asked.push(this.clock.now());
    return Promise.resolve(
      this.failure === null
        ? { kind: 'ok', value: { problem: this.problem, runs: [...this.list] } }
        : { kind: this.failure, reason: 'The server does not answer.' }
    );
  }

  async card(id: string): Promise<Result<JournalCard>> {
    this.askedCards.push(id);
    await this.delay;
    const run = this.list.find(each => each.id === id);
    if (this.failure !== null || run === undefined) {
      return { kind: this.failure ?? 'failed', reason: 'The server does not answer.' };
    }
    const gpu = { uuid: 'GPU-0', index: 0, utilization: [10, null, 97], memory_used: [GIB, GIB, 61 * GIB] };
    const data = run.state === 'running' ? null : this.data;
    return { kind: 'ok', value: { run, data, t: [0, 50, 100], gpus: [gpu] } };
  }
}

/** An open notebook with the cells 7 and 8. */
export class FakeJournalNotebook implements CardNotebook {
  readonly key = {};
  path = 'work/train.ipynb';
  name = 'train.ipynb';
  kernel: string | null = 'kernel-1';
  activity: { phase: Phase } = { phase: 'idle' };
  runsOwnCell = false;
  isSaved = false;
  readonly cell7 = codeCell('cell-7');
  cells: FakeCells | null = new FakeCells([this.cell7, codeCell('cell-8')]);
  state: CellState = { isRunning: false, executionCount: 7, started: null };
  readonly revealed: string[] = [];

  cellState(): CellState {
    return this.state;
  }

  addCard(cellId: string, data: Readonly<Record<string, unknown>>): void {
    const cell = this.cells?.models.find(({ id }) => id === cellId);
    (cell as typeof this.cell7).outputs.add(new FakeOutput('display_data', data));
  }

  reveal(cellId: string): void {
    this.revealed.push(cellId);
  }
}

/** A browser's storage. */
export class FakeStorage {
  readonly items = new Map<string, string>();

  getItem(key: string): string | null {
    return this.items.get(key) ?? null;
  }

  setItem(key: string, value: string): void {
    this.items.set(key, value);
  }
}

/** A page with a notebook. Pages with the same storage are tabs of one browser. */
export class FakeJournalPage {
  readonly source: FakeSource;
  readonly notebook = new FakeJournalNotebook();
  readonly open: FakeJournalNotebook[] = [this.notebook];
  readonly known: KnownRuns;
  readonly model: JournalModel;
  readonly news: RunNews[][] = [];
  active: FakeJournalNotebook | null = this.notebook;
  readonly cellsChanged = new Signal<object, void>({});

  constructor(
    readonly clock = new FakeClock(),
    readonly storage = new FakeStorage()
  ) {
    this.source = new FakeSource(clock);
    const now = (): number => NOON + clock.now() / 1000;
    this.known = new KnownRuns(storage, 'runs', now);
    const notebooks = {
      all: this.open,
      get active(): FakeJournalNotebook | null {
        return page.active;
      }
    };
    // eslint-disable-next-line @typescript-eslint/no-this-alias -- the getter above has another `this`
    const page = this;
    this.model = new JournalModel(this.source, notebooks, this.known, clock, now);
    this.model.news.connect((_, news) => this.news.push([...news]));
  }

  /** Request the list, and let the page work for some seconds. */
  async load(seconds = 6): Promise<void> {
    this.model.refresh();
    await this.clock.pass(1000 * seconds);
  }

  /** The ids of the runs that the section offers. */
  get offered(): readonly string[] {
    return this.model.missing.map(({ run }) => run.id);
  }

  /** The ids of the runs in notifications. */
  get announced(): readonly string[] {
    return this.news.flat().map(({ run }) => run.id);
  }

  /** Change what the kernel does. */
  change(phase: Phase): void {
    this.notebook.activity = { phase };
    this.model.onActivity(this.notebook, { kind: 'phase' });
  }
}
