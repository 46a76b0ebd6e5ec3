import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';

import type { MetricHistory, Sample } from '../../wire/wire';
import type { Socket, StreamServer } from './connection';
import { parseHistory, parseSample } from '../../wire/streamMessages';

const STREAM = 'gpuwidget/api/stream';
const SAMPLE = 'gpuwidget/api/sample';
const HISTORY = 'gpuwidget/api/history';
const CLUSTER = 'gpuwidget/api/cluster';

/** A request for a part of the server's history. */
export interface HistoryQuery {
  /** A time range in epoch seconds, or the last `seconds` seconds by the server's clock. */
  readonly part: { readonly since: number; readonly until: number } | { readonly seconds: number };
  readonly metrics: readonly string[];
  /** Maximum number of points per time series. */
  readonly points: number;
  /** Name of a machine of the cluster; null for the server's own machine. */
  readonly node: string | null;
}

/** Provides the history of the GPUs. */
export interface HistoryServer {
  /**
   * Return a part of the history, downsampled to the requested number of points. Rejects with a sentence to
   * display.
   */
  history(query: HistoryQuery, signal: AbortSignal): Promise<MetricHistory>;
}

/** Provides the history, and can store it even without pages. */
export interface AlwaysOnServer extends HistoryServer {
  /** Set whether samples are stored even without pages. Rejects with a sentence to display. */
  setAlwaysOn(on: boolean): Promise<void>;
}

/** Provides single samples. */
export interface SampleServer {
  /**
   * Return the newest sample; null if the server has no gpuwidget, or another version. Rejects if there is no
   * sample now.
   */
  sample(signal: AbortSignal): Promise<Sample | null>;
}

/** Provides the newest values of all GPUs of the cluster. */
export interface ClusterServer {
  /** Return the server's reply, which should be a `ClusterSnapshot`. Rejects with a sentence to display. */
  cluster(signal: AbortSignal): Promise<unknown>;
}

/** The routes of gpuwidget on the Jupyter server. */
export class ServerApi implements StreamServer, AlwaysOnServer, SampleServer, ClusterServer {
  /**
   * Whether the server keeps less history than this page requests. If so, a stream requests no particular
   * length and receives the server's whole history.
   */
  private hasShortHistory = false;

  /** `historySeconds` returns how much history a new stream starts with. */
  constructor(
    private readonly settings: ServerConnection.ISettings,
    private readonly historySeconds: () => number,
    private readonly trans: TranslationBundle
  ) {}

  /** Open the stream. */
  stream(): Socket {
    const query = new URLSearchParams(this.hasShortHistory ? {} : { history: String(this.historySeconds()) });
    if (this.settings.appendToken && this.settings.token !== '') {
      query.set('token', this.settings.token);
    }
    return new this.settings.WebSocket(`${URLExt.join(this.settings.wsUrl, STREAM)}?${query.toString()}`);
  }

  /** Return a part of the history, downsampled to the requested number of points. */
  async history({ part, metrics, points, node }: HistoryQuery, signal: AbortSignal): Promise<MetricHistory> {
    const query = new URLSearchParams({ metrics: metrics.join(','), points: String(points) });
    if (node !== null) {
      query.set('node', node);
    }
    for (const [name, seconds] of Object.entries(part)) {
      query.set(name, String(seconds));
    }
    const url = `${URLExt.join(this.settings.baseUrl, HISTORY)}?${query.toString()}`;
    const history = parseHistory(await this.json(url, { cache: 'no-store', signal }));
    if (history === null) {
      throw new Error(
        this.trans.__('The server and this page have different versions of gpuwidget. Reload the page.')
      );
    }
    return history;
  }

  /** Set whether samples are stored even without pages. */
  async setAlwaysOn(on: boolean): Promise<void> {
    const url = URLExt.join(this.settings.baseUrl, HISTORY);
    const init = { method: 'POST', body: JSON.stringify({ always_on: on }) };
    const response = await ServerConnection.makeRequest(url, init, this.settings);
    if (!response.ok) {
      throw await ServerConnection.ResponseError.create(response);
    }
  }

  /** Return the newest sample; null if the server has no gpuwidget, or another version. */
  async sample(signal: AbortSignal): Promise<Sample | null> {
    const url = URLExt.join(this.settings.baseUrl, SAMPLE);
    try {
      return parseSample(await this.json(url, { cache: 'no-store', signal }));
    } catch (error) {
      if (error instanceof ServerConnection.ResponseError && error.response.status === 404) {
        return null;
      }
      throw error;
    }
  }

  /** Return the newest values of all GPUs of the cluster. */
  async cluster(signal: AbortSignal): Promise<unknown> {
    const url = URLExt.join(this.settings.baseUrl, CLUSTER);
    // The browser revalidates its copy, so that the server need not send an unchanged snapshot again.
    return this.json(url, { cache: 'no-cache', signal });
  }

  /**
   * Return the HTTP status of the stream's route for a request that is not a websocket. It is 426 if
   * gpuwidget would accept a websocket, otherwise the status with which it refuses the websocket.
   */
  async status(): Promise<number> {
    const url = `${URLExt.join(this.settings.baseUrl, STREAM)}?history=${String(this.historySeconds())}`;
    const { status } = await ServerConnection.makeRequest(url, { cache: 'no-store' }, this.settings);
    this.hasShortHistory = status === 400;
    return status;
  }

  private async json(url: string, init: RequestInit): Promise<unknown> {
    const response = await ServerConnection.makeRequest(url, init, this.settings);
    if (!response.ok) {
      throw await ServerConnection.ResponseError.create(response);
    }
    return response.json();
  }
}
