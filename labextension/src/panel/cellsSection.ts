import type { TranslationBundle } from '@jupyterlab/translation';
import { caretRightIcon } from '@jupyterlab/ui-components';

import { CellRow, RunningRow } from './cellRow';
import { totalsText } from './cellWords';
import type { Cells } from '../cells/cells';
import { pressed, sorted, totals, type Column, type Row, type Sort } from '../cells/rows';
import { element, setAttribute, Text } from '../ui/dom';
import type { Folds } from './folds';
import { memoryUnit, type MemoryUnit } from '../ui/format';
import { memoryScale } from '../ui/units';

interface Head {
  readonly node: HTMLElement;
  readonly text: Text;
  readonly arrow: Text;
}

/** What each cell of the notebook in front did, from the reports in its outputs. */
export class CellsSection {
  readonly node: HTMLElement;
  private readonly fold = element('button', 'cells-fold');
  private readonly totals = new Text('cells-totals');
  private readonly heads = new Map<Column, Head>();
  private readonly body: HTMLElement;
  private readonly list = element('div', 'cells-rows');
  private readonly table: HTMLElement;
  private readonly header: HTMLElement;
  private readonly empty = new Text('cells-empty', 'div');
  private readonly notes = new Text('cells-notes', 'div');
  private readonly running: RunningRow;
  private readonly lines = new Map<string, CellRow>();
  private shown: readonly Row[] | null = null;
  private sortedBy: Sort | null = null;
  private unit: MemoryUnit | null = null;
  private scale = memoryScale();

  constructor(
    private readonly trans: TranslationBundle,
    private readonly cells: Cells,
    private readonly folds: Folds
  ) {
    const caret = caretRightIcon.element({ tag: 'span', className: 'jp-gpuwidget-caret' });
    this.fold.type = 'button';
    this.fold.append(caret, element('b', '', trans.__('Cells')), this.totals.node);
    this.fold.onclick = () => {
      folds.set('cells', !this.open);
    };
    this.running = new RunningRow(trans, cellId => {
      cells.reveal(cellId);
    });
    this.list.setAttribute('role', 'rowgroup');
    const foot = element('div', 'cells-foot', this.running.node);
    foot.setAttribute('role', 'rowgroup');
    this.header = element('div', 'cells-header', this.headRow());
    this.header.setAttribute('role', 'rowgroup');
    this.table = element('div', 'cells-table', this.header, this.list, foot);
    this.table.setAttribute('role', 'table');
    this.table.setAttribute('aria-label', trans.__('What the cells did'));
    this.table.onkeydown = event => {
      this.move(event);
    };
    this.body = element('div', 'cells-body', this.empty.node, this.notes.node, this.table);
    this.body.id = 'jp-gpuwidget-cells';
    setAttribute(this.fold, 'aria-controls', this.body.id);
    this.node = element('section', 'cells', this.fold, this.body);
    this.node.setAttribute('aria-label', trans.__('Cells of the notebook in front'));
    this.empty.set(
      trans.__(
        'No cell here has a report yet. Press Watch, or begin a cell with %1 and run it.',
        '%%gpuwatch'
      )
    );
  }

  /** Show what is known now. */
  update(): void {
    const { rows, running } = this.cells;
    const { open } = this;
    this.node.hidden = !this.cells.present;
    setAttribute(this.fold, 'aria-expanded', String(open));
    setAttribute(this.node, 'data-open', String(open));
    if (rows !== this.shown) {
      this.totals.set(
        totalsText(this.trans, rows.length, totals(rows)),
        this.trans.__('Time and energy of all runs that left a report; runs within runs count once')
      );
    }
    if (!open) {
      this.shown = rows;
      this.sortedBy = null;
      return;
    }
    this.writeRows(rows);
    this.header.hidden = rows.length === 0;
    this.empty.node.hidden = rows.length > 0 || this.cells.foreign > 0;
    this.running.update(running, this.unit ?? memoryUnit([]));
    this.writeNotes(rows);
  }

  private get open(): boolean {
    return this.folds.wish('cells') ?? true;
  }

  private writeRows(rows: readonly Row[]): void {
    const { sort } = this.cells.preferences.now;
    if (this.scale !== memoryScale()) {
      // Their titles have figures too.
      this.scale = memoryScale();
      this.reconcile([], memoryUnit([]));
      this.shown = null;
    }
    if (rows === this.shown && sort === this.sortedBy) {
      return;
    }
    const unit = memoryUnit(rows.flatMap(({ report }) => [report.peak, Math.abs(report.delta ?? 0)]));
    this.reconcile(rows, unit);
    this.writeHeads(sort, unit);
    this.shown = rows;
    this.sortedBy = sort;
    this.unit = unit;
    this.arrange(sorted(rows, sort).flatMap(({ key }) => this.lines.get(key) ?? []));
  }

  private reconcile(rows: readonly Row[], unit: MemoryUnit): void {
    const wanted = new Set(rows.map(({ key }) => key));
    for (const [key, line] of this.lines) {
      if (!wanted.has(key)) {
        line.node.remove();
        this.lines.delete(key);
      }
    }
    const now = Date.now() / 1000;
    for (const row of rows) {
      let line = this.lines.get(row.key);
      if (line?.node.dataset.cellId !== row.cellId) {
        line?.node.remove();
        line = new CellRow(this.trans, row, now, () => {
          this.cells.reveal(row.cellId);
        });
        this.lines.set(row.key, line);
        line.measure(unit);
      } else if (unit !== this.unit) {
        line.measure(unit);
      }
    }
  }

  /** In this order, moving only what has another place: the keyboard stays where it is. */
  private arrange(lines: readonly CellRow[]): void {
    const focused = document.activeElement;
    let at = this.list.firstChild;
    for (const { node } of lines) {
      if (node === at) {
        at = at.nextSibling;
      } else {
        this.list.insertBefore(node, at);
      }
    }
    if (focused instanceof HTMLElement && this.list.contains(focused)) {
      focused.focus({ preventScroll: true });
    }
    this.keepOneStop();
  }

  private headRow(): HTMLElement {
    const row = element('div', 'cell-row cells-head');
    row.setAttribute('role', 'row');
    const columns: readonly [Column, string, string][] = [
      ['cell', this.trans.__('cell'), this.trans.__('In the order of the notebook')],
      ['delta', '', this.trans.__('Memory at the end less memory at the start')],
      ['peak', this.trans.__('peak'), this.trans.__('The most memory on any one GPU')],
      ['time', this.trans.__('time'), this.trans.__('How long the code ran')],
      ['energy', this.trans.__('energy'), this.trans.__('Drawn by the GPUs that the cell used')]
    ];
    for (const [column, words, title] of columns) {
      const text = new Text('');
      text.set(words);
      const arrow = new Text('cells-arrow');
      const button = element('button', 'cells-sort', text.node, arrow.node);
      button.type = 'button';
      button.title = this.trans.__('%1. Sort by it', title);
      button.onclick = () => {
        const { preferences } = this.cells;
        preferences.set({ sort: pressed(preferences.now.sort, column) });
      };
      const node = element('div', 'cells-column', button);
      node.setAttribute('role', 'columnheader');
      row.append(node);
      this.heads.set(column, { node, text, arrow });
    }
    return row;
  }

  private writeHeads(sort: Sort, unit: MemoryUnit): void {
    for (const [column, { node, text, arrow }] of this.heads) {
      const by = column === sort.column;
      setAttribute(node, 'aria-sort', by ? (sort.descending ? 'descending' : 'ascending') : 'none');
      arrow.set(by ? (sort.descending ? '▾' : '▴') : '');
      if (column === 'delta') {
        text.set(`Δ ${unit.name}`);
      }
    }
  }

  private writeNotes(rows: readonly Row[]): void {
    const { foreign } = this.cells;
    const notes = [
      rows.some(({ report }) => report.kind === 'device' && report.gpus.length > 0)
        ? this.trans.__('* the whole GPU’s, whoever used it.')
        : '',
      rows.some(({ report }) => report.recording !== null)
        ? this.trans.__('Figures of a recording are not the notebook’s.')
        : '',
      foreign === 0
        ? ''
        : this.trans._n(
            '%1 report of another version is left out.',
            '%1 reports of another version are left out.',
            foreign
          )
    ];
    this.notes.set(notes.filter(note => note !== '').join(' '));
    this.notes.node.hidden = this.notes.value === '';
  }

  // -- the keyboard: one stop for all rows, arrows between them -----------------------------------------

  private get buttons(): HTMLElement[] {
    return [...this.list.querySelectorAll<HTMLElement>('.jp-gpuwidget-cell-name')];
  }

  private keepOneStop(): void {
    const { buttons } = this;
    const stop = buttons.find(button => button === document.activeElement) ?? buttons[0];
    for (const button of buttons) {
      button.tabIndex = button === stop ? 0 : -1;
    }
  }

  private move(event: KeyboardEvent): void {
    const { buttons } = this;
    const place = buttons.findIndex(button => button === document.activeElement);
    const next = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: buttons.length - 1 }[event.key];
    const target = place < 0 || next === undefined ? undefined : buttons[next];
    if (target !== undefined) {
      event.preventDefault();
      target.focus();
      this.keepOneStop();
    }
  }
}
