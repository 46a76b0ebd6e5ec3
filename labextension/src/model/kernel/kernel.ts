import { KernelMessage, type Kernel as JupyterKernel } from '@jupyterlab/services';

import { parseReply, type ParsedReply } from '../../wire/kernelReply';
import { errorText } from '../format';
import type { KernelActivity } from './kernelActivity';
import { KERNEL_REPLY, KERNEL_REQUEST, KERNEL_SCHEMA, LOAD_CODE, type KernelRequest } from '../../wire/wire';

type WithoutSchema<Request> = Request extends unknown ? Omit<Request, 'schema'> : never;

/** The content of a request to a kernel, without the version that every request contains. */
export type RequestContent = WithoutSchema<KernelRequest>;

/** The result of loading gpuwidget in a kernel. */
export type LoadResult =
  | { readonly outcome: 'loaded'; readonly version: string | null }
  | { readonly outcome: 'not-installed' }
  /** Python would import the folder or file `path`, which is not an installed package. Nothing was imported. */
  | { readonly outcome: 'refused'; readonly path: string }
  | { readonly outcome: 'other-package' }
  | { readonly outcome: 'failed'; readonly reason: string };

/** The kernel of one notebook. */
export interface Kernel {
  /** The kernel's id in the server's `GET api/kernels`. */
  readonly id: string;
  readonly activity: Pick<KernelActivity, 'phase' | 'changed' | 'showsRequests'>;
  /** Return the kernel's language, such as `python`, which is taken from the kernelspec. */
  language(): Promise<string>;
  /**
   * Send a request on the control channel, on which a kernel replies even while it is busy. Resolves to null
   * if no reply arrives within `timeoutMs`, which is two seconds by default. In a page that has just connected
   * to the kernel, the time starts when JupyterLab sends what it has queued.
   */
  request(content: RequestContent, timeoutMs?: number): Promise<ParsedReply | null>;
  /** Load gpuwidget without changing the history, the outputs or the user's namespace. */
  load(): Promise<LoadResult>;
}

const REPLY_TIMEOUT_MS = 2000;
/**
 * For so long, JupyterLab queues the messages of a page that has just connected to a busy kernel: its setting *Kernel Info
 * Timeout*, by default. If the kernel is idle, it replies to `kernel_info_request`, and the queue is sent at once.
 */
const QUEUE_MS = 3000;
/** How often to send the code that loads gpuwidget: a cell that fails aborts what is queued behind it. */
const MAX_LOADS = 20;
/**
 * A Python expression that loads gpuwidget. The code runs in a separate namespace. Every JSON string is also a
 * Python string.
 */
const LOAD_EXPRESSION = `(lambda names: (exec(${JSON.stringify(LOAD_CODE)}, names), names['load'](get_ipython()))[1])({})`;

/** A kernel with which this page communicates over JupyterLab's connection. */
export class ConnectedKernel implements Omit<Kernel, 'activity'> {
  private queueSent: Promise<unknown> | null = null;

  /** `locale` is the language of this page, in which the kernel's texts and cards are shown. */
  constructor(
    private readonly connection: JupyterKernel.IKernelConnection,
    private readonly locale: string
  ) {}

  get id(): string {
    return this.connection.id;
  }

  /**
   * Return the language in the kernelspec. If there is no kernelspec, request the language from the kernel,
   * which replies only after the running cell has ended.
   */
  async language(): Promise<string> {
    const spec = await this.connection.spec;
    return spec?.language ?? (await this.connection.info).language_info.name;
  }

  request(content: RequestContent, timeoutMs = REPLY_TIMEOUT_MS): Promise<ParsedReply | null> {
    const request = { schema: KERNEL_SCHEMA, ...content };
    // JupyterLab's types include only the standard message types, although the protocol allows others.
    const message = KernelMessage.createMessage({
      channel: 'control',
      msgType: KERNEL_REQUEST as 'debug_request',
      session: this.connection.clientId,
      username: this.connection.username,
      content: { ...request, locale: this.locale } as unknown as KernelMessage.IDebugRequestMsg['content']
    });
    const future = this.connection.sendControlMessage(message, true, true);
    return new Promise(resolve => {
      const finish = (reply: ParsedReply | null): void => {
        window.clearTimeout(timer);
        resolve(reply);
        future.dispose();
      };
      let timer = 0;
      void this.untilSent().then(() => {
        if (!future.isDisposed) {
          timer = window.setTimeout(() => {
            finish(null);
          }, timeoutMs);
        }
      });
      future.onReply = reply => {
        const type: string = reply.header.msg_type;
        finish(type === KERNEL_REPLY ? parseReply(reply.content) : null);
      };
      // The future rejects if it is disposed of or if the kernel is shut down or restarted.
      future.done.catch(() => {
        finish(null);
      });
    });
  }

  /** Wait until JupyterLab has sent what it queued. Requests are made only while the page is connected. */
  private untilSent(): Promise<unknown> {
    this.queueSent ??= new Promise(resolve => {
      const timer = window.setTimeout(resolve, QUEUE_MS);
      const finish = (): void => {
        window.clearTimeout(timer);
        resolve(null);
      };
      void this.connection.info.then(finish, finish);
    });
    return this.queueSent;
  }

  /** Load gpuwidget silently, without a history entry and without adding a name to the user's namespace. */
  async load(): Promise<LoadResult> {
    const execute = async (): Promise<KernelMessage.IExecuteReplyMsg['content']> => {
      const future = this.connection.requestExecute({
        code: '',
        silent: true,
        store_history: false,
        allow_stdin: false,
        user_expressions: { load: LOAD_EXPRESSION }
      });
      return (await future.done).content;
    };
    try {
      let content = await execute();
      for (let loads = 1; content.status === 'aborted' && loads < MAX_LOADS; loads++) {
        content = await execute();
      }
      if (content.status !== 'ok') {
        return { outcome: 'failed', reason: content.status === 'error' ? content.evalue : content.status };
      }
      const { load } = content.user_expressions as unknown as { readonly load: ExpressionValue };
      return loadResult(load);
    } catch (error) {
      return { outcome: 'failed', reason: errorText(error) };
    }
  }
}

/** The value of a Python expression, or the error that it raised. */
export type ExpressionValue =
  | { readonly status: 'ok'; readonly data: { readonly 'text/plain': string } }
  | { readonly status: 'error'; readonly ename: string; readonly evalue: string };

/** Return the result that the Python code `LOAD_CODE` reports. */
export function loadResult(value: ExpressionValue): LoadResult {
  if (value.status === 'error') {
    return { outcome: 'failed', reason: `${value.ename}: ${value.evalue}` };
  }
  const [, outcome, hexadecimal = ''] = /^'([a-z-]+) ([0-9a-f]*)'$/.exec(value.data['text/plain']) ?? [];
  const bytes = hexadecimal.match(/../g)?.map(byte => parseInt(byte, 16)) ?? [];
  const detail = new TextDecoder().decode(new Uint8Array(bytes));
  switch (outcome) {
    case 'loaded':
      return { outcome, version: detail === '' ? null : detail };
    case 'refused':
      return { outcome, path: detail };
    case 'not-installed':
    case 'other-package':
      return { outcome };
    default:
      return { outcome: 'failed', reason: value.data['text/plain'] };
  }
}
