import { Signal, type ISignal } from '@lumino/signaling';

import type { Kernel } from '../kernel/kernel';
import type { IKernels } from '../kernel/kernels';
import type { Result } from '../server/result';
import type { ParsedReply, TranslatedDiagnosis } from '../../wire/kernelReply';

/** The state of one environment's diagnosis. */
export type DiagnosisState =
  | { readonly kind: 'none' }
  | { readonly kind: 'running'; readonly previous: TranslatedDiagnosis | null }
  | { readonly kind: 'failed'; readonly reason: string }
  | { readonly kind: 'done'; readonly diagnosis: TranslatedDiagnosis };

/** Maximum time that a kernel may take to reply to a request for a diagnosis of its environment. */
const TIMEOUT_MS = 75_000;

/** Return the newest diagnosis. While the checks are running, it is the previous one. */
export function newestDiagnosis(state: DiagnosisState | null): TranslatedDiagnosis | null {
  return state?.kind === 'done' ? state.diagnosis : state?.kind === 'running' ? state.previous : null;
}

const NONE: DiagnosisState = { kind: 'none' };

/** The diagnoses of the server and of the kernels. The checks run only if the user requests it. */
export class DoctorModel {
  private serverState: DiagnosisState = NONE;
  /**
   * The state of each kernel's diagnosis, with the id of the diagnosed process, which changes if the kernel
   * is restarted.
   */
  private readonly kernelStates = new WeakMap<
    Kernel,
    { readonly pid: number; readonly state: DiagnosisState }
  >();
  private readonly changes = new Signal<this, void>(this);

  /**
   * `runServerChecks` runs the doctor's checks in the Jupyter server. `noReply` is the reason to display for a
   * kernel that does not reply.
   */
  constructor(
    private readonly runServerChecks: () => Promise<Result<TranslatedDiagnosis>>,
    private readonly kernels: Pick<IKernels, 'view'>,
    private readonly noReply: string
  ) {}

  /** Emitted when a state changes. */
  get changed(): ISignal<this, void> {
    return this.changes;
  }

  /** The state of the server's diagnosis. */
  get server(): DiagnosisState {
    return this.serverState;
  }

  /**
   * The state of the diagnosis of the active notebook's kernel; null if there is no kernel that can be
   * diagnosed.
   */
  get kernel(): DiagnosisState | null {
    const { kernel, condition } = this.kernels.view;
    if (kernel === null || condition.kind !== 'ready') {
      return null;
    }
    const last = this.kernelStates.get(kernel);
    return last?.pid === condition.state.pid ? last.state : NONE;
  }

  /** Whether checks are running. */
  get running(): boolean {
    return this.serverState.kind === 'running' || this.kernel?.kind === 'running';
  }

  /**
   * Diagnose the server and the kernel. If the checks of one of them are already running, those checks are
   * not started again.
   */
  async run(): Promise<void> {
    await Promise.all([this.diagnoseServer(), this.diagnoseKernel()]);
  }

  /** Diagnose the server and the kernel, unless they have already been diagnosed. */
  async runOnce(): Promise<void> {
    const server = this.serverState.kind === 'none' ? this.diagnoseServer() : null;
    const kernel = this.kernel?.kind === 'none' ? this.diagnoseKernel() : null;
    await Promise.all([server, kernel]);
  }

  private async diagnoseServer(): Promise<void> {
    if (this.serverState.kind === 'running') {
      return;
    }
    this.serverState = { kind: 'running', previous: newestDiagnosis(this.serverState) };
    this.changes.emit();
    const result = await this.runServerChecks();
    this.serverState =
      result.kind === 'ok'
        ? { kind: 'done', diagnosis: result.value }
        : { kind: 'failed', reason: result.reason };
    this.changes.emit();
  }

  private async diagnoseKernel(): Promise<void> {
    const { kernel, condition } = this.kernels.view;
    if (kernel === null || condition.kind !== 'ready' || this.kernel?.kind === 'running') {
      return;
    }
    const { pid } = condition.state;
    this.kernelStates.set(kernel, {
      pid,
      state: { kind: 'running', previous: newestDiagnosis(this.kernel) }
    });
    this.changes.emit();
    const reply = await diagnose(kernel);
    const state: DiagnosisState =
      reply?.status === 'examined'
        ? { kind: 'done', diagnosis: { ...reply.doctor, texts: reply.texts } }
        : { kind: 'failed', reason: reply?.status === 'error' ? reply.reason : this.noReply };
    this.kernelStates.set(kernel, { pid, state });
    this.changes.emit();
  }
}

/** Request a diagnosis of the kernel's environment. Return null if the kernel does not reply. */
async function diagnose(kernel: Kernel): Promise<ParsedReply | null> {
  try {
    return await kernel.request({ ask: 'doctor' }, TIMEOUT_MS);
  } catch {
    return null; // The kernel was shut down or restarted meanwhile.
  }
}
