import type { Kernel, KernelMessage } from '@jupyterlab/services';

import type { KernelActivity } from './kernelActivity';

const WIDGET_TARGET = 'jupyter.widget';

/** A kernel connection of JupyterLab, with the open comms, for which its interface has no method. */
export type Connection = Pick<Kernel.IKernelConnection, 'iopubMessage'> & {
  readonly _comms?: { get?: (id: string) => Kernel.IComm | undefined };
};

/**
 * Let the browser free the widgets of a notebook when its kernel closes them, such as those of a live chart.
 *
 * JupyterLab (4.6 at least) connects each comm to its kernel's signal `statusChanged` and never disconnects
 * it. A closed comm therefore stays in memory until the kernel's connection is disposed, and through its
 * callbacks also the widget's model and its elements. The callbacks of a closed comm are never called again,
 * so they are removed. Otherwise, each live chart would leave 0.14 MiB of JavaScript heap and 220 nodes with
 * one GPU, and 0.32 MiB and 740 nodes with 16 GPUs.
 *
 * JupyterLab's public interface gives no access to a comm that the kernel has opened. Nor can the kernel
 * avoid the leak. Fewer widgets don't suffice: a single `HTML` widget with half as many elements leaves 95
 * KiB, even if it is emptied before it is closed. Reusing the chart would be worse: a model of bqplot's
 * figure keeps every view it ever had.
 */
export function releaseClosedComms(connection: Connection, activity: Pick<KernelActivity, 'changed'>): void {
  const open = new Map<string, Kernel.IComm>();
  activity.changed.connect((_, { kind }) => {
    if (kind === 'process-ended') {
      open.clear(); // The process has not closed its comms.
    }
  });
  connection.iopubMessage.connect((_, { header: { msg_type: type }, content }) => {
    if (type === 'comm_open') {
      const { comm_id: id, target_name: target } = content as KernelMessage.ICommOpenMsg['content'];
      const comm = connection._comms?.get?.(id);
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
