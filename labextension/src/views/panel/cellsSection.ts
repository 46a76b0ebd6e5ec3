import type { TranslationBundle } from '@jupyterlab/translation';

import { RunningRow, RunRow, totalsText } from './cellRow';
import type { PanelContext } from './panelContext';
import { comparableKeys } from '../../model/cells/cellRuns';
import { MAX_REPORTS } from '../../model/cells/reportReader';
import {
  sortedRuns,
  toggledSort,
  totals,
  type CellRun,
  type Column,
  type Sort
} from '../../model/cells/runTable';
import { element, setAttribute, setHidden, TextElement } from '../../ui/dom';
import { PanelSection } from '../../ui/panelSection';
import { memoryUnit, type MemoryUnit, memoryScale } from '../../model/format';

/** The section's name in the saved state of the panel. */
const NAME = 'cells';

interface ColumnHeader {
  readonly node: HTMLElement;
  readonly text: TextElement;
  readonly arrow: TextElement;
}

/** The list of cells: the active notebook's runs, which are read from the reports in its outputs. */
export class CellsSection extends PanelSection {
  private readonly trans: TranslationBundle;
  private readonly toggle = element('button', 'section-head jp-gpuwidget-cells-toggle');
  private readonly totals = new TextElement('section-summary jp-gpuwidget-cells-totals');
  private readonly headers = new Map<Column, ColumnHeader>();
  private readonly list = element('div', 'cells-rows');
  private readonly table: HTMLElement;
  private readonly header: HTMLElement;
  private readonly empty = new TextElement('cells-empty', 'div');
  private readonly untrusted = new TextElement('cells-untrusted', 'div');
  private readonly notes = new TextElement('cells-notes', 'div');
  private readonly running: RunningRow;
  private readonly rows = new Map<string, RunRow>();
  private shownRuns: readonly CellRun[] | null = null;
  private shownSort: Sort | null = null;
  private shownEmpty = true;
  private comparableKeys: ReadonlySet<string> = new Set();
  private unit: MemoryUnit | null = null;
  private scale = memoryScale();
  /** The day for which the rows were created: they show the day of each run that started on another one. */
  private today = '';

  constructor(private readonly context: PanelContext) {
    const { trans, cells, panelState } = context;
    super(element('section', 'cells'), [cells.changed, panelState.changed]);
    this.trans = trans;
    this.toggle.type = 'button';
    this.toggle.append(element('span', 'section-title', trans.__('Cells')), this.totals.node);
    this.toggle.onclick = () => {
      panelState.setExpanded(NAME, !this.expanded);
    };
    this.running = new RunningRow(trans, cellId => {
      cells.reveal(cellId);
    });
    this.list.setAttribute('role', 'rowgroup');
    const footer = element('div', 'cells-footer', this.running.node);
    footer.setAttribute('role', 'rowgroup');
    this.header = element('div', 'cells-header', this.headerRow());
    this.header.setAttribute('role', 'rowgroup');
    this.table = element('div', 'cells-table', this.header, this.list, footer);
    this.table.setAttribute('role', 'table');
    this.table.setAttribute('aria-label', trans.__('Watched cells'));
    this.table.onkeydown = event => {
      this.onKeyDown(event);
    };
    this.untrusted.node.id = 'jp-gpuwidget-cells-untrusted';
    this.untrusted.set(
      trans.__('▲ This notebook is not trusted: figures in italics may not be genuine.'),
      trans.__(
        'Anyone may have written these reports into the file. Run the cells yourself, or trust the notebook if you trust its author.'
      )
    );
    const body = element(
      'div',
      'cells-body',
      this.empty.node,
      this.untrusted.node,
      this.notes.node,
      this.table
    );
    body.id = 'jp-gpuwidget-cells';
    setAttribute(this.toggle, 'aria-controls', body.id);
    this.node.append(this.toggle, body);
    this.node.setAttribute('aria-label', trans.__('Cells of the active notebook'));
    this.empty.set(
      trans.__('No watched cells yet. Click Watch cells, or start a cell with %1', '%%gpuwatch')
    );
  }

  protected override render(): boolean {
    const { cells, settings } = this.context;
    if (!settings.current.show.cells || !cells.hasNotebook) {
      return false;
    }
    const { runs, running } = cells;
    const { expanded } = this;
    setAttribute(this.toggle, 'aria-expanded', String(expanded));
    setAttribute(this.node, 'data-open', String(expanded));
    const { isEmpty } = this;
    if (runs !== this.shownRuns || isEmpty !== this.shownEmpty) {
      this.shownEmpty = isEmpty;
      const trusted = runs.every(run => run.trusted);
      this.totals.set(
        isEmpty
          ? this.trans.__('none watched yet')
          : totalsText(this.trans, runs.length, totals(runs), trusted),
        [
          this.trans.__('Time and energy of all runs with a report; a run inside another run counts once'),
          this.omission()
        ]
          .filter(line => line !== '')
          .join('\n')
      );
      setAttribute(this.totals.node, 'data-untrusted', trusted ? '' : 'true');
      setHidden(this.untrusted.node, trusted);
      // A screen reader would read the note although it is hidden.
      setAttribute(this.table, 'aria-describedby', trusted ? '' : this.untrusted.node.id);
    }
    if (!expanded) {
      this.shownRuns = runs;
      this.shownSort = null;
      return true;
    }
    this.updateRows(runs);
    for (const run of runs) {
      const row = this.rows.get(run.key);
      const comparable = this.comparableKeys.has(run.key) && cells.comparable(run);
      if (row?.tick.disabled === comparable) {
        row.setComparable(comparable);
      }
    }
    setHidden(this.header, runs.length === 0);
    setHidden(this.empty.node, !isEmpty);
    this.running.update(running, this.unit ?? memoryUnit([]));
    this.updateNotes(runs);
    return true;
  }

  /** Whether no cell of the notebook has a report, or a run in the journal that is shown. */
  private get isEmpty(): boolean {
    const { runs, incompatible, journal } = this.context.cells;
    return runs.length === 0 && incompatible === 0 && journal === null;
  }

  /** Whether the section is expanded. An empty section is collapsed unless the user has expanded it. */
  private get expanded(): boolean {
    return this.context.panelState.isExpanded(NAME) ?? !this.isEmpty;
  }

  private updateRows(runs: readonly CellRun[]): void {
    const { sort } = this.context.panelState;
    const today = new Date().toDateString();
    if (this.scale !== memoryScale() || this.today !== today) {
      // Recreate all rows: their tooltips contain memory sizes, and their texts days.
      this.scale = memoryScale();
      this.today = today;
      this.reconcile([], memoryUnit([]));
      this.shownRuns = null;
    }
    if (runs === this.shownRuns && sort === this.shownSort) {
      return;
    }
    const unit = memoryUnit(runs.flatMap(({ report }) => [report.peak, Math.abs(report.delta ?? 0)]));
    this.reconcile(runs, unit);
    this.updateHeader(sort, unit);
    this.comparableKeys = comparableKeys(runs);
    this.shownRuns = runs;
    this.shownSort = sort;
    this.unit = unit;
    this.arrange(sortedRuns(runs, sort).flatMap(({ key }) => this.rows.get(key) ?? []));
  }

  private reconcile(runs: readonly CellRun[], unit: MemoryUnit): void {
    const wanted = new Set(runs.map(({ key }) => key));
    for (const [key, row] of this.rows) {
      if (!wanted.has(key)) {
        row.node.remove();
        this.rows.delete(key);
      }
    }
    const now = Date.now() / 1000;
    for (const run of runs) {
      let row = this.rows.get(run.key);
      if (row?.node.dataset.cellId !== run.cellId || row.trusted !== run.trusted) {
        row?.node.remove();
        row = new RunRow(
          this.trans,
          run,
          { now, locale: this.context.locale },
          {
            reveal: () => {
              this.context.cells.reveal(run.cellId);
            },
            showTime: () => {
              this.context.times.show(run.report);
            },
            timeProblem: () => this.context.times.problem(run.report),
            ticked: () => {
              this.compareTicked();
            }
          }
        );
        this.rows.set(run.key, row);
        row.setUnit(unit);
      } else if (unit !== this.unit) {
        row.setUnit(unit);
      }
    }
  }

  /**
   * Put the rows in this order. Only rows whose position has changed are moved. The focused element keeps
   * the focus.
   */
  private arrange(rows: readonly RunRow[]): void {
    const focused = document.activeElement;
    let at = this.list.firstChild;
    for (const { node } of rows) {
      if (node === at) {
        at = at.nextSibling;
      } else {
        this.list.insertBefore(node, at);
      }
    }
    if (focused instanceof HTMLElement && this.list.contains(focused)) {
      focused.focus({ preventScroll: true });
    }
    this.updateTabStop();
  }

  private headerRow(): HTMLElement {
    const row = element('div', 'cells-row jp-gpuwidget-cells-header-row');
    row.setAttribute('role', 'row');
    const columns: readonly [Column, string, string][] = [
      ['cell', this.trans.__('cell'), this.trans.__('Order in the notebook')],
      ['delta', '', this.trans.__('Memory at the end minus memory at the start')],
      ['peak', this.trans.__('peak'), this.trans.__('Highest memory on any one GPU')],
      ['time', this.trans.__('time'), this.trans.__('How long the code ran')],
      ['energy', this.trans.__('energy'), this.trans.__('Energy of the GPUs that the cell used')]
    ];
    for (const [column, label, title] of columns) {
      const text = new TextElement('');
      text.set(label);
      const arrow = new TextElement('cells-arrow');
      const button = element('button', 'cells-sort', text.node, arrow.node);
      button.type = 'button';
      button.title = this.trans.__('%1. Click to sort', title);
      button.onclick = () => {
        this.context.panelState.sort = toggledSort(this.context.panelState.sort, column);
      };
      const node = element('div', 'cells-column', button);
      node.setAttribute('role', 'columnheader');
      row.append(node);
      this.headers.set(column, { node, text, arrow });
    }
    return row;
  }

  private updateHeader(sort: Sort, unit: MemoryUnit): void {
    for (const [column, { node, text, arrow }] of this.headers) {
      const sorted = column === sort.column;
      setAttribute(node, 'aria-sort', sorted ? (sort.descending ? 'descending' : 'ascending') : 'none');
      arrow.set(sorted ? (sort.descending ? '▾' : '▴') : '');
      if (column === 'delta') {
        text.set(`Δ ${unit.name}`);
      }
    }
  }

  private updateNotes(runs: readonly CellRun[]): void {
    const { incompatible } = this.context.cells;
    const notes = [
      this.omission(),
      runs.some(({ report }) => report.kind === 'device' && report.gpus.length > 0)
        ? this.trans.__('* Memory of the whole GPU, including other processes.')
        : '',
      runs.some(({ report }) => report.recording !== null)
        ? this.trans.__(
            'Memory, utilization and energy of cells that ran with a recording are from the recording.'
          )
        : '',
      incompatible === 0
        ? ''
        : this.trans._n(
            '%1 report from another version of gpuwidget is not shown.',
            '%1 reports from another version of gpuwidget are not shown.',
            incompatible
          )
    ];
    this.notes.set(notes.filter(note => note !== '').join(' '));
    setHidden(this.notes.node, this.notes.value === '');
  }

  /** Return a sentence about the reports that were not read; empty if all were. */
  private omission(): string {
    const { reports } = this.context.cells;
    return reports <= MAX_REPORTS
      ? ''
      : this.trans.__('Showing the last %1 of %2 reports in this notebook.', MAX_REPORTS, reports);
  }

  /** Compare the two runs that the user has ticked. */
  private compareTicked(): void {
    const ticked = this.context.cells.runs.filter(({ key }) =>
      this.rows.get(key)?.tick.matches(':checked:enabled')
    );
    const [one, other] = ticked;
    if (one !== undefined && other !== undefined) {
      for (const { key } of ticked) {
        const row = this.rows.get(key);
        if (row !== undefined) {
          row.tick.checked = false;
        }
      }
      this.context.cells.compare(one, other);
    }
  }

  // The list is a single tab stop; the arrow keys move the focus between its rows, and between the tick, the
  // name and the time of a row.

  private get buttons(): HTMLElement[] {
    return [...this.list.querySelectorAll<HTMLElement>('.jp-gpuwidget-cells-name')];
  }

  private updateTabStop(): void {
    const { buttons } = this;
    const stop = buttons.find(button => button === document.activeElement) ?? buttons[0];
    for (const button of buttons) {
      button.tabIndex = button === stop ? 0 : -1;
    }
  }

  private onKeyDown(event: KeyboardEvent): void {
    const { buttons } = this;
    const focused = document.activeElement;
    const name = focused?.closest('.jp-gpuwidget-cells-row')?.querySelector('.jp-gpuwidget-cells-name');
    if (event.key === 'ArrowRight' || event.key === 'ArrowLeft') {
      const controls = [
        ...(name?.closest('.jp-gpuwidget-cells-row')?.querySelectorAll<HTMLElement>('input, button') ?? [])
      ];
      const at = controls.findIndex(control => control === focused);
      const target = controls[event.key === 'ArrowRight' ? at + 1 : at - 1];
      if (target !== undefined && this.list.contains(target)) {
        event.preventDefault();
        target.focus();
      }
      return;
    }
    const index = buttons.findIndex(button => button === name);
    const next = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: buttons.length - 1 }[event.key];
    const target = index < 0 || next === undefined ? undefined : buttons[next];
    if (target !== undefined) {
      event.preventDefault();
      target.focus();
      this.updateTabStop();
    }
  }
}
