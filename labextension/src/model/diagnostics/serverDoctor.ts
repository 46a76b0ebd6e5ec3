import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';

import { parseDiagnosis, type TranslatedDiagnosis } from '../../wire/kernelReply';
import type { ServerDoctor } from './diagnosticsModel';

const DOCTOR = 'gpuwidget/api/doctor';
/** Timeout of the request, longer than the 20 seconds after which the server stops its checks. */
const TIMEOUT_MS = 30_000;
/**
 * HTTP status codes from a server whose version of gpuwidget has no doctor or expects another HTTP method.
 */
const OTHER_VERSION: readonly number[] = [404, 405];

/** Runs the doctor's checks in the Jupyter server of this page. */
export class JupyterServerDoctor implements ServerDoctor {
  constructor(
    private readonly settings: ServerConnection.ISettings,
    private readonly trans: TranslationBundle,
    private readonly locale: string
  ) {}

  /** Return the diagnosis. The promise rejects with a sentence to display. */
  async diagnose(): Promise<TranslatedDiagnosis> {
    const { trans } = this;
    const query = URLExt.objectToQueryString({ locale: this.locale });
    const url = URLExt.join(this.settings.baseUrl, DOCTOR) + query;
    let response: Response;
    try {
      const signal = AbortSignal.timeout(TIMEOUT_MS);
      response = await ServerConnection.makeRequest(
        url,
        { method: 'POST', cache: 'no-store', signal },
        this.settings
      );
    } catch {
      throw new Error(
        trans.__('The server did not answer. Check that it is running, then run the doctor again.')
      );
    }
    if (response.ok) {
      const diagnosis = parseDiagnosis(await response.json());
      if (diagnosis !== null) {
        return diagnosis;
      }
    } else if (!OTHER_VERSION.includes(response.status)) {
      throw new Error(await failureReason(response, trans));
    }
    throw new Error(trans.__("The server's gpuwidget is older than this page: restart the server."));
  }
}

async function failureReason(response: Response, trans: TranslationBundle): Promise<string> {
  const unknown = trans.__(
    'The server could not run the checks (HTTP %1). The reason is in its log.',
    response.status
  );
  try {
    const { message } = (await response.json()) as { message?: unknown };
    return typeof message === 'string' && message !== '' ? message : unknown;
  } catch {
    return unknown;
  }
}
