import type { ISignal } from '@lumino/signaling';

import type { Kernel, RequestContent } from './kernel';
import type { KernelState } from '../../wire/wire';

/** What is known about gpuwidget in the kernel of the active notebook. */
export type Condition =
  | { readonly kind: 'no-notebook' | 'no-kernel' }
  | { readonly kind: 'starting' | 'restarting' | 'dead' | 'unreachable' }
  | {
      readonly kind: 'querying' | 'not-loaded' | 'unanswered' | 'loading' | 'not-installed' | 'other-package';
    }
  | { readonly kind: 'not-python'; readonly language: string }
  | { readonly kind: 'other-version'; readonly version: string | null }
  /** gpuwidget was not loaded, because Python would import `path`, which is not an installed package. */
  | { readonly kind: 'refused'; readonly path: string }
  | { readonly kind: 'failed'; readonly reason: string }
  | { readonly kind: 'ready'; readonly state: KernelState };

/** A request that the kernel rejected. */
export interface Rejection {
  readonly ask: RequestContent['ask'];
  /** The reason, as a sentence to display. */
  readonly reason: string;
}

/** The data about the active notebook and its kernel that views show. */
export interface KernelView {
  readonly notebook: string | null;
  readonly kernel: Kernel | null;
  readonly condition: Condition;
  readonly busy: boolean;
  /**
   * Whether the kernel was restarted while this page was connected. It is false again once the kernel has
   * replied to a requested change.
   */
  readonly restarted: boolean;
  /** Seconds since the last reply of a kernel that has stopped replying; null for any other kernel. */
  readonly silentFor: number | null;
  readonly rejection: Rejection | null;
  /**
   * The requests to which the kernel has not replied yet, in the order in which they were sent. Views show a
   * requested change as applied, so that a control does not jump back to its old value.
   */
  readonly pending: readonly RequestContent[];
}

/** The kernel of the active notebook, for views. */
export interface IKernels {
  /** Emitted when the view may have changed. */
  readonly changed: ISignal<this, void>;
  /** The current data about the active notebook and its kernel. */
  readonly view: KernelView;
  /** The last state that the kernel sent; null unless the kernel is ready. */
  readonly state: KernelState | null;
  /** Whether every cell is watched. A requested change counts even before the kernel has replied. */
  readonly watching: boolean;
  /** Seconds since the kernel sent its state; null unless the kernel is ready. */
  readonly age: number | null;
  /**
   * Whether the kernel is not polled, because this version of JupyterLab shows each query as kernel activity.
   * Without polling, the kernel is queried only when its state may have changed, such as after a cell has
   * run.
   */
  readonly pollingDisabled: boolean;
  /**
   * Set whether the status item is visible. While it is, the kernel is queried after each cell and polled
   * slowly while a cell runs, but an idle kernel is not polled.
   */
  setStatusVisible(visible: boolean): void;
  /** Send a request whose reply shows the kernel's new state. */
  request(content: RequestContent): Promise<void>;
  /**
   * Toggle the watching of every cell. The kernel's state is queried first, since a cell may have turned
   * watching on or off while no view was visible. Calls in quick succession are executed one after the
   * other.
   */
  toggleWatching(): Promise<void>;
  /** Load gpuwidget in the kernel. If it is already being loaded, wait for that instead. */
  load(): Promise<void>;
}

type Pending<Ask extends RequestContent['ask']> = Extract<RequestContent, { ask: Ask }>;

/** Return the latest pending request of this kind, if any, for which `matches` returns true. */
export function pendingRequest<Ask extends RequestContent['ask']>(
  { pending }: Pick<KernelView, 'pending'>,
  ask: Ask,
  matches: (request: Pending<Ask>) => boolean = () => true
): Pending<Ask> | undefined {
  const isKind = (request: RequestContent): request is Pending<Ask> => request.ask === ask;
  return pending.filter(isKind).filter(matches).at(-1);
}
