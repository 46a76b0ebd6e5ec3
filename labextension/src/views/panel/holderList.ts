import type { ActionResult } from '../../model/memory/statusMessage';
import type { TranslationBundle } from '@jupyterlab/translation';
import { ellipsesIcon } from '@jupyterlab/ui-components';

import type { IPanelState } from '../../model/panelState';
import { gpuHoursText } from '../../model/memory/gpuHours';
import {
  holderName,
  holdersOf,
  kernelStateText,
  sortedHolders,
  targetOf,
  type ActionTarget,
  type Holder
} from '../../model/memory/holders';
import type { GpuNow } from '../../model/stream/streamModel';
import { element, KeyedList, setAttribute, setHidden, TextElement } from '../../ui/dom';
import { gpuNumber, memory } from '../../model/format';
import type { GpuMemoryOwnership, ServerKernel } from '../../wire/wire';

/** Maximum number of holders in the collapsed list. */
const MAX_COLLAPSED = 5;

/** The actions in a holder's line. */
export interface OpenHolder {
  /** Open the menu of actions on `target` below `button`. */
  readonly openMenu: (target: ActionTarget, button: HTMLElement) => void;
  /** Activate the tab of the holder's notebook or terminal. */
  readonly goTo: (target: ActionTarget) => void;
}

/** The data that the lines of all holders share. */
export interface HolderContext {
  readonly kernels: ReadonlyMap<string, ServerKernel>;
  /** The time of the server's newest sample in epoch seconds. */
  readonly time: number;
  /** Ids of the kernels for which a hint is shown. */
  readonly hinted: ReadonlySet<string>;
  /** Whether holders are shown, according to the settings. */
  readonly listed: boolean;
  /** The reason that the panel shows once for all GPUs; empty if there is none. */
  readonly sharedReason: string;
  /** The default device of the active notebook; null if unknown. */
  readonly device: string | null;
  readonly result: ActionResult | null;
}

/** The list of the holders of one GPU's memory, one per line. */
export class HolderList {
  readonly node: HTMLElement;
  private readonly list: KeyedList<HolderLine>;
  /** The line of unattributed memory, which is below the button that expands the list. */
  private readonly unattributed: KeyedList<HolderLine>;
  private readonly reason = new TextElement('holder-reason', 'div');
  private readonly count = new TextElement('');
  private readonly sum = new TextElement('holder-memory');
  private readonly more: HTMLButtonElement;
  private holders: readonly Holder[] = [];
  private sortedFor: {
    readonly usage: GpuMemoryOwnership | null;
    readonly activeKernelId: string | null;
  } | null = null;

  /** `name` is the list's name in the saved state of the panel. */
  constructor(
    private readonly trans: TranslationBundle,
    actions: OpenHolder,
    private readonly panelState: IPanelState,
    private readonly name: string
  ) {
    const line = (): HolderLine => new HolderLine(trans, actions);
    this.list = new KeyedList('holder-lines', line);
    this.unattributed = new KeyedList('holder-lines', line);
    this.more = element('button', 'panel-more', this.count.node, this.sum.node);
    this.more.type = 'button';
    this.more.onclick = () => {
      panelState.setExpanded(name, !this.expanded);
    };
    this.node = element(
      'div',
      'holder-list',
      this.list.node,
      this.more,
      this.unattributed.node,
      this.reason.node
    );
  }

  private get expanded(): boolean {
    return this.panelState.isExpanded(this.name) ?? false;
  }

  /** Return the holders of the GPU's memory in the order of their lines. */
  sort({ usage, activeKernelId }: GpuNow, kernels: HolderContext['kernels']): readonly Holder[] {
    if (this.sortedFor?.usage !== usage || this.sortedFor.activeKernelId !== activeKernelId) {
      this.sortedFor = { usage, activeKernelId };
      const before = this.holders.map(({ key }) => key);
      this.holders = usage === null ? [] : sortedHolders(holdersOf(usage, kernels, activeKernelId), before);
    }
    return this.holders;
  }

  /** Update the lines. */
  update({ gpu, usage }: GpuNow, context: HolderContext): void {
    const { trans, expanded } = this;
    const number = gpuNumber(gpu);
    setAttribute(this.list.node, 'aria-label', trans.__('Holders of the memory of GPU %1', number));
    setAttribute(
      this.unattributed.node,
      'aria-label',
      trans.__('Memory of GPU %1 held by unknown processes', number)
    );
    const known = this.holders.filter(({ kind }) => kind !== 'unattributed');
    if (known.length > 0) {
      setAttribute(this.node, 'data-used', 'true');
    }
    // Collapsing must hide at least two lines: a button in place of a single line would save no space.
    const collapsible = known.length > MAX_COLLAPSED + 1;
    const shown = collapsible && !expanded ? known.slice(0, MAX_COLLAPSED) : known;
    updateLines(this.list, shown, context);
    updateLines(
      this.unattributed,
      // If there is no other holder, the line would repeat the memory in use.
      known.length === 0 ? [] : this.holders.filter(({ kind }) => kind === 'unattributed'),
      context
    );
    setHidden(this.more, !collapsible);
    setAttribute(this.more, 'aria-expanded', String(expanded));
    const hidden = known.slice(shown.length);
    this.count.set(
      expanded ? trans.__('Show only the largest') : trans._n('and %1 more', 'and %1 more', hidden.length)
    );
    this.sum.set(hidden.length === 0 ? '' : sumText(hidden));
    this.reason.set(context.sharedReason === '' ? (usage?.reason ?? '') : '');
  }
}

function updateLines(list: KeyedList<HolderLine>, holders: readonly Holder[], context: HolderContext): void {
  setHidden(list.node, holders.length === 0);
  list.arrange(holders.map(({ key }) => key)).forEach((line, index) => {
    const holder = holders[index];
    if (holder !== undefined) {
      line.update(holder, context);
    }
  });
}

/**
 * Return the sum of the holders' memory. It is prefixed by `≥` if the memory of a holder is unknown or is
 * torch's figure, which leaves out the CUDA context.
 */
function sumText(holders: readonly Holder[]): string {
  const known = holders.flatMap(holder => holder.memory ?? []);
  const sum = known.reduce((all, each) => all + each, 0);
  const exact =
    known.length === holders.length && holders.every(({ holding }) => holding?.source !== 'torch');
  return known.length === 0 ? memory(null) : `${exact ? '' : '≥ '}${memory(sum)}`;
}

/** The line of one holder, with its memory and a button for the menu of actions. */
class HolderLine {
  readonly node: HTMLElement;
  private readonly name = new TextElement('holder-name');
  private readonly state = new TextElement('holder-state');
  private readonly torch = new TextElement('holder-torch');
  private readonly memory = new TextElement('holder-memory');
  private readonly result = new TextElement('holder-result');
  private readonly button = element(
    'button',
    'icon-button jp-gpuwidget-holder-menu',
    ellipsesIcon.element({ tag: 'span' })
  );
  private target: ActionTarget | null = null;

  constructor(
    private readonly trans: TranslationBundle,
    actions: OpenHolder
  ) {
    this.button.type = 'button';
    this.button.setAttribute('aria-haspopup', 'menu');
    this.button.onclick = () => {
      if (this.target !== null) {
        actions.openMenu(this.target, this.button);
      }
    };
    // The name is clickable only with the mouse. With the keyboard, the first item of the menu has the same
    // effect.
    this.name.node.onclick = () => {
      if (this.target !== null) {
        actions.goTo(this.target);
      }
    };
    this.node = element(
      'li',
      'holder',
      element('i', 'holder-swatch'),
      this.name.node,
      this.torch.node,
      this.state.node,
      this.memory.node,
      this.button,
      this.result.node
    );
  }

  update(holder: Holder, { kernels, time, hinted, result }: HolderContext): void {
    const { trans } = this;
    const { kernel, active, kind, holding } = holder;
    const [name, fullName] = holderName(trans, holder, kernels.values());
    setAttribute(this.node, 'data-who', active ? 'here' : kind === 'unattributed' ? 'unknown' : 'other');
    setAttribute(this.node, 'aria-current', active ? 'true' : '');
    const hours = kernel?.gpu_hours ?? null;
    this.name.set(
      name,
      [
        active ? trans.__('%1 · active notebook', fullName) : fullName,
        ...(hours === null ? [] : [trans.__('Since the server’s start: %1', gpuHoursText(trans, hours))])
      ].join('\n')
    );
    const state = kernelStateText(trans, kernel, time);
    this.state.set(state);
    setAttribute(this.node, 'data-state', state === '' ? '' : 'true');
    setAttribute(this.state.node, 'data-warm', kernel !== null && hinted.has(kernel.id) ? 'true' : '');
    const torch = holding?.source === 'torch';
    const size = holder.memory ?? holding?.memory ?? null;
    if (size !== holder.memory) {
      this.torch.set(trans.__('older'), trans.__('From an older reading than the memory in use'));
    } else {
      this.torch.set(
        torch ? trans.__('torch') : '',
        torch ? trans.__('Reserved memory as PyTorch reports it, without the CUDA context') : ''
      );
    }
    this.memory.set(memory(size));
    this.result.set(result?.at(this, kernel?.id ?? null) ?? '');
    this.target = targetOf(holder);
    setAttribute(this.node, 'data-torch', torch ? 'true' : '');
    setAttribute(this.node, 'data-act', this.target === null ? '' : 'true');
    this.button.disabled = this.target === null;
    const label = this.target === null ? '' : trans.__('Actions for %1', name);
    setAttribute(this.button, 'aria-label', label);
    setAttribute(this.button, 'title', label);
  }
}
