import type { TranslationBundle } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';

import { MissingRow } from './missingRow';
import type { RunActions } from './runActions';
import { RunChart } from './runChart';
import { cellById } from '../../model/cells/journal';
import type { OpenNotebooks } from '../../model/cells/journalNotebooks';
import type { JournalModel } from '../../model/cells/journalModel';
import { firstCodeLine } from '../../model/cells/reportReader';
import type { IPanelState } from '../../model/panelState';
import type { ICellRuns, IGpuSettings, IMonitor } from '../../tokens';
import { element, KeyedList, setHidden, TextElement } from '../../ui/dom';

/** The list of cells, of which this section is a part: they are expanded and collapsed together. */
const CELLS = 'cells';

/** The dependencies of the section. */
export interface JournalSectionOptions {
  readonly trans: TranslationBundle;
  readonly locale: string;
  readonly model: JournalModel;
  readonly actions: RunActions;
  readonly notebooks: Pick<OpenNotebooks, 'active' | 'find'>;
  readonly cells: Pick<ICellRuns, 'changed' | 'reveal'>;
  readonly monitor: Pick<IMonitor, 'model'>;
  readonly settings: IGpuSettings;
  readonly panelState: IPanelState;
}

/**
 * The part of the list of cells that shows the journal of runs: charts of the run that lasts, and the runs of the active
 * notebook that ended without their cards being there. It is updated like a `PanelSection`, which is among the scripts
 * of the start.
 */
export class JournalSection extends Widget {
  private readonly chart: RunChart;
  private readonly rows: KeyedList<MissingRow>;
  /** Whether the list of cells is shown and expanded. */
  private isExpanded = false;
  private readonly problem = new TextElement('journal-note jp-gpuwidget-journal-problem', 'div');

  constructor(private readonly options: JournalSectionOptions) {
    const { trans, model, actions, cells, monitor, panelState } = options;
    super({ node: element('section', 'journal') });
    for (const changed of [model.changed, actions.placer.changed, cells.changed, panelState.changed]) {
      changed.connect(this.update, this);
    }
    this.chart = new RunChart(
      trans,
      uuid => monitor.model.gpus().find(({ gpu }) => gpu.uuid === uuid)?.gpu.memory_total ?? null
    );
    this.rows = new KeyedList('journal-runs', id => this.createRow(id), 'div');
    this.node.append(this.chart.node, this.rows.node, this.problem.node);
    this.node.setAttribute('aria-label', trans.__('Runs whose cards are not in this notebook'));
  }

  override dispose(): void {
    this.options.model.leave();
    super.dispose();
  }

  protected override onAfterAttach(): void {
    this.update();
  }

  protected override onUpdateRequest(): void {
    if (this.parent?.isVisible === true) {
      this.setHidden(!this.render());
    }
  }

  /** Show the current state. Return whether there is something to show. */
  private render(): boolean {
    const { model, settings, panelState, notebooks, locale, actions } = this.options;
    const notebook = notebooks.active;
    this.isExpanded = settings.current.show.cells && panelState.isExpanded(CELLS) !== false;
    if (!this.isExpanded || notebook === null) {
      model.leave();
      return false;
    }
    // The panel's visibility counts: this section is hidden as long as it has nothing to show.
    model.visit(
      () => this.isExpanded && this.parent?.isVisible === true && document.visibilityState === 'visible'
    );
    const { missing, problem, card } = model;
    this.chart.update(card);
    const now = Date.now() / 1000;
    this.rows.arrange(missing.map(({ id }) => id)).forEach((row, index) => {
      const each = missing[index];
      if (each !== undefined) {
        const cell = cellById(notebook.cells, each.run.cell);
        const code = cell === undefined ? '' : firstCodeLine(cell);
        row.update(each, code, actions.placer.isPending(each.id), now, locale);
      }
    });
    setHidden(this.problem.node, problem === null);
    this.problem.set(problem ?? '');
    return (card?.gpus.length ?? 0) > 0 || missing.length > 0 || problem !== null;
  }

  private createRow(id: string): MissingRow {
    const { trans, model, actions, cells } = this.options;
    const withRun = (action: (run: (typeof model.missing)[number]['run']) => void) => (): void => {
      const found = model.missing.find(each => each.id === id);
      if (found !== undefined) {
        action(found.run);
      }
    };
    return new MissingRow(trans, {
      reveal: withRun(({ cell }) => {
        cells.reveal(cell ?? '');
      }),
      put: withRun(run => void actions.put(run)),
      showCard: withRun(run => void actions.showCard(run)),
      dismiss: () => {
        model.dismiss(id);
      }
    });
  }
}
