import type { TranslationBundle } from '@jupyterlab/translation';

import type { AddButtons } from './cardRenderer';
import { TWO_COUNTS } from '../../model/cells/cellRuns';
import type { CellReport } from '../../model/cells/report';
import type { RunTimes } from './runTimes';
import { copyButton, type Copy } from '../../ui/copyButton';
import { element, setAttribute, setHidden } from '../../ui/dom';

/** What the buttons of a card do. */
export interface CardActions {
  readonly copy: Copy;
  /** Insert a cell with this code below the cell of `node`, and run it if `run` is set. */
  readonly insert: (node: HTMLElement, code: string, run: boolean) => void;
  readonly times: Pick<RunTimes, 'show' | 'problem'>;
}

const BUTTON = 'button jp-gpuwidget-card-button';
/** The class of a button that needs the notebook. Style sheets hide it anywhere else. */
const CELL_BUTTON = `${BUTTON} jp-gpuwidget-card-cell`;

/** The class of a button that compares two runs. */
const COMPARE = 'jp-gpuwidget-card-compare';
/** The report of the newer of the two runs that a button compares, with the execution counts of both. */
const comparedRuns = new WeakMap<
  Element,
  { readonly report: CellReport; readonly counts: readonly number[] }
>();

/**
 * Show those *Compare* buttons in `node` whose runs the present process of the kernel knows, and hide the others:
 * the kernel would compare other runs with the same execution counts, or none.
 */
export function updateCompareButtons(
  node: HTMLElement,
  knows: (report: CellReport, counts: readonly number[]) => boolean
): void {
  for (const button of node.querySelectorAll<HTMLElement>(`.${COMPARE}`)) {
    const runs = comparedRuns.get(button);
    setHidden(button, runs === undefined || !knows(runs.report, runs.counts));
  }
}

/** Return a function that adds buttons to the elements of a card that the kernel has marked by their class. */
export function cardButtons(trans: TranslationBundle, { copy, insert, times }: CardActions): AddButtons {
  const button = (label: string, onClick: (button: HTMLButtonElement) => void): HTMLButtonElement => {
    const node = element('button', CELL_BUTTON, label);
    node.type = 'button';
    node.onclick = () => {
      onClick(node);
    };
    return node;
  };
  return (card, report) => {
    const found: HTMLButtonElement[] = [];
    for (const node of card.querySelectorAll('code.gpuwidget-copy, code.gpuwidget-insert')) {
      const code = node.textContent;
      const copying = copyButton(trans, copy, BUTTON, trans.__('Copy'), () => code);
      // Several fixes have buttons with the same label.
      copying.title = trans.__('Copy: %1', code);
      const added = [copying];
      if (node.classList.contains('gpuwidget-insert')) {
        const inserting = button(trans.__('Insert cell'), clicked => {
          insert(clicked, code, false);
        });
        inserting.title = trans.__('Insert cell: %1', code);
        added.push(inserting);
      }
      node.after(...added);
      found.push(...added);
    }
    const place = card.querySelector<HTMLElement>('.gpuwidget-since');
    const runs = place?.dataset.runs ?? '';
    if (report !== null && TWO_COUNTS.test(runs)) {
      const compare = button(trans.__('Compare'), clicked => {
        insert(clicked, `%gpu compare ${runs}`, true);
      });
      compare.title = trans.__('Compare with the last run of this cell (%gpu compare)');
      compare.classList.add(COMPARE);
      comparedRuns.set(compare, { report, counts: runs.split(' ').map(Number) });
      setHidden(compare, true); // Only the present process of the kernel can compare the runs.
      found.push(compare);
      place?.append(compare);
    }
    if (place && report !== null && report.started !== null) {
      const show = button(trans.__('Show in dashboard'), () => {
        if (times.problem(report) === null) {
          times.show(report);
        }
      });
      show.onmouseenter = show.onfocus = () => {
        show.title = times.problem(report) ?? '';
        setAttribute(show, 'aria-disabled', show.title === '' ? '' : 'true');
      };
      found.push(show);
      place.append(show);
    }
    for (const one of found) {
      // Enter and Space belong to the button, although the notebook has shortcuts with these keys.
      one.dataset.lmSuppressShortcuts = 'true';
    }
  };
}
