import { Dialog, showDialog } from '@jupyterlab/apputils';
import type { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import type { TranslationBundle } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';

import { doubtText, runTitle } from './journalMessages';
import { CardPlacer, type CardNotebook, type Doubt, type Placement } from '../../model/cells/cardPlacer';
import type { OpenNotebooks } from '../../model/cells/journalNotebooks';
import type { JournalModel, JournalSource } from '../../model/cells/journalModel';
import { errorText, sentence } from '../../model/format';
import type { IStatusMessage } from '../../model/memory/statusMessage';
import { element } from '../../ui/dom';
import type { JournalRun } from '../../wire/wire';

const HTML = 'text/html';

/** The dependencies of the actions. */
export interface RunActionsOptions {
  readonly trans: TranslationBundle;
  readonly source: Pick<JournalSource, 'card'>;
  readonly model: JournalModel;
  readonly notebooks: Pick<OpenNotebooks, 'find' | 'open'>;
  /** Shows what an action could not do. */
  readonly message: IStatusMessage;
  /** Null if JupyterLab has no renderers, in which case cards are shown as text. */
  readonly renderers: IRenderMimeRegistry | null;
}

/** What the user can do with a run of the journal that has ended. */
export class RunActions {
  readonly placer: CardPlacer;

  constructor(private readonly options: RunActionsOptions) {
    const { source, model } = options;
    this.placer = new CardPlacer(source, model, (run, doubt) => this.confirm(run, doubt));
  }

  /** Activate the notebook of a run, or open it, and select its cell. */
  async show(run: JournalRun): Promise<void> {
    const notebook = await this.notebookOf(run);
    if (run.cell !== null) {
      notebook?.reveal(run.cell);
    }
  }

  /** Put the card of a run under its cell, in its notebook, which is opened if it is closed. */
  async put(run: JournalRun): Promise<void> {
    const { message, model } = this.options;
    message.clear();
    const notebook = await this.notebookOf(run);
    if (notebook === undefined) {
      return;
    }
    const placement = await this.placer.place(run, notebook);
    model.update();
    const text = this.problemText(placement);
    if (text !== '') {
      message.set(text, 'error');
    }
    if (placement.kind === 'no-cell') {
      await this.showCard(run);
    } else if (run.cell !== null && (placement.kind === 'placed' || placement.kind === 'present')) {
      notebook.reveal(run.cell);
    }
  }

  /** Show the card of a run in a dialog. */
  async showCard(run: JournalRun): Promise<void> {
    const { trans, source, message, renderers } = this.options;
    const result = await source.card(run.id);
    const data = result.kind === 'ok' ? result.value.data : null;
    if (data === null) {
      const reason = result.kind === 'ok' ? null : result.reason;
      message.set(this.problemText({ kind: 'failed', reason }), 'error');
      return;
    }
    const body = await cardWidget(data, renderers);
    body.addClass('jp-gpuwidget-journal-card');
    await showDialog({
      title: [run.name ?? '', runTitle(run, '')].filter(part => part !== '').join(' '),
      body,
      buttons: [Dialog.okButton({ label: trans.__('Close') })],
      hasClose: true
    });
  }

  private async notebookOf(run: JournalRun): Promise<CardNotebook | undefined> {
    const { notebooks, message, trans } = this.options;
    const open = notebooks.find(run);
    if (open !== undefined) {
      return open;
    }
    if (run.path === null) {
      message.set(trans.__('The notebook is not in a folder that this server shows.'), 'error');
      return undefined;
    }
    try {
      return await notebooks.open(run);
    } catch (error) {
      message.set(
        trans.__('%1 could not be opened: %2', run.name ?? run.path, sentence(errorText(error))),
        'error'
      );
      return undefined;
    }
  }

  private async confirm(run: JournalRun, doubt: Doubt): Promise<boolean> {
    const { trans } = this.options;
    const { button } = await showDialog({
      title: trans.__('Put the card of %1 under its cell?', runTitle(run, '')),
      body: doubtText(trans, doubt),
      buttons: [Dialog.cancelButton(), Dialog.okButton({ label: trans.__('Put Card') })]
    });
    return button.accept;
  }

  /** Return why a card was not put under its cell; empty if it was, or if the user knows. */
  private problemText(placement: Placement): string {
    const { trans } = this.options;
    switch (placement.kind) {
      case 'present':
        return trans.__('The card is already in this notebook.');
      case 'no-cell':
        return trans.__('The cell of this run was deleted, so there is no place for its card.');
      case 'running':
        return trans.__('The cell is running or waiting. Put the card under it when it has ended.');
      case 'failed':
        return placement.reason === null
          ? trans.__('The server does not have the card yet. Try again in a minute.')
          : trans.__('The card could not be loaded: %1', placement.reason);
      default:
        return '';
    }
  }
}

/**
 * Return a widget that shows a card. Its HTML is trusted: the server has made it from the journal's figures, which it
 * escapes. There are no buttons, which act on the notebook of a card.
 */
async function cardWidget(
  data: Readonly<Record<string, unknown>>,
  renderers: IRenderMimeRegistry | null
): Promise<Widget> {
  const { [HTML]: html, 'text/plain': text } = data;
  if (renderers === null || typeof html !== 'string') {
    return new Widget({ node: element('pre', '', typeof text === 'string' ? text : '') });
  }
  const renderer = renderers.createRenderer(HTML);
  await renderer.renderModel(renderers.createModel({ data: { [HTML]: html }, trusted: true }));
  return renderer;
}
