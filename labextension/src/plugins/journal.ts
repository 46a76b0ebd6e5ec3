import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import type { JournalSource } from '../model/cells/journalModel';
import { BROWSER_CLOCK } from '../model/clock';
import { revealCell } from '../model/cells/cellTracker';
import { ServerClient } from '../model/server/serverClient';
import { DOMAIN, ICellRuns, IGpuPanel, IGpuSettings, IHolderActions, IMonitor } from '../tokens';
import { notify } from '../ui/notification';
import { parsed } from '../wire/parsing';
import { JournalCard, JournalRuns } from '../wire/wire';

/** The runs that ended without this page, which are loaded after the page has restored its notebooks. */
export const journal: JupyterFrontEndPlugin<void> = {
  id: 'jupyterlab-gpuwidget:journal',
  description: 'Watched runs that last or ended while the page was closed.',
  autoStart: true,
  requires: [IMonitor, ICellRuns, IGpuPanel, IGpuSettings, IHolderActions],
  optional: [INotebookTracker, IRenderMimeRegistry, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    monitor: IMonitor,
    cells: ICellRuns,
    panel: IGpuPanel,
    settings: IGpuSettings,
    holders: IHolderActions,
    tracker: INotebookTracker | null,
    renderers: IRenderMimeRegistry | null,
    translator: ITranslator | null
  ) => {
    const { languageCode: locale } = translator ?? nullTranslator;
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const server = new ServerClient(app.serviceManager.serverSettings, trans);
    const query = { locale };
    const source: JournalSource = {
      runs: () => server.request('runs', json => parsed(JournalRuns, json), { query }),
      card: id =>
        server.request(`runs/${encodeURIComponent(id)}`, json => parsed(JournalCard, json), { query })
    };
    void app.restored
      .then(() => import(/* webpackChunkName: "journal" */ '../views/journal/chunk'))
      .then(({ showJournal }) => {
        showJournal({
          ...{
            app,
            trans,
            locale,
            source,
            notify,
            monitor,
            cells,
            panel,
            settings,
            holders,
            tracker,
            renderers
          },
          clock: BROWSER_CLOCK,
          reveal: revealCell
        });
      });
  }
};
