import type { TranslationBundle } from '@jupyterlab/translation';
import { Spinner } from '@jupyterlab/ui-components';

import { errorText } from '../model/format';
import { element } from './dom';

/**
 * Return a part of this extension that the page loads only when somebody opens it. If it can't be loaded, say so in
 * `place`, and try again on request: the server may have stopped, or may have been updated since the page was loaded.
 */
export async function loadPart<Part>(
  trans: TranslationBundle,
  place: HTMLElement,
  load: () => Promise<Part>
): Promise<Part> {
  for (;;) {
    const spinner = new Spinner();
    place.append(spinner.node);
    place.classList.add('jp-gpuwidget-loading');
    try {
      return await load().finally(() => {
        place.classList.remove('jp-gpuwidget-loading');
        spinner.node.remove();
        spinner.dispose();
      });
    } catch (error) {
      await untilRetry(trans, place, errorText(error));
    }
  }
}

/** Show that a part could not be loaded until the user wants to try again. */
async function untilRetry(trans: TranslationBundle, place: HTMLElement, error: string): Promise<void> {
  const text = trans.__(
    'Couldn’t load this view from the Jupyter server. If gpuwidget was updated, reload the page.'
  );
  const button = element('button', 'button', trans.__('Try again'));
  button.type = 'button';
  const notice = element('div', 'not-loaded', element('div', '', text), button);
  notice.setAttribute('role', 'alert');
  notice.title = error;
  place.append(notice);
  await new Promise(resolve => {
    button.onclick = resolve;
  });
  place.tabIndex = -1;
  place.focus(); // The focused button is removed.
  notice.remove();
}
