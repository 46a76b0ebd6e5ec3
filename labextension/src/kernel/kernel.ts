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
  /** The id in `GET api/kernels`. */
  readonly id: string;
  /** Return the language of its kernelspec, such as `python`. */
  language(): Promise<string>;
  /**
   * Send a request on the control channel, where a busy kernel replies too. Resolve to null if no reply comes within
   * `timeoutMs`, two seconds by default.
   */
  request(content: KernelRequest, timeoutMs?: number): Promise<ParsedReply | null>;
  /** Load gpuwidget without a trace in history, outputs or names. */
  load(): Promise<LoadResult>;
}

/** The active notebook, that is the one that the tracker has as its current widget. */
export interface ActiveNotebook {
  /** The name of its file, null if no notebook is open. */
  readonly name: string | null;
  readonly kernel: Kernel | null;
  /** What its kernel is doing, null if it has none. */
  readonly phase: Phase | null;
}
