import { Signal, type ISignal } from '@lumino/signaling';

import type { Front, Kernel, Loading, Phase } from './kernel';
import type { Clock } from '../clock';
import { KERNEL_SCHEMA, type KernelReply, type KernelRequest, type KernelState } from '../wire';

/** How often a kernel that answers is asked again while somebody looks. */
export const POLL_MS = 3000;
/** How often it is asked while a cell runs and somebody only glances. */
export const GLANCE_MS = 5000;

/** How long a kernel may take to examine its environment. */
const EXAMINED_WITHIN_MS = 75_000;

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
  readonly kernel: Kernel | null;
  readonly condition: Condition;
  readonly busy: boolean;
  /** Whether the kernel was restarted since it was first seen, and nothing was asked of it since. */
  readonly restarted: boolean;
  /** Seconds since it last answered, null while it does. */
  readonly silentFor: number | null;
  /** Why the last wish was not granted, or null. */
  readonly refusal: string | null;
  /** What that wish was, or null. */
  readonly refused: KernelRequest['ask'] | null;
  /** What was wished and is not answered yet, or null. */
  readonly wished: KernelRequest | null;
}

/** What one kernel said, kept while another notebook is in front. */
interface Known {
  condition: Condition | null;
  language: string | null;
  /** What it did when that was last seen. */
  phase: Phase | null;
  answered: number | null;
  silent: boolean;
  /** Of the gpuwidget that was loaded there by us. */
  version: string | null;
  /** Questions in a row that it left unanswered though it was idle. */
  misses: number;
  restarted: boolean;
  refusal: Refused | null;
  wished: KernelRequest | null;
  /** Whether its notebook speaks of gpuwidget: one that does not is asked nothing by a mere glance. */
  mentioned: boolean;
  /** Whether something happened since the question that is out. */
  askAgain: boolean;
}

/** A refusal, and what held when it came: it is over once something else does. */
interface Refused {
  readonly reason: string;
  readonly ask: KernelRequest['ask'];
  readonly routine: boolean;
  readonly held: string;
}

/** One miss may be chance; a kernel that is idle and leaves two questions unanswered has nobody to answer them. */
const MISSES = 2;

/** Asks the kernel of the notebook in front how it is with its default device, while somebody looks. */
export class Kernels {
  private front: Front = { notebook: null, kernel: null, phase: null };
  private readonly known = new WeakMap<Kernel, Known>();
  private readonly asked = new WeakSet<Kernel>();
  private timer: number | null = null;
  private looking = false;
  private glancing = false;
  private sparing = false;
  private readonly changes = new Signal<this, void>(this);

  constructor(private readonly timers: Clock) {}

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
      kernel,
      condition: this.condition(known),
      busy: phase === 'busy',
      restarted: known?.restarted ?? false,
      silentFor: quiet ? (this.timers.now() - (known.answered ?? 0)) / 1000 : null,
      refusal: known?.refusal?.reason ?? null,
      refused: known?.refusal?.ask ?? null,
      wished: known?.wished ?? null
    };
  }

  /** The state that the kernel of the notebook in front told, or null. */
  get state(): KernelState | null {
    const { condition } = this.view;
    return condition.kind === 'ready' ? condition.state : null;
  }

  /** Seconds since the kernel of the notebook in front last answered, null where it has not. */
  get age(): number | null {
    const { kernel } = this.front;
    const answered = kernel === null ? null : this.of(kernel).answered;
    return answered === null ? null : (this.timers.now() - answered) / 1000;
  }

  /** Somebody looks: ask now and then. */
  start(): void {
    this.looking = true;
    this.again();
  }

  /** Nobody looks: ask nothing, but what a glance needs. */
  stop(): void {
    this.looking = false;
    this.schedule();
  }

  /**
   * What it last said is shown somewhere, or nowhere any more: a kernel that has gpuwidget is then asked after its
   * cells and seldom while one runs. An idle one is asked nothing.
   */
  glance(glancing: boolean): void {
    if (glancing !== this.glancing) {
      this.glancing = glancing;
      this.again();
      this.schedule();
    }
  }

  /** Its notebook speaks of gpuwidget, which may be loaded. */
  mentioned(kernel: Kernel): void {
    this.of(kernel).mentioned = true;
  }

  /** Whether the kernel is asked only when there is a reason to, and so not while a cell runs. */
  get spares(): boolean {
    return this.sparing;
  }

  /** This page shows each question as work of the kernel: ask only when there is a reason to. */
  spare(): void {
    this.sparing = true;
    this.unschedule();
  }

  /** Another notebook is in front, or its kernel does something else. */
  show(front: Front): void {
    const before = this.front;
    this.front = front;
    const { kernel, phase } = front;
    if (kernel !== null) {
      const known = this.of(kernel);
      const anew = phase === 'starting' && known.phase !== null && known.phase !== 'starting';
      if (phase === 'restarting' || phase === 'dead' || anew) {
        this.known.set(kernel, { ...UNKNOWN, language: known.language, restarted: true });
      }
      this.of(kernel).phase = phase;
      if (kernel !== before.kernel || this.worthAsking(kernel, before.phase, front.phase)) {
        this.again();
      } else if (phase !== before.phase && this.timer === null) {
        this.schedule();
      }
    }
    this.changes.emit();
  }

  /** Something may have changed in the kernel: ask it now, whatever it said before. */
  again(): void {
    const { kernel } = this.front;
    if (kernel !== null && this.answers() && (this.looking || this.worthGlancing(kernel))) {
      void this.ask(kernel, { schema: KERNEL_SCHEMA, ask: 'state' });
    }
  }

  /** One without gpuwidget writes an error into its log when it is asked: that is for who opens the panel. */
  private worthGlancing(kernel: Kernel): boolean {
    const { condition, mentioned } = this.of(kernel);
    return this.glancing && (mentioned || condition?.kind === 'ready');
  }

  /** Make `device` the default there; null for what was before. */
  choose(device: string | null, newTensors: boolean): Promise<void> {
    return this.wish({ schema: KERNEL_SCHEMA, ask: 'set_device', device, new_tensors: newTensors });
  }

  /** Watch every cell there, or no longer. */
  watch(on: boolean): Promise<void> {
    return this.wish({ schema: KERNEL_SCHEMA, ask: 'watch', on });
  }

  /** Set one of torch's switches there: at once, or while a cell runs before the next one. */
  setSwitch(name: string, value: string): Promise<void> {
    return this.wish({ schema: KERNEL_SCHEMA, ask: 'set_switch', name, value });
  }

  /** Have the environment of the kernel in front examined; null where it does not answer. */
  async examine(): Promise<KernelReply | null> {
    const { kernel } = this.front;
    if (kernel === null || !this.answers()) {
      return null;
    }
    try {
      return await kernel.ask({ schema: KERNEL_SCHEMA, ask: 'doctor' }, EXAMINED_WITHIN_MS);
    } catch {
      return null; // It went away meanwhile.
    }
  }

  /** Watch every cell there if that is off, else no longer; nothing where the kernel does not answer. */
  async toggleWatch(): Promise<void> {
    const { kernel } = this.front;
    if (kernel !== null && this.answers()) {
      await this.ask(kernel, { schema: KERNEL_SCHEMA, ask: 'state' });
      const { state } = this;
      if (state !== null && this.front.kernel === kernel) {
        await this.watch(!state.watching);
      }
    }
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
    known.version = loading.version;
    known.misses = 0;
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
    const routine = question.ask === 'state';
    // One routine question at a time; a wish never waits.
    if (routine && this.asked.has(kernel)) {
      known.askAgain = true;
      return;
    }
    this.unschedule();
    if (!routine) {
      known.wished = question;
      this.changes.emit();
    }
    this.asked.add(kernel);
    const before = known.phase;
    let answer: KernelReply | null = null;
    try {
      known.language ??= await kernel.language();
      if (known.language.toLowerCase() !== 'python') {
        known.condition = { kind: 'not-python', language: known.language };
        return;
      }
      answer = await kernel.ask(question);
    } catch {
      // The kernel went away meanwhile: no answer.
    } finally {
      this.asked.delete(kernel);
      if (known.wished === question) {
        known.wished = null;
      }
      this.changes.emit();
    }
    if (this.of(kernel) === known) {
      this.take(known, question, answer, before === 'busy' || known.phase === 'busy');
    }
    this.changes.emit();
    const now = this.of(kernel);
    if (now.askAgain) {
      now.askAgain = false;
      this.again();
    } else {
      this.schedule();
    }
  }

  /** What an answer says; `held` up by a cell, a kernel may leave a question unanswered. */
  private take(known: Known, question: KernelRequest, answer: KernelReply | null, held: boolean): void {
    if (answer === null) {
      this.miss(known, held);
      return;
    }
    const { state } = answer;
    known.silent = false;
    known.misses = 0;
    known.answered = this.timers.now();
    known.restarted &&= question.ask === 'state';
    const before = known.condition?.kind === 'ready' ? known.condition.state : null;
    known.refusal = refused(known.refusal, question, answer, state ?? before);
    if (state !== null && state.schema !== KERNEL_SCHEMA) {
      known.condition = { kind: 'other-version', version: state.version };
    } else if (state !== null) {
      known.condition = { kind: 'ready', state };
    } else if (known.condition?.kind !== 'ready') {
      known.condition = { kind: 'failed', reason: known.refusal?.reason ?? '' };
    }
  }

  private miss(known: Known, held: boolean): void {
    known.silent = true;
    const kind = known.condition?.kind;
    if (held) {
      known.misses = 0;
      if (kind === undefined || kind === 'loading') {
        known.condition = { kind: 'unanswered' };
      }
      return;
    }
    known.misses++;
    if (kind === undefined || kind === 'unanswered' || (kind === 'ready' && known.misses >= MISSES)) {
      known.condition = { kind: 'not-loaded' };
      known.answered = null;
    } else if (kind === 'loading' && known.misses >= MISSES) {
      // It is there, but cannot be asked: as an older one.
      known.condition = { kind: 'other-version', version: known.version };
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
    const { kernel } = this.front;
    const loaded = this.view.condition.kind === 'loading';
    const doubtful = kernel !== null && this.of(kernel).misses > 0;
    const again = (milliseconds: number): void => {
      this.timer = this.timers.after(milliseconds, () => {
        this.timer = null;
        this.again();
      });
    };
    if (this.looking && (loaded || (this.state !== null && (doubtful || !this.sparing)))) {
      again(POLL_MS);
    } else if (!this.looking && this.glancing && this.state !== null && this.glances(doubtful)) {
      again(GLANCE_MS);
    }
  }

  private glances(doubtful: boolean): boolean {
    return doubtful || (this.front.phase === 'busy' && !this.sparing);
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
  phase: null,
  version: null,
  answered: null,
  silent: false,
  misses: 0,
  restarted: false,
  refusal: null,
  wished: null,
  mentioned: false,
  askAgain: false
};

/** What is refused now: a refusal ends with the next wish that is granted, and when something else holds. */
function refused(
  before: Refused | null,
  question: KernelRequest,
  answer: KernelReply,
  state: KernelState | null
): Refused | null {
  const routine = question.ask === 'state';
  const switches = state?.switches.map(({ value, pending }) => [value, pending]);
  const held = JSON.stringify([state?.device.chosen, state?.watching, switches]);
  if (answer.status === 'error') {
    return { reason: answer.reason, ask: question.ask, routine, held };
  }
  return routine && before !== null && !before.routine && before.held === held ? before : null;
}

function failure(loading: Exclude<Loading, { outcome: 'loaded' }>): Condition {
  return loading.outcome === 'failed'
    ? { kind: 'failed', reason: loading.reason }
    : { kind: loading.outcome };
}
