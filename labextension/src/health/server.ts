import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';

import type { Diagnosis } from '../wire';
import type { ServerDoctor } from './health';

const DOCTOR = 'gpuwidget/api/doctor';
/** An examination takes seconds, 20 at most. */
const WITHIN_MS = 30_000;
/** A server that has no doctor, or one that was asked by another method. */
const OTHER_VERSION: readonly number[] = [404, 405];

/** The doctor of the server that this page comes from. */
export class JupyterServerDoctor implements ServerDoctor {
  private readonly settings = ServerConnection.makeSettings();

  constructor(private readonly trans: TranslationBundle) {}

  /** Its diagnosis. Rejected with the reason, as a sentence to show. */
  async examine(): Promise<Diagnosis> {
    const { trans } = this;
    const url = URLExt.join(this.settings.baseUrl, DOCTOR);
    let response: Response;
    try {
      const signal = AbortSignal.timeout(WITHIN_MS);
      response = await ServerConnection.makeRequest(
        url,
        { method: 'POST', cache: 'no-store', signal },
        this.settings
      );
    } catch {
      throw new Error(trans.__('The server did not answer. See whether it still runs, and look again.'));
    }
    if (response.ok) {
      return (await response.json()) as Diagnosis;
    }
    if (OTHER_VERSION.includes(response.status)) {
      throw new Error(trans.__("The server's gpuwidget is older than this page: restart the server."));
    }
    throw new Error(await reason(response, trans));
  }
}

async function reason(response: Response, trans: TranslationBundle): Promise<string> {
  const unknown = trans.__('The server could not look (HTTP %1): its log says why.', response.status);
  try {
    const { message } = (await response.json()) as { message?: unknown };
    return typeof message === 'string' && message !== '' ? message : unknown;
  } catch {
    return unknown;
  }
}
