import type { ParsedReply } from './kernelReply';
import type { KernelRequest } from '../wire';

/** What a kernel is doing. */
export type Phase = 'starting' | 'idle' | 'busy' | 'restarting' | 'dead' | 'unreachable';

/** The result of loading gpuwidget in a kernel. */
export type LoadResult =
  | { readonly outcome: 'loaded'; readonly version: string | null }
  | { readonly outcome: 'not-installed' }
  | { readonly outcome: 'other-package' }
  | { readonly outcome: 'failed'; readonly reason: string };

/** The kernel of one notebook. */
export interface Kernel {
  /** The kernel's id in `GET api/kernels`. */
  readonly id: string;
  /** Return the language in the kernelspec, such as `python`. */
  language(): Promise<string>;
  /**
   * Send a request on the control channel, on which even a busy kernel replies. Resolves to null if no reply
   * arrives within `timeoutMs`, two seconds by default.
   */
  request(content: KernelRequest, timeoutMs?: number): Promise<ParsedReply | null>;
  /** Load gpuwidget without adding to the history, the outputs or the user's names. */
  load(): Promise<LoadResult>;
}

/** The active notebook, which is the current widget of JupyterLab's notebook tracker. */
export interface ActiveNotebook {
  /** The notebook's file name; null if no notebook is open. */
  readonly name: string | null;
  readonly kernel: Kernel | null;
  /** What the kernel is doing; null if the notebook has no kernel. */
  readonly phase: Phase | null;
}
