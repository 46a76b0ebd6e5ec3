import './fakes_dom';

import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { Signal } from '@lumino/signaling';

import { CellRuns, type CellRunSources, type NotebookJournal } from '../src/model/cells/cellRuns';
import { ReportReader } from '../src/model/cells/reportReader';
import { PanelState } from '../src/model/panelState';
import { RunTimes } from '../src/views/cards/runTimes';
import { CellsSection } from '../src/views/panel/cellsSection';
import type { CellModel } from '../src/model/cells/reportReader';
import { KernelActivity } from '../src/model/kernel/kernelActivity';
import { FakeClock, kernelState, sample, trans } from './fakes';
import { codeCell, FakeCells, FakeOutput, report } from './fakes_cells';
import { find, press, textOf, texts } from './fakes_dom';
import { CELL, FakeConnection } from './fakes_notebook';
import { mountSection, panelContext, render } from './fakes_panel';

const NOW = Math.floor(Date.now() / 1000);

/** Return a cell with a report of a run that began `ago` seconds ago. */
function cell(count: number, ago = 60, changes: object = {}, run: object = {}): CellModel {
  const started = NOW - ago;
  return codeCell(
    `cell-${String(count)}`,
    FakeOutput.report(report(count, { ...changes }, { started, ...run }))
  );
}

/** The list of cells of one notebook, as the user sees it. */
class Shown {
  readonly clock = new FakeClock();
  readonly panelState = new PanelState(null);
  readonly connection = new FakeConnection();
  readonly revealed: string[] = [];
  /** The code of the cells that the list has run. */
  readonly ran: string[] = [];
  readonly dashboards: unknown[] = [];
  readonly runs: CellRuns;
  readonly section: CellsSection;
  private readonly kernels = {
    changed: new Signal<object, void>({}),
    state: kernelState(),
    view: { silentFor: null }
  };
  private readonly activity: KernelActivity;
  private notebook = {};

  constructor(...cells: CellModel[]) {
    const sources = { model: { sample: sample(NOW) }, kernels: this.kernels } as unknown as CellRunSources;
    this.runs = new CellRuns(sources, new ReportReader(), this.clock);
    this.activity = new KernelActivity(this.connection.real, this.clock);
    this.activity.changed.connect((_, { kind }) => {
      if (kind !== 'phase') {
        this.runs.executed.emit({ notebook: this.notebook, activity: this.activity });
      }
    });
    const commands = {
      execute: (_: string, args: unknown) => Promise.resolve(this.dashboards.push(args))
    };
    const times = new RunTimes(trans, this.runs, commands, false);
    const { runs, panelState } = this;
    this.section = new CellsSection(panelContext({ cells: runs, panelState, times }));
    this.runs.setVisible(this, true);
    mountSection(this.section);
    this.open(new FakeCells(cells));
  }

  /** Open another notebook, whose cells are null before it is loaded. */
  open(models: FakeCells | null): void {
    this.notebook = {};
    this.runs.setNotebook({
      key: this.notebook,
      activity: this.activity,
      cellOf: ({ request }) => request,
      models,
      reveal: cellId => this.revealed.push(cellId),
      run: code => this.ran.push(code)
    });
    render(this.section);
  }

  /** Start a cell, as the kernel of this page does. */
  begin(count: number, ago = 60): void {
    this.connection.begin({ ...CELL, msg_id: `cell-${String(count)}` }, count, NOW - ago);
    render(this.section);
  }

  /** End a cell. */
  end(count: number): void {
    this.connection.publish('idle', { ...CELL, msg_id: `cell-${String(count)}` });
    render(this.section);
  }

  /** End the process of the kernel. */
  restart(): void {
    this.connection.change('restarting');
    render(this.section);
  }

  /** Set what the journal knows of the notebook. */
  setJournal(journal: NotebookJournal | null): void {
    this.runs.setJournal(this.notebook, journal);
    render(this.section);
  }

  get names(): string[] {
    return texts(this.rows, '.jp-gpuwidget-cells-label');
  }

  get rows(): HTMLElement {
    return find(this.section.node, '.jp-gpuwidget-cells-rows');
  }

  row(count: number): HTMLElement {
    return find(this.rows, `[data-cell-id=cell-${String(count)}]`);
  }

  part(name: string): HTMLElement {
    return find(this.section.node, `.jp-gpuwidget-cells-${name}`);
  }

  tick(count: number): HTMLInputElement {
    return find<HTMLInputElement>(this.row(count), 'input');
  }
}

test('the list has each run with its figures, and their sums', () => {
  const shown = new Shown(cell(1), cell(2, 50, {}, { label: 'train' }));
  assert.deepEqual([...shown.rows.children].map(textOf), [
    '[1] | +2.0 | 5.0 | 500 ms | 100 J',
    '[2] train | +2.0 | 5.0 | 500 ms | 100 J'
  ]);
  assert.equal(textOf(shown.part('totals')), '2 runs · 1.0 s · 200 J');
});

test('the list of another notebook has nothing of the last one, before its reports are read', () => {
  const shown = new Shown(cell(1));
  shown.open(null);
  assert.deepEqual(
    [shown.section.node.dataset.open, textOf(shown.part('totals'))],
    ['false', 'none watched yet']
  );
  shown.open(new FakeCells([cell(2)]));
  assert.deepEqual([shown.section.node.dataset.open, shown.names], ['true', ['[2]']]);
  shown.runs.setNotebook(null);
  render(shown.section);
  assert.equal(shown.section.isHidden, true);
});

test('figures that JupyterLab does not trust are marked, and no trusted notebook has the mark', () => {
  const shown = new Shown({ ...cell(1), trusted: false });
  const note = shown.part('untrusted');
  const table = find(shown.section.node, '[role=table]');
  assert.deepEqual(
    [note.hidden, table.getAttribute('aria-describedby'), shown.row(1).dataset.untrusted],
    [false, note.id, 'true']
  );
  assert.equal(textOf(shown.part('totals')), 'Not trusted · 1 run · 500 ms · 100 J');
  assert.match(find(shown.row(1), '.jp-gpuwidget-cells-name').title, /\nNot trusted\n/);
  shown.open(new FakeCells([cell(2)]));
  assert.deepEqual(
    [note.hidden, table.getAttribute('aria-describedby'), shown.row(2).dataset.untrusted],
    [true, null, undefined]
  );
});

test('a run of another day has its day, and a run of today has none', () => {
  const shown = new Shown(cell(1, 0), cell(2, 3 * 24 * 3600));
  const [today = '', earlier = ''] = texts(shown.rows, '.jp-gpuwidget-cells-day');
  assert.equal(today, '');
  assert.match(earlier, /^[A-Z][a-z]{2} \d{1,2}(, \d\d:\d\d)?$|^[A-Z][a-z]{2} \d{1,2}, \d{4}$/);
});

test('reports of another version are counted instead of shown', () => {
  const shown = new Shown(cell(1), cell(2, 60, { schema: 99 }));
  assert.deepEqual(shown.names, ['[1]']);
  assert.equal(textOf(shown.part('notes')), '1 report from another version of gpuwidget is not shown.');
});

test('labels are text, never markup, and a comparison contains no label', () => {
  const label = '<img src=x onerror=alert(1)> {1/0}';
  const shown = new Shown(cell(1, 60, {}, { label }), cell(2, 50));
  for (const [count, ago] of [
    [1, 60],
    [2, 50]
  ] as const) {
    shown.begin(count, ago);
    shown.end(count);
  }
  assert.equal(shown.section.node.querySelector('img'), null);
  assert.equal(shown.names[0], `[1] ${label}`);
  shown.tick(2).click();
  assert.deepEqual(shown.ran, []);
  shown.tick(1).click();
  assert.deepEqual(shown.ran, ['%gpu compare 1 2']);
  assert.deepEqual([shown.tick(1).checked, shown.tick(2).checked], [false, false]);
});

test('only runs of the kernel’s present process can be ticked', () => {
  const shown = new Shown(cell(1), cell(2, 50));
  shown.begin(2, 50);
  shown.end(2);
  assert.deepEqual([shown.tick(1).disabled, shown.tick(2).disabled], [true, false]);
  shown.tick(2).click();
  shown.restart();
  assert.deepEqual([shown.tick(2).disabled, shown.tick(2).checked], [true, false]);
});

test('a click on a header sorts the list, and the focus stays in it', () => {
  const shown = new Shown(
    cell(1, 60, {}, { duration_s: 1 }),
    cell(2, 50, {}, { duration_s: 3 }),
    cell(3, 40, {}, { duration_s: 2 })
  );
  const focused = find(shown.row(1), '.jp-gpuwidget-cells-name');
  focused.focus();
  const [, , , time] = shown.section.node.querySelectorAll<HTMLElement>('[role=columnheader]');
  assert.ok(time);
  find(time, 'button').click();
  render(shown.section);
  assert.deepEqual(shown.names, ['[2]', '[3]', '[1]']);
  assert.equal(time.getAttribute('aria-sort'), 'descending');
  assert.equal(document.activeElement, focused);
  assert.deepEqual(shown.panelState.sort, { column: 'time', descending: true });
});

test('the list is one tab stop, and the arrow keys lead through rows and through the controls of a row', () => {
  const shown = new Shown(cell(1), cell(2, 50));
  const names = [...shown.rows.querySelectorAll<HTMLElement>('.jp-gpuwidget-cells-name')];
  assert.deepEqual(
    names.map(({ tabIndex }) => tabIndex),
    [0, -1]
  );
  names[0]?.focus();
  assert.equal(press('ArrowDown'), false);
  assert.equal(document.activeElement, names[1]);
  press('ArrowRight');
  assert.equal(document.activeElement, find(shown.row(2), '.jp-gpuwidget-cells-time'));
  press('Home');
  assert.equal(document.activeElement, names[0]);
  assert.deepEqual(
    names.map(({ tabIndex }) => tabIndex),
    [0, -1]
  );
});

test('a list without reports is expanded while the journal has a run of the notebook', () => {
  const shown = new Shown(codeCell('cell-7'));
  const state = (): unknown[] => [
    shown.section.node.dataset.open,
    textOf(shown.part('totals')),
    shown.part('empty').hidden
  ];
  assert.deepEqual(state(), ['false', 'none watched yet', false]);
  shown.connection.publish('busy', { ...CELL, msg_id: 'before' });
  const execution = { executionCount: 7, started: NOW - 3, received: -3000 };
  const running = { cellId: 'cell-7', execution, label: 'train', gpus: [] };
  shown.setJournal({ running });
  assert.deepEqual(state(), ['true', '', true]);
  assert.match(textOf(shown.part('running')), /^\[7\] train \| ▸ \| .*n\/a \| .*3 s$/);
  shown.setJournal({ running: null });
  assert.deepEqual([...state(), shown.part('running').dataset.idle], ['true', '', true, 'true']);
  shown.setJournal(null);
  assert.deepEqual(state(), ['false', 'none watched yet', true]);
});

test('the running cell has its time, and its row keeps its place when it ends', async () => {
  const shown = new Shown(cell(1));
  const running = shown.part('running');
  assert.equal(running.dataset.idle, 'true');
  shown.begin(7, 0);
  await shown.clock.pass(3000);
  render(shown.section);
  assert.equal(running.dataset.idle, undefined);
  assert.match(textOf(running), /^\[7\] \| ▸ \| .* \| 3 s$/);
  shown.end(7);
  assert.deepEqual([running.dataset.idle, running.isConnected], ['true', true]);
  assert.equal(shown.clock.running, 0);
});

test('a click on a run’s time shows it in the dashboard; a run from before the history has the reason', () => {
  const shown = new Shown(cell(1, 600, {}, { duration_s: 100 }), cell(2, 7200));
  const time = find<HTMLButtonElement>(shown.row(1), '.jp-gpuwidget-cells-time');
  time.click();
  const [args] = shown.dashboards as { state: { zoom: { from: number; to: number } } }[];
  assert.deepEqual(args?.state.zoom, { from: NOW - 610, to: NOW - 490 });
  assert.deepEqual(shown.revealed, []);
  const old = find<HTMLButtonElement>(shown.row(2), '.jp-gpuwidget-cells-time');
  old.click();
  old.focus();
  assert.equal(shown.dashboards.length, 1);
  assert.equal(old.getAttribute('aria-disabled'), 'true');
  assert.match(old.title, /The server stores only the last hour\./);
  shown.row(2).click();
  assert.deepEqual(shown.revealed, ['cell-2']);
});
