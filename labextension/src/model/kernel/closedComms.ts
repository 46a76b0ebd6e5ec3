import type { ISessionContext } from '@jupyterlab/apputils';
import type { Kernel, KernelMessage } from '@jupyterlab/services';

const WIDGET_TARGET = 'jupyter.widget';

/** A kernel connection of JupyterLab, with the open comms, for which its interface has no method. */
interface Connection {
  readonly _comms?: { get?: (id: string) => Kernel.IComm | undefined };
}

/** A notebook's session, as far as it is needed here. */
export type Session = Pick<ISessionContext, 'iopubMessage' | 'kernelChanged' | 'statusChanged'> & {
  readonly session: { readonly kernel: object | null } | null;
};

/**
 * Let the browser free the widgets of a notebook when the kernel closes them, such as those of a live chart.
 *
 * JupyterLab (4.6 at least) connects each comm to its kernel's signal `statusChanged` and never disconnects
 * it. A closed comm therefore stays in memory until the kernel's connection is disposed, and through its
 * callbacks also the widget's model and its elements: up to 1 MiB for each live chart of 16 GPUs. The
 * callbacks of a closed comm are never called again, so they are removed.
 */
export function releaseClosedComms(context: Session): void {
  const open = new Map<string, Kernel.IComm>();
  context.kernelChanged.connect(() => {
    open.clear();
  });
  context.statusChanged.connect((_, status) => {
    if (status === 'restarting' || status === 'autorestarting' || status === 'dead') {
      open.clear(); // The kernel's process has ended without closing its comms.
    }
  });
  context.iopubMessage.connect((_, { header: { msg_type: type }, content }) => {
    if (type === 'comm_open') {
      const { comm_id: id, target_name: target } = content as KernelMessage.ICommOpenMsg['content'];
      const comm = (context.session?.kernel as Connection | null | undefined)?._comms?.get?.(id);
      if (target === WIDGET_TARGET && comm !== undefined) {
        open.set(id, comm);
      }
    } else if (type === 'comm_close') {
      // JupyterLab has called the callback for this message before it emits the signal.
      const { comm_id: id } = content as KernelMessage.ICommCloseMsg['content'];
      const comm = open.get(id);
      open.delete(id);
      if (comm !== undefined) {
        comm.onClose = doNothing;
        comm.onMsg = doNothing;
      }
    }
  });
}

function doNothing(): void {
  // The comm is closed.
}
