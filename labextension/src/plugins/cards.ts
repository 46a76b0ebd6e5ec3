import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Clipboard } from '@jupyterlab/apputils';
import { INotebookTracker, NotebookActions } from '@jupyterlab/notebook';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { cardButtons, updateCompareButtons } from '../views/cards/cardButtons';
import { cardRenderer } from '../views/cards/cardRenderer';
import { insertBelow } from '../model/cells/cellTracker';
import { RunTimes } from '../views/cards/runTimes';
import { DOMAIN, ICellRuns, IClusterModel } from '../tokens';

/** The buttons on cards. */
export const cards: JupyterFrontEndPlugin<void> = {
  id: 'jupyterlab-gpuwidget:cards',
  description: 'Buttons on the cards of watched cells and of out-of-memory errors.',
  autoStart: true,
  requires: [ICellRuns, IClusterModel, IRenderMimeRegistry],
  optional: [INotebookTracker, ITranslator],
  activate: (
    { commands }: JupyterFrontEnd,
    cells: ICellRuns,
    cluster: IClusterModel,
    renderers: IRenderMimeRegistry,
    tracker: INotebookTracker | null,
    translator: ITranslator | null
  ) => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const insert = (node: HTMLElement, code: string, run: boolean): void => {
      const panel = tracker?.find(({ content }) => content.node.contains(node));
      const index = panel?.content.widgets.findIndex(cell => cell.node.contains(node)) ?? -1;
      if (panel !== undefined && index >= 0) {
        panel.content.activeCellIndex = index;
        insertBelow(panel.content, code);
        if (run) {
          void NotebookActions.run(panel.content, panel.sessionContext);
        }
      }
    };
    cells.executed.connect((_, { notebook, activity }) => {
      const panel = tracker?.find(each => each === notebook);
      for (const { node } of panel?.content.widgets ?? []) {
        updateCompareButtons(node, (report, counts) => activity.hasRun(report, counts));
      }
    });
    renderers.addFactory(
      cardRenderer(
        cardButtons(trans, {
          copy: text => {
            Clipboard.copyToSystem(text);
          },
          insert,
          times: new RunTimes(trans, cells, commands, cluster !== null)
        })
      )
    );
  }
};
