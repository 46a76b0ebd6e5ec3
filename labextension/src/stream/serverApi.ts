import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import type { ClusterSnapshot, MetricHistory } from '../wire';
import type { Socket, StreamServer } from './connection';

const STREAM = 'gpuwidget/api/stream';
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

/** Provides the newest values of all GPUs of the cluster. */
export interface ClusterServer {
  /** Return the newest snapshot. Rejects with a sentence to display. */
  cluster(signal: AbortSignal): Promise<ClusterSnapshot>;
}

/** The routes of gpuwidget on the Jupyter server. */
export class ServerApi implements StreamServer, HistoryServer, ClusterServer {
  /**
   * Whether the server keeps less history than this page requests. If so, a stream requests no particular
   * length and receives the server's whole history.
   */
  private hasShortHistory = false;

  /** `historySeconds` returns how much history a new stream starts with. */
  constructor(
    private readonly settings: ServerConnection.ISettings,
    private readonly historySeconds: () => number
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
    return (await this.get(`${HISTORY}?${query.toString()}`, signal)) as MetricHistory;
  }

  /** Return the newest snapshot of the cluster. */
  async cluster(signal: AbortSignal): Promise<ClusterSnapshot> {
    return (await this.get(CLUSTER, signal)) as ClusterSnapshot;
  }

  /** Return the HTTP status of a request for the history with which a stream starts. */
  async status(): Promise<number> {
    const url = `${URLExt.join(this.settings.baseUrl, HISTORY)}?seconds=${String(this.historySeconds())}`;
    const { status } = await ServerConnection.makeRequest(url, { cache: 'no-store' }, this.settings);
    this.hasShortHistory = status === 400;
    return status;
  }

  private async get(path: string, signal: AbortSignal): Promise<unknown> {
    const url = URLExt.join(this.settings.baseUrl, path);
    const response = await ServerConnection.makeRequest(url, { cache: 'no-store', signal }, this.settings);
    if (!response.ok) {
      throw await ServerConnection.ResponseError.create(response);
    }
    return response.json();
  }
}
