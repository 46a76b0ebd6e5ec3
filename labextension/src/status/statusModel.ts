import type { TranslationBundle } from '@jupyterlab/translation';
import { Signal, type ISignal } from '@lumino/signaling';

import type { Clock } from '../clock';
import { heldMemory, sumOfHeldMemory, type HeldMemory } from '../memory/holders';
import type { ActiveKernel, KernelView } from '../kernel/activeKernel';
import { duration, memory, UNKNOWN, unitsChanged } from '../ui/format';
import type { KernelGpu, KernelState } from '../wire';

/**
 * If the kernel can't be queried while a cell runs, n/a is shown only after the cell has run for this long,
 * so that the text does not flicker when cells are short.
 */
const SHORT_CELL_MS = 1000;

/**
 * The text of the status item for the active notebook.
 *
 * The item is always shown, so it must cost little: it opens no stream and does not poll an idle kernel. It
 * shows the state that the kernel sent after its last cell. While a cell runs and the page is visible, the
 * kernel is polled every five seconds.
 */
export class StatusModel {
  private wanted = false;
  private current: StatusText | null = null;
  private busySince: number | null = null;
  private timer: number | null = null;
  private disposed = false;
  private readonly changes = new Signal<this, void>(this);
  private readonly activeChanges = new Signal<this, void>(this);

  constructor(
    private readonly trans: TranslationBundle,
    private readonly kernels: ActiveKernel,
    private readonly clock: Clock
  ) {
    kernels.changed.connect(this.update, this);
    unitsChanged.connect(this.update, this);
  }

  /** The text and tooltip to show; null if there is nothing to show. */
  get text(): StatusText | null {
    return this.current;
  }

  /** Emitted after an update. */
  get changed(): ISignal<this, void> {
    return this.changes;
  }

  /** Emitted when `text` becomes null or ceases to be null. */
  get activeChanged(): ISignal<this, void> {
    return this.activeChanges;
  }

  /** Set whether the settings enable the item and whether the page is visible. */
  setWanted(wanted: boolean, pageVisible: boolean): void {
    this.wanted = wanted;
    this.kernels.setStatusVisible(wanted && pageVisible);
    this.update();
  }

  /** Stop polling, cancel the timer and disconnect all signals. */
  dispose(): void {
    if (this.disposed) {
      return;
    }
    this.disposed = true;
    this.cancelTimer();
    this.kernels.changed.disconnect(this.update, this);
    unitsChanged.disconnect(this.update, this);
    this.kernels.setStatusVisible(false);
    Signal.clearData(this);
  }

  private update(): void {
    const wasActive = this.current !== null;
    this.current = this.wanted ? statusText(this.trans, this.kernels.view, this.isStale()) : null;
    this.changes.emit();
    if ((this.current !== null) !== wasActive) {
      this.activeChanges.emit();
    }
  }

  /**
   * Return whether the kernel's state predates the running cell and no newer state will be requested before
   * the cell ends. Return false during the cell's first second.
   */
  private isStale(): boolean {
    const { view, pollingDisabled } = this.kernels;
    if (!view.busy || !pollingDisabled) {
      this.busySince = null;
      this.cancelTimer();
      return false;
    }
    this.busySince ??= this.clock.now();
    const left = SHORT_CELL_MS - (this.clock.now() - this.busySince);
    if (left > 0) {
      this.timer ??= this.clock.after(left, () => {
        this.timer = null;
        this.update();
      });
    }
    return left <= 0;
  }

  private cancelTimer(): void {
    if (this.timer !== null) {
      this.clock.cancel(this.timer);
      this.timer = null;
    }
  }
}

/** The text of the status item and its tooltip. */
export interface StatusText {
  readonly text: string;
  readonly title: string;
}

/**
 * Return the default device of the active notebook and the memory that the notebook holds on it; null if
 * there is no notebook, no GPU or no gpuwidget in the kernel. `stale` means that the kernel's state predates
 * the running cell.
 */
export function statusText(trans: TranslationBundle, view: KernelView, stale: boolean): StatusText | null {
  if (view.condition.kind !== 'ready' || view.condition.state.gpus.length === 0) {
    return null;
  }
  const { state } = view.condition;
  const device = state.device.chosen ?? state.device.present;
  const known = view.silentFor === null && !stale;
  const { name, bytes, torch } = memoryHeld(trans, state, device);
  const title = trans.__('What %1 holds on its GPUs', view.notebook ?? trans.__('this notebook'));
  return {
    text: `${name ?? device ?? 'GPU'} · ${known ? memoryText(trans, { bytes, torch }) : UNKNOWN}`,
    title: [title, ...(known ? details(trans, state, bytes) : [reasonUnknown(trans, view)])].join('\n')
  };
}

/**
 * Return the memory held on the default device if that is a GPU, otherwise the memory held on all GPUs
 * together.
 */
function memoryHeld(
  trans: TranslationBundle,
  state: KernelState,
  device: string | null
): HeldMemory & { readonly name: string | null } {
  const chosen = state.gpus.find(gpu => gpu.torch_device !== null && gpu.torch_device === device);
  if (chosen !== undefined) {
    return { name: device, ...heldMemory(chosen) };
  }
  const [first, ...others] = state.gpus.filter(holds);
  if (first === undefined) {
    return { name: null, ...sumOfHeldMemory(state.gpus.map(heldMemory)) };
  }
  const all = [first, ...others];
  return {
    name: others.length === 0 ? first.torch_device : trans._n('%1 GPU', '%1 GPUs', all.length),
    ...sumOfHeldMemory(all.map(heldMemory))
  };
}

function holds(gpu: KernelGpu): boolean {
  return gpu.context || (heldMemory(gpu).bytes ?? 0) > 0;
}

/** Return memory as text, labelled `(torch)` if torch rather than the driver reported it. */
function memoryText(trans: TranslationBundle, { bytes, torch }: HeldMemory): string {
  return torch && bytes !== null ? trans.__('%1 (torch)', memory(bytes)) : memory(bytes);
}

function details(trans: TranslationBundle, state: KernelState, bytes: number | null): readonly string[] {
  const holding = state.gpus.filter(holds);
  const lines = holding.map(gpu => `${gpu.torch_device ?? gpu.uuid}: ${memoryText(trans, heldMemory(gpu))}`);
  if (holding.some(gpu => heldMemory(gpu).torch)) {
    lines.push(trans.__('torch’s own number: what it has reserved, without the CUDA context'));
  }
  if (bytes === null) {
    return [...lines, trans.__('Which part of a GPU’s memory is this notebook’s is not known')];
  }
  return lines.length > 0 ? lines : [trans.__('It holds no memory there')];
}

function reasonUnknown(trans: TranslationBundle, view: KernelView): string {
  return view.silentFor === null
    ? trans.__('Not known while a cell runs: the kernel is asked again when it has ended')
    : trans.__('The kernel has not answered for %1: a long call holds it.', duration(view.silentFor));
}
