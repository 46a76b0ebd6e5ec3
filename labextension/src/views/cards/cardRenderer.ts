import { htmlRendererFactory, type IRenderMime } from '@jupyterlab/rendermime';

import { parseReport, REPORT_MIME, type CellReport } from '../../model/cells/report';

/** The MIME type of a card without a report, such as that of an out-of-memory error. */
const CARD_MIME = 'application/vnd.gpuwidget.card+json';
const HTML = 'text/html';
/** Below the rank of HTML, so that JupyterLab prefers this renderer wherever it trusts the output. */
const RANK = 40;

/** Adds the buttons to a card whose HTML is in `node`. `report` is null if the card has no valid one. */
export type AddButtons = (node: HTMLElement, report: CellReport | null) => void;

/**
 * Return a renderer of cards. It shows a card's HTML as JupyterLab does, with buttons.
 *
 * The renderer is not `safe`, so an output that is not trusted shows JupyterLab's sanitized HTML instead.
 */
export function cardRenderer(addButtons: AddButtons): IRenderMime.IRendererFactory {
  return {
    safe: false,
    mimeTypes: [REPORT_MIME, CARD_MIME],
    defaultRank: RANK,
    createRenderer: options => {
      const renderer = htmlRendererFactory.createRenderer({ ...options, mimeType: HTML });
      const render = renderer.renderModel.bind(renderer);
      renderer.renderModel = async model => {
        const { data } = model;
        if (typeof data[HTML] !== 'string') {
          // A program has written a report without its card.
          const text = document.createElement('pre');
          text.textContent = (data['text/plain'] as string | undefined) ?? '';
          renderer.node.replaceChildren(text);
          return;
        }
        await render(model);
        try {
          addButtons(renderer.node, parseReport(data[REPORT_MIME]));
        } catch (error) {
          console.warn('gpuwidget could not add buttons to a card.', error);
        }
      };
      return renderer;
    }
  };
}
