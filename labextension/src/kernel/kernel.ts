import type { KernelReply, KernelRequest } from '../wire';

/** What a kernel is doing. */
export type Phase = 'starting' | 'idle' | 'busy' | 'restarting' | 'dead' | 'unreachable';

/** How loading gpuwidget in a kernel went. */
export type Loading =
  | { readonly outcome: 'loaded'; readonly version: string | null }
  | { readonly outcome: 'not-installed' }
  | { readonly outcome: 'other-package' }
  | { readonly outcome: 'failed'; readonly reason: string };

/** One notebook's kernel. */
export interface Kernel {
  /** The language of its kernelspec, as `python`. */
  language(): Promise<string>;
  /**
   * Ask on the control channel, where a busy kernel answers too; null where no answer came within two seconds, or
   * within as many milliseconds as are given.
   */
  ask(question: KernelRequest, within?: number): Promise<KernelReply | null>;
  /** Load gpuwidget there without a trace in history, outputs or names. */
  load(): Promise<Loading>;
}

/** The notebook in front. */
export interface Front {
  /** Its file's name, null where there is none. */
  readonly notebook: string | null;
  readonly kernel: Kernel | null;
  /** What its kernel does, null where there is none. */
  readonly phase: Phase | null;
}
