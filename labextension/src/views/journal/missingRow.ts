import { closeIcon } from '@jupyterlab/ui-components';
import type { TranslationBundle } from '@jupyterlab/translation';

import { causeText, figuresText, outcomeOf, outcomeText, runTitle } from './journalMessages';
import type { MissingRun } from '../../model/cells/journalModel';
import { element, setAttribute, setHidden, TextElement } from '../../ui/dom';

/** The marks of the outcomes, as in the list of cells. */
const MARKS = { finished: '', failed: '✕', interrupted: '■', died: '✕' } as const;

/** What the user can do with a run whose card is missing. */
export interface MissingRunActions {
  reveal(): void;
  put(): void;
  showCard(): void;
  dismiss(): void;
}

/** A row about a run that has ended and whose card is not in the notebook. */
export class MissingRow {
  readonly node: HTMLElement;
  private readonly name = element('button', 'journal-name');
  private readonly mark = new TextElement('cells-mark');
  private readonly text = new TextElement('journal-outcome');
  private readonly figures = new TextElement('journal-figures', 'div');
  private readonly cause = new TextElement('journal-cause', 'div');
  private readonly note = new TextElement('journal-note', 'div');
  private readonly put: HTMLButtonElement;

  constructor(
    private readonly trans: TranslationBundle,
    actions: MissingRunActions
  ) {
    this.name.type = 'button';
    this.name.append(this.mark.node, this.text.node);
    this.name.onclick = actions.reveal;
    setAttribute(this.mark.node, 'aria-hidden', 'true');
    const dismiss = element('button', 'icon-button', closeIcon.element({ tag: 'span' }));
    dismiss.type = 'button';
    dismiss.title = trans.__('Don’t offer this card any more');
    dismiss.setAttribute('aria-label', dismiss.title);
    dismiss.onclick = actions.dismiss;
    this.put = button(trans.__('Put the card under its cell'), actions.put);
    this.node = element(
      'div',
      'journal-run',
      element('div', 'journal-head', this.name, dismiss),
      this.cause.node,
      this.figures.node,
      this.note.node,
      element('div', 'journal-buttons', this.put, button(trans.__('Show card'), actions.showCard))
    );
    this.node.setAttribute('role', 'group');
  }

  /** Show a run. `code` is the first line of its cell, and `isPending` whether its card is being put there. */
  update({ run, hasCell }: MissingRun, code: string, isPending: boolean, now: number, locale: string): void {
    const { trans } = this;
    const text = outcomeText(trans, run, runTitle(run, code) || trans.__('(unnamed)'), now, locale);
    const outcome = outcomeOf(run);
    this.mark.set(MARKS[outcome]);
    setAttribute(this.mark.node, 'data-warm', outcome === 'interrupted' ? '' : 'true');
    this.text.set(text);
    setAttribute(this.node, 'aria-label', text);
    this.name.title = hasCell ? `${text}\n${trans.__('Go to the cell')}` : text;
    this.name.disabled = !hasCell;
    this.figures.set(figuresText(trans, run));
    this.cause.set(causeText(run));
    this.note.set(hasCell ? '' : trans.__('Its cell was deleted, so there is no place for its card.'));
    setHidden(this.put, !hasCell);
    this.put.disabled = isPending;
  }
}

function button(text: string, onClick: () => void): HTMLButtonElement {
  const node = element('button', 'button', text);
  node.type = 'button';
  node.onclick = onClick;
  return node;
}
