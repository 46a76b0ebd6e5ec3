import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, showDialog, type ISessionContext } from '@jupyterlab/apputils';
import type { Kernel, ServiceManager } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { Widget } from '@lumino/widgets';

import { heldBy, heldWords, losses, nameOf, type Actions, type Target } from './actions';
import { kernelKind } from './holders';
import { LossesBody } from './lossesBody';
import type { Outcome } from './outcome';
import { ConnectedKernel } from '../kernel/jupyterKernel';
import type { StreamModel } from '../stream/streamModel';
import { KERNEL_SCHEMA } from '../wire';

const REACHED_WITHIN_MS = 5000;
/** torch waits for what the GPU is doing before it gives its cache back. */
const FREED_WITHIN_MS = 60_000;

/** The actions, all through Jupyter's own interfaces and with the user's own rights. */
export class JupyterActions implements Actions {
  private readonly services: ServiceManager.IManager;

  constructor(
    private readonly app: JupyterFrontEnd,
    private readonly model: StreamModel,
    private readonly outcome: Outcome,
    private readonly trans: TranslationBundle
  ) {
    this.services = app.serviceManager;
  }

  async goTo({ kernel, terminal }: Target): Promise<void> {
    this.outcome.say('');
    const name = kernel === null ? this.trans.__('terminal %1', terminal ?? '') : this.nameOf(kernel);
    try {
      if (kernel !== null) {
        await this.goToKernel(kernel, name);
      } else if (terminal !== null) {
        await this.execute('terminal:open', { name: terminal }, name);
      }
    } catch (error) {
      this.outcome.say(this.trans.__('%1 could not be opened: %2', name, reasonOf(error)));
    }
  }

  async freeCache(kernel: string): Promise<void> {
    const name = this.nameOf(kernel);
    this.outcome.say(this.trans.__('%1: asking its kernel to free torch’s cache…', name));
    this.outcome.say(`${name}: ${await this.freed(kernel)}`);
  }

  async shutDown(id: string): Promise<void> {
    this.outcome.say('');
    const name = this.nameOf(id);
    const held = heldWords(this.trans, heldBy(this.model, id));
    const kernel = this.model.usage?.kernels.find(each => each.id === id) ?? null;
    const sessions = this.sessionsOf(id);
    const own = sessions.find(session => session.id === kernel?.session) ?? sessions[0];
    const others = sessions.filter(session => session !== own).map(({ name: other, path }) => other || path);
    const { button } = await showDialog({
      title: this.trans.__('Shut down the kernel of %1?', name),
      body: new LossesBody(
        this.trans.__('This is lost:'),
        losses(this.trans, kernel, this.isBusy(id), held, others),
        kernelKind(kernel) === 'notebook' ? this.trans.__('The notebook and its outputs stay.') : ''
      ),
      buttons: [
        Dialog.cancelButton({ label: this.trans.__('Cancel') }),
        Dialog.warnButton({ label: this.trans.__('Shut Down') })
      ],
      defaultButton: 0
    });
    if (!button.accept) {
      return;
    }
    try {
      const session = own?.id ?? null;
      await (session === null
        ? this.services.kernels.shutdown(id)
        : this.services.sessions.shutdown(session));
      this.outcome.say(
        held === ''
          ? this.trans.__('The kernel of %1 was shut down.', name)
          : this.trans.__('The kernel of %1 was shut down. It held %2.', name, held)
      );
    } catch (error) {
      this.outcome.say(this.trans.__('The kernel of %1 could not be shut down: %2', name, reasonOf(error)));
    }
  }

  private async goToKernel(id: string, name: string): Promise<void> {
    const widget = this.widgetOf(id);
    if (widget !== null) {
      this.app.shell.activateById(widget.id);
      return;
    }
    const kernel = this.model.usage?.kernels.find(each => each.id === id);
    const path = kernel?.path ?? this.sessionsOf(id)[0]?.path;
    if (path === undefined || path === '') {
      this.outcome.say(this.trans.__('%1 has no notebook and no console to go to.', name));
    } else if (kernel?.kind === 'console') {
      await this.execute('console:open', { path, activate: true }, name);
    } else {
      await this.execute('docmanager:open', { path }, name);
    }
  }

  /** JupyterLab's own command, where this application has it. */
  private async execute(
    command: string,
    options: Record<string, string | boolean>,
    name: string
  ): Promise<void> {
    if (this.app.commands.hasCommand(command)) {
      await this.app.commands.execute(command, options);
    } else {
      this.outcome.say(this.trans.__('This application cannot open %1: open it in JupyterLab.', name));
    }
  }

  private async freed(id: string): Promise<string> {
    const open = this.contextOf(this.widgetOf(id))?.session?.kernel ?? null;
    const spec = this.model.usage?.kernels.find(kernel => kernel.id === id)?.spec ?? '';
    const connection =
      open ?? this.services.kernels.connectTo({ model: { id, name: spec }, handleComms: false });
    try {
      const kernel = new ConnectedKernel(connection);
      // Where its kernelspec is gone, its language would have to wait for the running cell.
      const language = await within(REACHED_WITHIN_MS, kernel.language());
      if (language === null || !(await connected(connection))) {
        return this.trans.__('its kernel cannot be reached.');
      }
      if (language.toLowerCase() !== 'python') {
        return this.trans.__('its kernel speaks %1, not Python.', language);
      }
      return await this.ask(kernel);
    } catch (error) {
      return reasonOf(error);
    } finally {
      if (connection !== open) {
        connection.dispose();
      }
    }
  }

  private async ask(kernel: ConnectedKernel): Promise<string> {
    // Answered at once where gpuwidget is loaded; what may take long is asked only then.
    if ((await kernel.ask({ schema: KERNEL_SCHEMA, ask: 'state' })) === null) {
      return this.trans.__(
        'its kernel did not answer: gpuwidget is not loaded in it (%load_ext gpuwidget), or a long call holds it.'
      );
    }
    const answer = await kernel.ask({ schema: KERNEL_SCHEMA, ask: 'free_cache' }, FREED_WITHIN_MS);
    if (answer === null) {
      return this.trans.__('its kernel is still at it: torch waits for what the GPU is doing.');
    }
    return answer.status === 'error'
      ? answer.reason
      : ((answer.status === 'ok' ? answer.done : null) ??
          this.trans.__('its kernel did not say what it freed.'));
  }

  private widgetOf(kernel: string): Widget | null {
    const path = this.model.usage?.kernels.find(each => each.id === kernel)?.path ?? null;
    const widgets = [...this.app.shell.widgets('main')].filter(
      widget => this.contextOf(widget)?.session?.kernel?.id === kernel
    );
    // A console may share a notebook's kernel: the one that the session is named after.
    return widgets.find(widget => this.contextOf(widget)?.path === path) ?? widgets[0] ?? null;
  }

  private contextOf(widget: Widget | null): ISessionContext | null {
    return (widget as { sessionContext?: ISessionContext } | null)?.sessionContext ?? null;
  }

  private sessionsOf(kernel: string): { id: string; name: string; path: string }[] {
    return [...this.services.sessions.running()].filter(session => session.kernel?.id === kernel);
  }

  private isBusy(kernel: string): boolean {
    const said = this.model.usage?.kernels.find(each => each.id === kernel)?.state;
    return said === 'busy' || this.contextOf(this.widgetOf(kernel))?.session?.kernel?.status === 'busy';
  }

  private nameOf(kernel: string): string {
    return nameOf(this.trans, this.model, kernel, this.sessionsOf(kernel)[0]?.name ?? null);
  }
}

/** Whether it is connected, or becomes so soon. */
function connected(connection: Kernel.IKernelConnection): Promise<boolean> {
  return new Promise(resolve => {
    const settle = (): void => {
      window.clearTimeout(timer);
      connection.connectionStatusChanged.disconnect(look);
      resolve(connection.connectionStatus === 'connected');
    };
    const look = (): void => {
      if (connection.connectionStatus !== 'connecting') {
        settle();
      }
    };
    const timer = window.setTimeout(settle, REACHED_WITHIN_MS);
    connection.connectionStatusChanged.connect(look);
    look();
  });
}

/** What comes of `promise`, null where nothing does in time. */
function within<Value>(milliseconds: number, promise: Promise<Value>): Promise<Value | null> {
  return Promise.race([
    promise,
    new Promise<null>(resolve => {
      window.setTimeout(() => {
        resolve(null);
      }, milliseconds);
    })
  ]);
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
