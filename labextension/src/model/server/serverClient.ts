import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';

import { parseSnapshot } from '../../wire/clusterSnapshot';
import { parseDiagnosis, type TranslatedDiagnosis } from '../../wire/kernelReply';
import { parseHistory, parseSample } from '../../wire/streamMessages';
import type { ClusterSnapshot, MetricHistory, Sample } from '../../wire/wire';
import { failureText, type Failure, type FailureKind, type Result } from './result';

const ROUTES = 'gpuwidget/api';
/** Timeout of a request. On a dead connection, it would otherwise be pending for minutes. */
const TIMEOUT_MS = 10_000;
/** Timeout of a snapshot of the cluster, which is large. */
const CLUSTER_TIMEOUT_MS = 20_000;
/** Timeout of the doctor's checks, longer than the 20 seconds after which the server stops them. */
const DOCTOR_TIMEOUT_MS = 30_000;
/** Timeout of a part of the history, which Prometheus may have to compute. */
const HISTORY_TIMEOUT_MS = 120_000;
/** HTTP status of a request that has changed something. A proxy's page, such as that of a login, has status 200. */
const DONE = 204;
/** HTTP status of the stream's route for a request that is not a websocket, if it would accept a websocket. */
const UPGRADE_REQUIRED = 426;
/** HTTP status of the stream's route if the server has less history than requested. */
const INVALID_PARAMETER = 400;
/**
 * HTTP statuses with which gpuwidget rejects a request, with a reason. The same statuses without one, and all
 * others, come from a proxy, such as that of a JupyterHub whose server is stopped (424).
 */
const REJECTIONS: readonly number[] = [400, 404, 500, 503];

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

/** The part of a WebSocket that is used here. */
export type Socket = Pick<WebSocket, 'onmessage' | 'onclose' | 'close' | 'send'>;

/** What a request has in addition to its route. */
export interface RequestOptions extends RequestInit {
  readonly query?: Readonly<Record<string, string>>;
  /** Timeout in milliseconds. */
  readonly timeout?: number;
}

/** The routes of gpuwidget on the Jupyter server. No request rejects: a failure is a result. */
export class ServerClient {
  /**
   * Whether the server keeps less history than this page requests. If so, a stream requests no particular
   * length and receives the server's whole history.
   */
  private hasShortHistory = false;

  /** `historySeconds` returns how much history a new stream starts with. */
  constructor(
    private readonly settings: ServerConnection.ISettings,
    private readonly trans: TranslationBundle,
    private readonly historySeconds: () => number = () => 0
  ) {}

  /** Open the stream. */
  stream(): Socket {
    const query = new URLSearchParams(this.hasShortHistory ? {} : this.streamQuery);
    if (this.settings.appendToken && this.settings.token !== '') {
      query.set('token', this.settings.token);
    }
    const url = URLExt.join(this.settings.wsUrl, ROUTES, 'stream');
    return new this.settings.WebSocket(`${url}?${query.toString()}`);
  }

  /**
   * Return why a websocket failed, which a browser does not report. The result is `ok` if gpuwidget would accept
   * a websocket.
   */
  async probe(signal: AbortSignal): Promise<Result<null>> {
    const reply = await this.send('stream', { query: this.streamQuery, signal });
    const hasShortHistory = reply?.status === INVALID_PARAMETER;
    if (!hasShortHistory && reply?.status !== UPGRADE_REQUIRED) {
      return this.failure(reply);
    }
    this.hasShortHistory = hasShortHistory;
    return { kind: 'ok', value: null };
  }

  /** Return the newest sample. */
  sample(signal: AbortSignal): Promise<Result<Sample>> {
    return this.request('sample', parseSample, { signal });
  }

  /** Return a part of the history, downsampled to the requested number of points. */
  history(
    { part, metrics, points, node }: HistoryQuery,
    signal: AbortSignal
  ): Promise<Result<MetricHistory>> {
    const query = {
      metrics: metrics.join(','),
      points: String(points),
      ...(node !== null && { node }),
      ...Object.fromEntries(Object.entries(part).map(([name, seconds]) => [name, String(seconds)]))
    };
    return this.request('history', parseHistory, { query, timeout: HISTORY_TIMEOUT_MS, signal });
  }

  /** Set whether samples are stored even without pages. */
  async setAlwaysOn(on: boolean): Promise<Result<null>> {
    const reply = await this.send('history', { method: 'POST', body: JSON.stringify({ always_on: on }) });
    return reply?.status === DONE ? { kind: 'ok', value: null } : this.failure(reply);
  }

  /** Return the newest values of all GPUs of the cluster. */
  cluster(signal: AbortSignal): Promise<Result<ClusterSnapshot>> {
    // The browser revalidates its copy, so that the server need not send an unchanged snapshot again.
    return this.request('cluster', parseSnapshot, { cache: 'no-cache', timeout: CLUSTER_TIMEOUT_MS, signal });
  }

  /** Run the doctor's checks in the server, and return the diagnosis with its texts in a language. */
  async diagnose(locale: string): Promise<Result<TranslatedDiagnosis>> {
    const options = { method: 'POST', query: { locale }, timeout: DOCTOR_TIMEOUT_MS };
    const result = await this.request('doctor', parseDiagnosis, options);
    return result.kind === 'unreachable'
      ? {
          ...result,
          reason: this.trans.__(
            'The server did not answer. Check that it is running, then run the doctor again.'
          )
        }
      : result;
  }

  private get streamQuery(): { history: string } {
    return { history: String(this.historySeconds()) };
  }

  /** Return the parsed reply of a route. */
  async request<Value>(
    route: string,
    parse: (json: unknown) => Value | null,
    options: RequestOptions
  ): Promise<Result<Value>> {
    const reply = await this.send(route, options);
    // A proxy's page, such as that of a login, isn't JSON.
    if (reply?.ok !== true || reply.json === undefined) {
      return this.failure(reply);
    }
    const value = parse(reply.json);
    return value === null ? this.failureOf('foreign') : { kind: 'ok', value };
  }

  /** Send a request. Return the reply, whose `json` is undefined if it has none; null if there was no reply. */
  private async send(
    route: string,
    { query = {}, timeout = TIMEOUT_MS, signal, ...init }: RequestOptions
  ): Promise<Reply | null> {
    const { baseUrl } = this.settings;
    const url = URLExt.join(baseUrl, ROUTES, route) + URLExt.objectToQueryString(query);
    // Firefox and Safari have `AbortSignal.any()` only since 2024.
    const request = new AbortController();
    for (const each of [AbortSignal.timeout(timeout), ...(signal ? [signal] : [])]) {
      each.addEventListener('abort', () => {
        request.abort();
      });
    }
    const options = { cache: 'no-store', ...init, signal: request.signal } as const;
    try {
      const response = await ServerConnection.makeRequest(url, options, this.settings);
      const json: unknown = await response.json().catch(() => undefined);
      return { ok: response.ok, status: response.status, json };
    } catch {
      return null;
    }
  }

  private failure(reply: Reply | null): Failure {
    const { status = 0, json } = reply ?? {};
    const { message } = (json ?? {}) as { message?: unknown };
    const reason = typeof message === 'string' && message !== '' ? message : null;
    // Jupyter's own messages, such as 'Not Found', aren't sentences.
    const sentence = reason?.endsWith('.') === true ? reason : undefined;
    if (status === 401 || status === 403) {
      return this.failureOf('refused', sentence);
    }
    if (status === 405 || (status === 404 && sentence === undefined)) {
      return this.failureOf('absent');
    }
    if (status === 429) {
      return this.failureOf('busy', sentence);
    }
    return reason !== null && REJECTIONS.includes(status)
      ? this.failureOf('failed', reason)
      : this.failureOf('unreachable');
  }

  private failureOf(kind: FailureKind, reason = failureText(this.trans, kind)): Failure {
    return { kind, reason };
  }
}

interface Reply {
  readonly ok: boolean;
  readonly status: number;
  readonly json: unknown;
}
