import type { IRunningSessions } from '@jupyterlab/running';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { LabIcon } from '@jupyterlab/ui-components';
import { Signal, type ISignal } from '@lumino/signaling';

import {
  gpuNumbers,
  holderName,
  holdersOf,
  kernelsOf,
  targetOf,
  withoutMigParents,
  type ActionTarget,
  type Holder,
  type HolderKind
} from '../../model/memory/holders';
import { liveValue } from '../../model/freshness';
import type { IMonitor } from '../../tokens';
import { gpuNumber, memory } from '../../model/format';
import type { Gpu } from '../../wire/wire';

/** The start of the attribute `data-context` of an item, before the kind and the id of its kernel or terminal. */
const CONTEXT = 'gpuwidget';

/** The actions on the items of the section. */
export interface RunningHolderActions {
  /** Activate the tab of a kernel or terminal; open it if it is closed. */
  goTo(target: ActionTarget): void;
  /** Shut down a kernel after the user has confirmed it. */
  confirmShutDown(kernel: string): void;
  /** Shut down a kernel without a confirmation. */
  shutDownNow(kernel: string): void;
}

/** Return the selector of the items of kernels or of terminals in JupyterLab's Running panel. */
export function holderSelector(kind: keyof ActionTarget): string {
  return `[data-context^="${CONTEXT}:${kind}:"]`;
}

/** Return the kernel or terminal of an item in JupyterLab's Running panel; null if `node` is no such item. */
export function holderOf(node: HTMLElement): ActionTarget | null {
  const [, kind, id] = /^gpuwidget:(kernel|terminal):(.*)$/.exec(node.dataset.context ?? '') ?? [];
  if (id === undefined) {
    return null;
  }
  return kind === 'kernel' ? { kernel: id, terminal: null } : { kernel: null, terminal: id };
}

/** A kernel or terminal of this server with what it holds on each GPU. */
interface RunningHolder {
  readonly holder: Holder;
  readonly target: ActionTarget;
  readonly holdings: { readonly gpu: Gpu; readonly bytes: number | null }[];
}

/**
 * The section "GPU memory" of JupyterLab's Running panel: the kernels and terminals that hold GPU memory.
 * `onListed` is called when the panel lists the section, for example because it becomes visible.
 */
export class RunningHolders implements IRunningSessions.IManager {
  readonly name: string;
  readonly shutdownAllConfirmationText: string;
  private shown = '';
  private readonly changes = new Signal<this, void>(this);

  constructor(
    private readonly trans: TranslationBundle,
    private readonly monitor: Pick<IMonitor, 'data'>,
    private readonly actions: RunningHolderActions,
    private readonly icon: (kind: HolderKind) => LabIcon,
    private readonly onListed: () => void
  ) {
    this.name = trans.__('GPU memory');
    this.shutdownAllConfirmationText = trans.__(
      'Shut down all kernels that hold GPU memory? You will lose all their variables.'
    );
  }

  get runningChanged(): ISignal<this, void> {
    return this.changes;
  }

  running(): IRunningSessions.IRunningItem[] {
    this.onListed();
    return this.items();
  }

  shutdownAll(): void {
    for (const { target } of this.holders()) {
      if (target.kernel !== null) {
        this.actions.shutDownNow(target.kernel);
      }
    }
  }

  refreshRunning(): void {
    this.changes.emit();
  }

  /** Emit `runningChanged` if the holders or their memory have changed. */
  update(): void {
    const shown = JSON.stringify(this.items().map(item => [item.context, item.label(), item.labelTitle?.()]));
    if (shown !== this.shown) {
      this.shown = shown;
      this.changes.emit();
    }
  }

  private items(): IRunningSessions.IRunningItem[] {
    const kernels = [...kernelsOf(liveValue(this.monitor.data)?.usage ?? null).values()];
    return this.holders().map(({ holder, target, holdings }) => {
      const { trans } = this;
      const [name, fullName] = holderName(trans, holder, kernels);
      const { kernel } = target;
      const onEachGpu = holdings.map(({ gpu, bytes }) =>
        trans.__('%1 on GPU %2', memory(bytes), gpuNumber(gpu))
      );
      const numbers = holdings.map(({ gpu }) => gpuNumber(gpu));
      // The panel is narrow, so the sum comes first.
      const detail = `${memory(sumOf(holdings))} · ${gpuNumbers(trans, numbers)}`;
      return {
        context: `${CONTEXT}:${kernel === null ? 'terminal' : 'kernel'}:${kernel ?? target.terminal ?? ''}`,
        icon: () => this.icon(holder.kind),
        label: () => name,
        labelTitle: () => [fullName, ...onEachGpu].filter(Boolean).join('\n'),
        detail: () => detail,
        open: () => {
          this.actions.goTo(target);
        },
        ...(kernel === null
          ? {}
          : {
              shutdown: () => {
                this.actions.confirmShutDown(kernel);
              }
            })
      };
    });
  }

  /** Return the kernels and terminals that hold GPU memory now, the largest first; none while that is unknown. */
  private holders(): RunningHolder[] {
    const data = liveValue(this.monitor.data);
    if (data === null) {
      return [];
    }
    const kernels = kernelsOf(data.usage);
    const found = new Map<string, RunningHolder>();
    for (const { gpu, usage } of withoutMigParents(data.gpus())) {
      for (const holder of usage === null ? [] : holdersOf(usage, kernels, null)) {
        const target = targetOf(holder);
        if (target !== null && holder.memory !== 0) {
          const known = found.get(holder.key) ?? { holder, target, holdings: [] };
          known.holdings.push({ gpu, bytes: holder.memory });
          found.set(holder.key, known);
        }
      }
    }
    const size = ({ holdings }: RunningHolder): number => sumOf(holdings) ?? 0;
    return [...found.values()].sort((one, other) => size(other) - size(one));
  }
}

/** Return the sum of the memory on all GPUs; null if the memory on any of them is unknown. */
function sumOf(holdings: RunningHolder['holdings']): number | null {
  return holdings.reduce<number | null>(
    (total, { bytes }) => (total === null || bytes === null ? null : total + bytes),
    0
  );
}
