import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, showDialog, type ISessionContext } from '@jupyterlab/apputils';
import { KernelAPI, type Kernel, type ServiceManager } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';

import {
  kernelKind,
  type ActionTarget,
  type HolderKind,
  holdingsOf,
  holdingsText,
  kernelNameById,
  losses
} from '../../model/memory/holders';
import type { MessageKind, StatusMessage } from '../../model/memory/statusMessage';
import type { IKernels } from '../../model/kernel/kernels';
import { ConnectedKernel } from '../../model/kernel/kernel';
import { lastValue, liveValue } from '../../model/freshness';
import type { IMonitor } from '../../tokens';
import { element } from '../../ui/dom';
import { errorText } from '../../model/format';
import type { ServerKernel } from '../../wire/wire';

const CONNECT_TIMEOUT_MS = 5000;
/** Timeout for freeing torch's cache: torch first waits for the GPU's pending work. */
const FREE_CACHE_TIMEOUT_MS = 60_000;

/**
 * The actions on holders of memory, through Jupyter's own interfaces and with the user's own rights. Each
 * action shows its result in the status message.
 */
export class HolderActions {
  private readonly services: ServiceManager.IManager;

  constructor(
    private readonly app: JupyterFrontEnd,
    private readonly monitor: Pick<IMonitor, 'data'>,
    private readonly message: StatusMessage,
    private readonly trans: TranslationBundle,
    private readonly locale: string
  ) {
    this.services = app.serviceManager;
  }

  /** Activate the tab of a kernel or terminal; open it if it is closed. */
  async goTo({ kernel, terminal }: ActionTarget): Promise<void> {
    this.message.clear();
    const name = kernel === null ? this.trans.__('terminal %1', terminal ?? '') : this.nameOf(kernel);
    try {
      if (kernel !== null) {
        await this.goToKernel(kernel, name);
      } else if (terminal !== null) {
        await this.execute('terminal:open', { name: terminal }, name);
      }
    } catch (error) {
      this.message.set(this.trans.__('%1 could not be opened: %2', name, errorText(error)), 'error');
    }
  }

  /** Free torch's cache in a kernel. */
  async freeCache(kernel: string): Promise<void> {
    const name = this.nameOf(kernel);
    this.message.set(this.trans.__('%1: freeing PyTorch’s cache…', name), 'progress', kernel);
    const [result, kind] = await this.freeCacheIn(kernel);
    this.message.set(`${name}: ${result}`, kind, kernel);
  }

  /** Return whether a kernel belongs to a notebook, a console or neither. */
  kindOf(kernel: string): HolderKind {
    return kernelKind(this.serverKernel(kernel));
  }

  /** Interrupt a kernel. */
  async interrupt(id: string): Promise<void> {
    const name = this.nameOf(id);
    const open = this.contextOf(this.widgetOf(id))?.session?.kernel;
    try {
      await (open ? open.interrupt() : KernelAPI.interruptKernel(id, this.services.serverSettings));
      this.message.set(this.trans.__('The kernel of %1 was interrupted.', name), 'result', id);
    } catch (error) {
      this.message.set(
        this.trans.__('The kernel of %1 could not be interrupted: %2', name, errorText(error)),
        'error'
      );
    }
  }

  /** Restart a kernel after the user has confirmed it. */
  async restart(id: string): Promise<void> {
    const name = this.nameOf(id);
    const held = this.heldText(id);
    const title = this.trans.__('Restart the kernel of %1?', name);
    if (!(await this.confirm(id, title, this.trans.__('Restart')))) {
      return;
    }
    const context = this.contextOf(this.widgetOf(id));
    try {
      await (context === null
        ? KernelAPI.restartKernel(id, this.services.serverSettings)
        : context.restartKernel());
      this.message.set(
        held === ''
          ? this.trans.__('The kernel of %1 was restarted.', name)
          : this.trans.__('The kernel of %1 was restarted. It held %2.', name, held),
        'result',
        id
      );
    } catch (error) {
      this.message.set(
        this.trans.__('The kernel of %1 could not be restarted: %2', name, errorText(error)),
        'error'
      );
    }
  }

  /** Shut down a kernel after the user has confirmed it. */
  async confirmShutDown(id: string): Promise<void> {
    const title = this.trans.__('Shut down the kernel of %1?', this.nameOf(id));
    if (await this.confirm(id, title, this.trans.__('Shut Down'))) {
      await this.shutDownNow(id);
    }
  }

  /** Shut down a kernel without a confirmation. */
  async shutDownNow(id: string): Promise<void> {
    const name = this.nameOf(id);
    const held = this.heldText(id);
    const session = this.sessionOf(id)?.id ?? null;
    try {
      // Jupyter's interfaces report a shutdown also for a kernel that the server does not have.
      if ((await KernelAPI.getKernelModel(id, this.services.serverSettings)) === undefined) {
        this.message.set(this.trans.__('The kernel of %1 had already ended.', name));
        return;
      }
      await (session === null
        ? this.services.kernels.shutdown(id)
        : this.services.sessions.shutdown(session));
      this.message.set(
        held === ''
          ? this.trans.__('The kernel of %1 was shut down.', name)
          : this.trans.__('The kernel of %1 was shut down. It held %2.', name, held)
      );
    } catch (error) {
      this.message.set(
        this.trans.__('The kernel of %1 could not be shut down: %2', name, errorText(error)),
        'error'
      );
    }
  }

  /** Ask the user to confirm the end of a kernel's process. The dialog lists what is lost. */
  private async confirm(id: string, title: string, label: string): Promise<boolean> {
    this.message.clear();
    const { trans } = this;
    const held = this.heldText(id);
    const kernel = this.serverKernel(id);
    const own = this.sessionOf(id);
    const others = this.sessionsOf(id)
      .filter(session => session.id !== own?.id)
      .map(({ name, path }) => name || path);
    const { button } = await showDialog({
      title,
      body: new LossesDialogBody(
        trans.__('You will lose:'),
        losses(trans, kernel, this.isBusy(id), held, others),
        kernelKind(kernel) === 'notebook' ? trans.__('The notebook and its outputs are kept.') : ''
      ),
      buttons: [Dialog.cancelButton({ label: trans.__('Cancel') }), Dialog.warnButton({ label })],
      defaultButton: 0
    });
    return button.accept;
  }

  private async goToKernel(id: string, name: string): Promise<void> {
    const widget = this.widgetOf(id);
    if (widget !== null) {
      this.app.shell.activateById(widget.id);
      return;
    }
    const kernel = this.serverKernel(id);
    const path = kernel?.path ?? this.sessionsOf(id)[0]?.path;
    if (path === undefined || path === '') {
      this.message.set(this.trans.__('%1 has no notebook and no console.', name), 'error');
    } else if (kernel?.kind === 'console') {
      await this.execute('console:open', { path, activate: true }, name);
    } else {
      await this.execute('docmanager:open', { path }, name);
    }
  }

  /**
   * Execute a command of JupyterLab, or report that the application has no such command, as in Notebook 7.
   */
  private async execute(
    command: string,
    options: Record<string, string | boolean>,
    name: string
  ): Promise<void> {
    if (this.app.commands.hasCommand(command)) {
      await this.app.commands.execute(command, options);
    } else {
      this.message.set(this.trans.__('%1 can be opened only in JupyterLab.', name), 'error');
    }
  }

  /** Free torch's cache in a kernel and return the result, or why it failed, as a sentence. */
  private async freeCacheIn(id: string): Promise<readonly [string, MessageKind]> {
    const open = this.contextOf(this.widgetOf(id))?.session?.kernel ?? null;
    const spec = this.serverKernel(id)?.spec ?? '';
    const connection =
      open ?? this.services.kernels.connectTo({ model: { id, name: spec }, handleComms: false });
    try {
      const kernel = new ConnectedKernel(connection, this.locale);
      // If the kernelspec is unknown, the language is requested from the kernel, which replies only after the
      // running cell has ended. Therefore, the wait is limited.
      const language = await withTimeout(CONNECT_TIMEOUT_MS, kernel.language());
      if (language === null || !(await isConnected(connection))) {
        return [this.trans.__('the kernel cannot be reached.'), 'error'];
      }
      if (language.toLowerCase() !== 'python') {
        return [this.trans.__('the kernel’s language is %1, not Python.', language), 'error'];
      }
      return await this.requestFreeCache(kernel);
    } catch (error) {
      return [errorText(error), 'error'];
    } finally {
      if (connection !== open) {
        connection.dispose();
      }
    }
  }

  private async requestFreeCache(kernel: ConnectedKernel): Promise<readonly [string, MessageKind]> {
    // A kernel that has loaded gpuwidget replies to a state request at once. If there is no reply, do not
    // send the request to free the cache, which has a long timeout.
    if ((await kernel.request({ ask: 'state' })) === null) {
      return [
        this.trans.__(
          'the kernel did not reply: gpuwidget is not loaded in it (%load_ext gpuwidget), or a long call blocks it. To free all of its memory, choose “%1”.',
          shutDownLabel(this.trans)
        ),
        'error'
      ];
    }
    const reply = await kernel.request({ ask: 'free_cache' }, FREE_CACHE_TIMEOUT_MS);
    if (reply === null) {
      return [
        this.trans.__('the cache has not been freed yet: PyTorch waits for the GPU’s pending work.'),
        'error'
      ];
    }
    if (reply.status === 'error') {
      return [reply.reason, 'error'];
    }
    const done = reply.status === 'ok' ? reply.done : null;
    return done === null
      ? [this.trans.__('the kernel did not report what it freed.'), 'error']
      : [done, 'result'];
  }

  private widgetOf(kernel: string): Widget | null {
    const path = this.serverKernel(kernel)?.path ?? null;
    const widgets = [...this.app.shell.widgets('main')].filter(
      widget => this.contextOf(widget)?.session?.kernel?.id === kernel
    );
    // A notebook and a console may share a kernel: prefer the tab with the path of the kernel's session.
    return widgets.find(widget => this.contextOf(widget)?.path === path) ?? widgets[0] ?? null;
  }

  private contextOf(widget: Widget | null): ISessionContext | null {
    return (widget as { sessionContext?: ISessionContext } | null)?.sessionContext ?? null;
  }

  /** Return what a kernel holds now; an empty text if that is nothing or unknown. */
  private heldText(id: string): string {
    const data = liveValue(this.monitor.data);
    return data === null ? '' : holdingsText(this.trans, holdingsOf(data, id));
  }

  /** Return the server's last data about a kernel. Its state may be old. */
  private serverKernel(id: string): ServerKernel | null {
    return lastValue(this.monitor.data)?.usage?.kernels.find(each => each.id === id) ?? null;
  }

  /** Return the session of the kernel's own notebook or console; undefined if the kernel has no session. */
  private sessionOf(kernel: string): { id: string } | undefined {
    const sessions = this.sessionsOf(kernel);
    const id = this.serverKernel(kernel)?.session;
    return sessions.find(session => session.id === id) ?? sessions[0];
  }

  private sessionsOf(kernel: string): { id: string; name: string; path: string }[] {
    return [...this.services.sessions.running()].filter(session => session.kernel?.id === kernel);
  }

  private isBusy(kernel: string): boolean {
    const isKnown = this.monitor.data.kind === 'live';
    return (
      (isKnown && this.serverKernel(kernel)?.state === 'busy') ||
      this.contextOf(this.widgetOf(kernel))?.session?.kernel?.status === 'busy'
    );
  }

  private nameOf(kernel: string): string {
    return kernelNameById(
      this.trans,
      lastValue(this.monitor.data)?.usage ?? null,
      kernel,
      this.sessionsOf(kernel)[0]?.name ?? null
    );
  }
}

/**
 * Return the label of the command that frees torch's cache in a kernel, with the reason why it can't; null if it
 * can, or if that is unknown. A `kernel` that is null stands for the active notebook's.
 */
export function disabledFreeCacheLabel(
  trans: TranslationBundle,
  { view }: Pick<IKernels, 'view'>,
  kernel: string | null
): string | null {
  const active = view.kernel?.id ?? null;
  if ((kernel ?? active) === null) {
    return trans.__('Free PyTorch Cache (no kernel)');
  }
  const { condition } = view;
  if (kernel !== null && kernel !== active) {
    return null;
  }
  switch (condition.kind) {
    case 'ready':
      return condition.state.torch === null
        ? trans.__('Free PyTorch Cache (torch is not imported)')
        : condition.state.cuda_initialized
          ? null
          : trans.__('Free PyTorch Cache (PyTorch has not used a GPU)');
    case 'not-python':
      return trans.__('Free PyTorch Cache (not a Python kernel)');
    case 'querying':
    case 'loading':
    case 'unanswered':
      return null;
    case 'not-loaded':
      return trans.__('Free PyTorch Cache (gpuwidget is not loaded)');
    case 'dead':
      return trans.__('Free PyTorch Cache (the kernel has died)');
    case 'starting':
    case 'restarting':
      return trans.__('Free PyTorch Cache (the kernel is starting)');
    case 'unreachable':
      return trans.__('Free PyTorch Cache (the kernel cannot be reached)');
    default:
      return trans.__('Free PyTorch Cache (not available in this kernel)');
  }
}

/** Return the label of the command that shuts down a kernel. */
export function shutDownLabel(trans: TranslationBundle): string {
  return trans.__('Shut Down Kernel…');
}

/** The content of a confirmation: a list of what is lost, between two sentences. */
class LossesDialogBody extends Widget {
  constructor(before: string, losses: readonly string[], after: string) {
    const items = losses.map(loss => element('li', '', loss));
    super({
      node: element(
        'div',
        'holder-losses',
        element('div', '', before),
        element('ul', '', ...items),
        element('div', '', after)
      )
    });
  }
}

/** Wait until a connection is established or has failed, and return whether it is established. */
function isConnected(connection: Kernel.IKernelConnection): Promise<boolean> {
  return new Promise(resolve => {
    const settle = (): void => {
      window.clearTimeout(timer);
      connection.connectionStatusChanged.disconnect(check);
      resolve(connection.connectionStatus === 'connected');
    };
    const check = (): void => {
      if (connection.connectionStatus !== 'connecting') {
        settle();
      }
    };
    const timer = window.setTimeout(settle, CONNECT_TIMEOUT_MS);
    connection.connectionStatusChanged.connect(check);
    check();
  });
}

/** Return the result of `promise`, or null if it takes longer than `milliseconds`. */
async function withTimeout<Value>(milliseconds: number, promise: Promise<Value>): Promise<Value | null> {
  let timer = 0;
  const timeout = new Promise<null>(resolve => {
    timer = window.setTimeout(() => {
      resolve(null);
    }, milliseconds);
  });
  try {
    return await Promise.race([promise, timeout]);
  } finally {
    window.clearTimeout(timer);
  }
}
