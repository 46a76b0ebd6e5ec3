import { Signal, type ISignal } from '@lumino/signaling';

import type { Front, Kernel, Loading, Phase } from './kernel';
import type { Timers } from './timers';
import { KERNEL_SCHEMA, type KernelReply, type KernelRequest, type KernelState } from './wire';

/** How often a kernel that answers is asked again while somebody looks. */
export const POLL_MS = 3000;

/** What is known about gpuwidget in the kernel of the notebook in front. */
export type Condition =
  | { readonly kind: 'no-notebook' | 'no-kernel' }
  | { readonly kind: 'starting' | 'restarting' | 'dead' | 'unreachable' }
  | { readonly kind: 'asking' | 'not-loaded' | 'unanswered' | 'loading' | 'not-installed' | 'other-package' }
  | { readonly kind: 'not-python'; readonly language: string }
  | { readonly kind: 'other-version'; readonly version: string | null }
  | { readonly kind: 'failed'; readonly reason: string }
  | { readonly kind: 'ready'; readonly state: KernelState };

/** All that the panel shows of it. */
export interface KernelView {
  readonly notebook: string | null;
  readonly condition: Condition;
  readonly busy: boolean;
  /** Whether the kernel was restarted since it was first seen, and nothing was asked of it since. */
  readonly restarted: boolean;
  /** Seconds since it last answered, null while it does. */
  readonly silentFor: number | null;
  /** Why the last wish was not granted, or null. */
  readonly refusal: string | null;
}

/** What one kernel said, kept while another notebook is in front. */
interface Known {
  condition: Condition | null;
  language: string | null;
  answered: number | null;
  silent: boolean;
  restarted: boolean;
  refusal: string | null;
  /** Whether something happened since the question that is out. */
  askAgain: boolean;
}

/** Asks the kernel of the notebook in front how it is with its default device, while somebody looks. */
export class Kernels {
  private front: Front = { notebook: null, kernel: null, phase: null };
  private readonly known = new WeakMap<Kernel, Known>();
  private readonly asked = new WeakSet<Kernel>();
  private timer: number | null = null;
  private looking = false;
  private readonly changes = new Signal<this, void>(this);

  constructor(private readonly timers: Timers) {}

  /** Emitted when the view may have changed. */
  get changed(): ISignal<this, void> {
    return this.changes;
  }

  /** What is known now. */
  get view(): KernelView {
    const { notebook, kernel, phase } = this.front;
    const known = kernel === null ? null : this.of(kernel);
    const quiet = known?.silent === true && known.answered !== null;
    return {
      notebook,
      condition: this.condition(known),
      busy: phase === 'busy',
      restarted: known?.restarted ?? false,
      silentFor: quiet ? (this.timers.now() - (known.answered ?? 0)) / 1000 : null,
      refusal: known?.refusal ?? null
    };
  }

  /** The state that the kernel of the notebook in front told, or null. */
  get state(): KernelState | null {
    const { condition } = this.view;
    return condition.kind === 'ready' ? condition.state : null;
  }

  /** Somebody looks: ask now and then. */
  start(): void {
    this.looking = true;
    this.again();
  }

  /** Nobody looks: ask nothing. */
  stop(): void {
    this.looking = false;
    this.unschedule();
  }

  /** Another notebook is in front, or its kernel does something else. */
  show(front: Front): void {
    const before = this.front;
    this.front = front;
    const kernel = front.kernel;
    if (kernel !== null) {
      if (front.phase === 'restarting' || front.phase === 'dead') {
        this.known.set(kernel, { ...UNKNOWN, language: this.of(kernel).language, restarted: true });
      }
      if (kernel !== before.kernel || this.worthAsking(kernel, before.phase, front.phase)) {
        this.again();
      }
    }
    this.changes.emit();
  }

  /** Something may have changed in the kernel: ask it now, whatever it said before. */
  again(): void {
    const { kernel } = this.front;
    if (this.looking && kernel !== null && this.answers()) {
      void this.ask(kernel, { schema: KERNEL_SCHEMA, ask: 'state' });
    }
  }

  /** Make `device` the default there; null for what was before. */
  choose(device: string | null, newTensors: boolean): Promise<void> {
    return this.wish({ schema: KERNEL_SCHEMA, ask: 'set_device', device, new_tensors: newTensors });
  }

  /** Watch every cell there, or no longer. */
  watch(on: boolean): Promise<void> {
    return this.wish({ schema: KERNEL_SCHEMA, ask: 'watch', on });
  }

  /** Load gpuwidget there. */
  async load(): Promise<void> {
    const { kernel } = this.front;
    if (kernel === null || !this.answers()) {
      return;
    }
    const known = this.of(kernel);
    known.condition = { kind: 'loading' };
    this.changes.emit();
    const loading = await kernel.load();
    if (this.of(kernel) !== known) {
      return; // It was restarted meanwhile.
    }
    if (loading.outcome !== 'loaded') {
      known.condition = failure(loading);
      this.changes.emit();
      return;
    }
    // Until it answers: it is there, but cannot be asked, as an older one.
    known.condition = { kind: 'other-version', version: loading.version };
    await this.ask(kernel, { schema: KERNEL_SCHEMA, ask: 'state' });
  }

  private async wish(question: KernelRequest): Promise<void> {
    const { kernel } = this.front;
    if (kernel !== null && this.answers()) {
      await this.ask(kernel, question);
    }
  }

  private async ask(kernel: Kernel, question: KernelRequest): Promise<void> {
    const known = this.of(kernel);
    // One routine question at a time; a wish never waits.
    if (question.ask === 'state' && this.asked.has(kernel)) {
      known.askAgain = true;
      return;
    }
    this.unschedule();
    known.language ??= await kernel.language();
    if (known.language.toLowerCase() !== 'python') {
      known.condition = { kind: 'not-python', language: known.language };
      this.changes.emit();
      return;
    }
    this.asked.add(kernel);
    const answer = await kernel.ask(question).finally(() => this.asked.delete(kernel));
    if (this.of(kernel) === known) {
      this.take(known, question, answer);
    }
    this.changes.emit();
    if (known.askAgain) {
      known.askAgain = false;
      this.again();
    } else {
      this.schedule();
    }
  }

  private take(known: Known, question: KernelRequest, answer: KernelReply | null): void {
    if (answer === null) {
      known.silent = true;
      if (known.condition === null || known.condition.kind === 'unanswered') {
        known.condition = { kind: this.front.phase === 'busy' ? 'unanswered' : 'not-loaded' };
      }
      return;
    }
    known.silent = false;
    known.answered = this.timers.now();
    known.restarted &&= question.ask === 'state';
    if (question.ask !== 'state' || answer.status === 'error') {
      known.refusal = answer.status === 'error' ? answer.reason : null;
    }
    const { state } = answer;
    if (state !== null && state.schema !== KERNEL_SCHEMA) {
      known.condition = { kind: 'other-version', version: state.version };
    } else if (state !== null) {
      known.condition = { kind: 'ready', state };
    } else if (known.condition?.kind !== 'ready') {
      known.condition = { kind: 'failed', reason: known.refusal ?? '' };
    }
  }

  /** After a cell its memory and its device may be others, and gpuwidget may be loaded. */
  private worthAsking(kernel: Kernel, before: Phase | null, now: Phase | null): boolean {
    if (now === before || (now !== 'idle' && now !== 'busy')) {
      return false;
    }
    const kind = this.of(kernel).condition?.kind;
    return kind === undefined || (now === 'idle' && (kind === 'ready' || kind === 'unanswered'));
  }

  private condition(known: Known | null): Condition {
    const { notebook, phase } = this.front;
    if (notebook === null) {
      return { kind: 'no-notebook' };
    }
    if (phase === null) {
      return { kind: 'no-kernel' };
    }
    if (phase !== 'idle' && phase !== 'busy') {
      return { kind: phase };
    }
    return known?.condition ?? { kind: 'asking' };
  }

  private answers(): boolean {
    return this.front.phase === 'idle' || this.front.phase === 'busy';
  }

  private schedule(): void {
    this.unschedule();
    // One that has nothing to say is not asked again: each question would be an error in its log.
    if (this.looking && this.state !== null) {
      this.timer = this.timers.after(POLL_MS, () => {
        this.timer = null;
        this.again();
      });
    }
  }

  private unschedule(): void {
    if (this.timer !== null) {
      this.timers.cancel(this.timer);
      this.timer = null;
    }
  }

  private of(kernel: Kernel): Known {
    let known = this.known.get(kernel);
    if (known === undefined) {
      known = { ...UNKNOWN };
      this.known.set(kernel, known);
    }
    return known;
  }
}

const UNKNOWN: Known = {
  condition: null,
  language: null,
  answered: null,
  silent: false,
  restarted: false,
  refusal: null,
  askAgain: false
};

function failure(loading: Exclude<Loading, { outcome: 'loaded' }>): Condition {
  return loading.outcome === 'failed'
    ? { kind: 'failed', reason: loading.reason }
    : { kind: loading.outcome };
}
