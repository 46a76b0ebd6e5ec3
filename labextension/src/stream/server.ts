import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import type { Server, Socket } from './connection';

const STREAM = 'gpuwidget/api/stream';
const HISTORY = 'gpuwidget/api/history';

/** gpuwidget's routes on the Jupyter server that this page comes from. */
export class JupyterServer implements Server {
  private readonly settings = ServerConnection.makeSettings();
  /** Whether this server is set to hold less of the past than is asked for: then all that it holds is. */
  private holdsLess = false;

  /** `seconds` tells how much of the past a stream is to start with. */
  constructor(private readonly seconds: () => number) {}

  /** Open the stream. */
  stream(): Socket {
    const query = new URLSearchParams(this.holdsLess ? {} : { history: String(this.seconds()) });
    if (this.settings.appendToken && this.settings.token !== '') {
      query.set('token', this.settings.token);
    }
    return new this.settings.WebSocket(`${URLExt.join(this.settings.wsUrl, STREAM)}?${query.toString()}`);
  }

  /** The HTTP status of the history, which asks for as much of the past as the stream does. */
  async status(): Promise<number> {
    const url = `${URLExt.join(this.settings.baseUrl, HISTORY)}?seconds=${String(this.seconds())}`;
    const { status } = await ServerConnection.makeRequest(url, { cache: 'no-store' }, this.settings);
    this.holdsLess = status === 400;
    return status;
  }
}
