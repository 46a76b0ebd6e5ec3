import { Signal, type ISignal } from '@lumino/signaling';

import type { Kernel } from '../kernel/kernel';
import type { Kernels } from '../kernel/kernels';
import type { Diagnosis } from '../wire';

/** What is known of one environment. */
export type Examination =
  | { readonly kind: 'unasked' }
  | { readonly kind: 'asking'; readonly before: Diagnosis | null }
  | { readonly kind: 'failed'; readonly reason: string }
  | { readonly kind: 'examined'; readonly doctor: Diagnosis };

/** The doctor of the Jupyter server. */
export interface ServerDoctor {
  /** Its diagnosis. Rejected with the reason, as a sentence to show. */
  examine(): Promise<Diagnosis>;
}

/** What the doctor has said; while it looks again, what it said before. */
export function diagnosis(known: Examination | null): Diagnosis | null {
  return known?.kind === 'examined' ? known.doctor : known?.kind === 'asking' ? known.before : null;
}

const UNASKED: Examination = { kind: 'unasked' };

/** The health of the server's environment and of the kernels', asked only when somebody wants to know. */
export class Health {
  private ofServer: Examination = UNASKED;
  /** With the process that it is about: a restarted kernel is another. */
  private readonly ofKernels = new WeakMap<Kernel, { readonly pid: number; readonly known: Examination }>();
  private readonly changes = new Signal<this, void>(this);

  /** `silence` is what is said of a kernel that gave no answer. */
  constructor(
    private readonly doctor: ServerDoctor,
    private readonly kernels: Kernels,
    private readonly silence: string
  ) {}

  /** Emitted when something else is known. */
  get changed(): ISignal<this, void> {
    return this.changes;
  }

  /** Of the server's environment. */
  get server(): Examination {
    return this.ofServer;
  }

  /** Of the kernel in front; null where there is none that can be asked. */
  get kernel(): Examination | null {
    const { kernel, condition } = this.kernels.view;
    if (kernel === null || condition.kind !== 'ready') {
      return null;
    }
    const last = this.ofKernels.get(kernel);
    return last?.pid === condition.state.pid ? last.known : UNASKED;
  }

  /** Whether an answer is awaited. */
  get asking(): boolean {
    return this.ofServer.kind === 'asking' || this.kernel?.kind === 'asking';
  }

  /** Examine both, also anew; what is asked already is not asked twice. */
  async ask(): Promise<void> {
    await Promise.all([this.askServer(), this.askKernel()]);
  }

  /** Examine what was not examined yet. */
  async askOnce(): Promise<void> {
    const server = this.ofServer.kind === 'unasked' ? this.askServer() : null;
    const kernel = this.kernel?.kind === 'unasked' ? this.askKernel() : null;
    await Promise.all([server, kernel]);
  }

  private async askServer(): Promise<void> {
    if (this.ofServer.kind === 'asking') {
      return;
    }
    this.ofServer = { kind: 'asking', before: diagnosis(this.ofServer) };
    this.changes.emit();
    try {
      this.ofServer = { kind: 'examined', doctor: await this.doctor.examine() };
    } catch (error) {
      this.ofServer = { kind: 'failed', reason: error instanceof Error ? error.message : String(error) };
    }
    this.changes.emit();
  }

  private async askKernel(): Promise<void> {
    const { kernel, condition } = this.kernels.view;
    if (kernel === null || condition.kind !== 'ready' || this.kernel?.kind === 'asking') {
      return;
    }
    const { pid } = condition.state;
    this.ofKernels.set(kernel, { pid, known: { kind: 'asking', before: diagnosis(this.kernel) } });
    this.changes.emit();
    const answer = await this.kernels.examine();
    const known: Examination =
      answer?.status === 'examined'
        ? { kind: 'examined', doctor: answer.doctor }
        : { kind: 'failed', reason: answer?.status === 'error' ? answer.reason : this.silence };
    this.ofKernels.set(kernel, { pid, known });
    this.changes.emit();
  }
}
