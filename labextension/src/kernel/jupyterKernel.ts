import { KernelMessage, type Kernel as JupyterKernel } from '@jupyterlab/services';

import type { Kernel, Loading } from './kernel';
import { checkedReply } from './reply';
import { KERNEL_REPLY, KERNEL_REQUEST, type KernelReply, type KernelRequest } from '../wire';

const ANSWER_WITHIN_MS = 2000;
/** Evaluated one after the other, outside the history; an error in one is its value and shown nowhere. */
const LOAD = {
  version: "__import__('importlib').import_module('gpuwidget').__version__",
  loaded: "get_ipython().extension_manager.load_extension('gpuwidget')"
};

/** A kernel as JupyterLab is connected to it. */
export class ConnectedKernel implements Kernel {
  constructor(private readonly connection: JupyterKernel.IKernelConnection) {}

  get id(): string {
    return this.connection.id;
  }

  /** The language of its kernelspec; what the kernel itself says would have to wait for a running cell. */
  async language(): Promise<string> {
    const spec = await this.connection.spec;
    return spec?.language ?? (await this.connection.info).language_info.name;
  }

  /** Ask on the control channel; null where no answer came `within` milliseconds. */
  ask(question: KernelRequest, within = ANSWER_WITHIN_MS): Promise<KernelReply | null> {
    // The types know Jupyter's own messages only; the protocol leaves room for others.
    const message = KernelMessage.createMessage({
      channel: 'control',
      msgType: KERNEL_REQUEST as 'debug_request',
      session: this.connection.clientId,
      username: this.connection.username,
      content: question as unknown as KernelMessage.IDebugRequestMsg['content']
    });
    const future = this.connection.sendControlMessage(message, true, true);
    return new Promise(resolve => {
      const settle = (answer: KernelReply | null): void => {
        window.clearTimeout(timer);
        resolve(answer);
        future.dispose();
      };
      const timer = window.setTimeout(() => {
        settle(null);
      }, within);
      future.onReply = reply => {
        const type: string = reply.header.msg_type;
        settle(type === KERNEL_REPLY ? checkedReply(reply.content as unknown as KernelReply) : null);
      };
      // Rejected when it is disposed of, and when the kernel goes away.
      future.done.catch(() => {
        settle(null);
      });
    });
  }

  /** Load gpuwidget there: silent, in no history, and leaving no name behind. */
  async load(): Promise<Loading> {
    const future = this.connection.requestExecute({
      code: '',
      silent: true,
      store_history: false,
      allow_stdin: false,
      user_expressions: LOAD
    });
    try {
      const { content } = await future.done;
      if (content.status !== 'ok') {
        return { outcome: 'failed', reason: content.status === 'error' ? content.evalue : content.status };
      }
      const { version, loaded } = content.user_expressions as unknown as Record<keyof typeof LOAD, Value>;
      return outcome(version, loaded);
    } catch (error) {
      return { outcome: 'failed', reason: error instanceof Error ? error.message : String(error) };
    }
  }
}

type Value =
  | { readonly status: 'ok'; readonly data: { readonly 'text/plain': string } }
  | { readonly status: 'error'; readonly ename: string; readonly evalue: string };

function outcome(version: Value, loaded: Value): Loading {
  if (version.status === 'error' && version.ename === 'ModuleNotFoundError') {
    return { outcome: 'not-installed' };
  }
  if (loaded.status === 'error') {
    return { outcome: 'failed', reason: `${loaded.ename}: ${loaded.evalue}` };
  }
  if (loaded.data['text/plain'].includes('no load function')) {
    return { outcome: 'other-package' };
  }
  return {
    outcome: 'loaded',
    version: version.status === 'ok' ? version.data['text/plain'].replace(/^'|'$/g, '') : null
  };
}
