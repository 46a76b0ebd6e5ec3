import type { TranslationBundle } from '@jupyterlab/translation';

import type { Running } from '../cells/cells';
import type { CellReport } from '../cells/report';
import type { Row } from '../cells/rows';
import { element, setAttribute, Text } from '../ui/dom';
import { change, duration, figure, tookShort, type MemoryUnit } from '../ui/format';
import {
  cellName,
  ending,
  energyText,
  energyTitle,
  memoryTitle,
  NONE,
  runningTitle,
  timeTitle,
  WHOLE
} from './cellWords';

/** A line of the list: a button with the cell's name, and its figures. */
class Line {
  readonly node: HTMLElement;
  readonly button = element('button', 'cell-name');
  protected readonly name = new Text('cell-label');
  protected readonly mark = new Text('cell-mark');
  protected readonly delta = new Text('cell-figure');
  protected readonly peak = new Text('cell-figure');
  protected readonly time = new Text('cell-figure');
  protected readonly energy = new Text('cell-figure');

  constructor(reveal: () => void) {
    this.button.type = 'button';
    this.button.tabIndex = -1;
    this.button.append(this.name.node, this.mark.node);
    const first = element('div', 'cell-first', this.button);
    first.setAttribute('role', 'rowheader');
    const figures = [this.delta, this.peak, this.time, this.energy].map(({ node }) => node);
    for (const node of figures) {
      node.setAttribute('role', 'cell');
    }
    this.node = element('div', 'cell-row', first, ...figures);
    this.node.setAttribute('role', 'row');
    this.node.onclick = reveal;
  }
}

/** A run that has ended. Its report does not change: only the unit of its column does. */
export class CellRow extends Line {
  private readonly report: CellReport;

  constructor(trans: TranslationBundle, row: Row, now: number, reveal: () => void) {
    super(reveal);
    const { report } = row;
    this.report = report;
    this.node.dataset.cellId = row.cellId;
    const [mark, meaning] = ending(trans, report) ?? ['', ''];
    const name = cellName(trans, report);
    this.name.set(name);
    this.mark.set(mark);
    setAttribute(
      this.mark.node,
      'data-warm',
      meaning === '' || report.status === 'interrupted' ? '' : 'true'
    );
    setAttribute(this.mark.node, 'aria-label', meaning);
    setAttribute(this.mark.node, 'role', meaning === '' ? '' : 'img');
    this.button.title = [meaning === '' ? name : `${name}: ${meaning}`, trans.__('Go to the cell')].join(
      '\n'
    );
    const unknown = report.gpus.length === 0 ? NONE : null;
    const memory = memoryTitle(trans, report);
    this.delta.set('', memory);
    this.peak.set('', memory);
    this.time.set(tookShort(report.duration), timeTitle(trans, report, now));
    this.energy.set(
      unknown ?? energyText({ joules: report.energy, atLeast: report.atLeast }),
      energyTitle(trans, report)
    );
  }

  /** Tell its memory in `unit`. */
  measure(unit: MemoryUnit): void {
    const { gpus, kind, delta, peak } = this.report;
    const whole = kind === 'device' ? WHOLE : '';
    const words = (size: number | null, text: string): string =>
      gpus.length === 0 ? NONE : size === null ? text : `${text}${whole}`;
    this.delta.set(words(delta, change(delta, unit)), this.delta.node.title);
    this.peak.set(words(peak, figure(peak, unit)), this.peak.node.title);
  }
}

/** The cell that runs now. */
export class RunningRow extends Line {
  private cellId = '';

  constructor(
    private readonly trans: TranslationBundle,
    reveal: (cellId: string) => void
  ) {
    super(() => {
      reveal(this.cellId);
    });
    this.node.classList.add('jp-gpuwidget-running');
    this.button.tabIndex = 0;
    this.button.title = trans.__('It runs now. Go to the cell');
    this.mark.set('▸');
    setAttribute(this.mark.node, 'role', 'img');
    setAttribute(this.mark.node, 'aria-label', trans.__('running'));
  }

  /** Show it, or nothing. */
  update(running: Running | null, unit: MemoryUnit): void {
    // Its place is kept, so that nothing moves when a cell begins or ends.
    setAttribute(this.node, 'data-idle', running === null ? 'true' : '');
    if (running === null) {
      return;
    }
    this.cellId = running.cellId;
    this.node.dataset.cellId = running.cellId;
    this.name.set(running.executionCount === null ? '[*]' : `[${String(running.executionCount)}]`);
    this.delta.set(change(running.delta, unit), runningTitle(this.trans, running));
    this.time.set(running.seconds < 60 ? duration(running.seconds) : tookShort(running.seconds));
  }
}
