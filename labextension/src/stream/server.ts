import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import type { MetricHistory } from '../wire';
import type { Server, Socket } from './connection';

const STREAM = 'gpuwidget/api/stream';
const HISTORY = 'gpuwidget/api/history';

/** A part of the past and how it is to be told. */
export interface CourseQuery {
  /** From when to when, epoch seconds, or so many seconds until now by the server's clock. */
  readonly part: { readonly since: number; readonly until: number } | { readonly seconds: number };
  readonly metrics: readonly string[];
  /** Most points of a course. */
  readonly points: number;
}

/** Who tells a part of the past. Rejects with a sentence where that can't be. */
export interface CourseServer {
  course(query: CourseQuery): Promise<MetricHistory>;
}

/** gpuwidget's routes on the Jupyter server that this page comes from. */
export class JupyterServer implements Server, CourseServer {
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

  /** A part of the past in steps that fit. */
  async course({ part, metrics, points }: CourseQuery): Promise<MetricHistory> {
    const query = new URLSearchParams({ metrics: metrics.join(','), points: String(points) });
    for (const [name, seconds] of Object.entries(part)) {
      query.set(name, String(seconds));
    }
    const url = `${URLExt.join(this.settings.baseUrl, HISTORY)}?${query.toString()}`;
    const response = await ServerConnection.makeRequest(url, { cache: 'no-store' }, this.settings);
    if (!response.ok) {
      throw await ServerConnection.ResponseError.create(response);
    }
    return (await response.json()) as MetricHistory;
  }

  /** The HTTP status of the history, which asks for as much of the past as the stream does. */
  async status(): Promise<number> {
    const url = `${URLExt.join(this.settings.baseUrl, HISTORY)}?seconds=${String(this.seconds())}`;
    const { status } = await ServerConnection.makeRequest(url, { cache: 'no-store' }, this.settings);
    this.holdsLess = status === 400;
    return status;
  }
}
