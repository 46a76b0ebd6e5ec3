import type { TranslationBundle } from '@jupyterlab/translation';

import type { OpenHolder } from './holderList';
import type { PanelContext } from './panelContext';
import { HintFinder, type Hint } from '../../model/memory/hints';
import {
  approximateDuration,
  gpuNumbers,
  holderName,
  kernelName,
  kernelPath,
  kernelsOf,
  targetOf,
  type ActionTarget
} from '../../model/memory/holders';
import { element, KeyedList, setAttribute, setHidden, TextElement } from '../../ui/dom';
import { gpuNumber, memory, whole } from '../../model/format';
import type { Settings } from '../../model/settings/settings';
import { PanelSection } from '../../ui/panelSection';
import type { MemoryOwnership, Sample, ServerKernel } from '../../wire/wire';

/** Maximum number of hints in the collapsed list. */
const MAX_COLLAPSED = 3;
/** The list's name in the saved state of the panel. */
const NAME = 'hints';

type Kernels = ReadonlyMap<string, ServerKernel>;

/** The list of hints, one per line. */
export class HintSection extends PanelSection {
  private readonly list: KeyedList<HintLine>;
  private readonly more = new TextElement('');
  private readonly button: HTMLButtonElement;
  private readonly finder = new HintFinder();
  private found: {
    readonly usage: MemoryOwnership | null;
    readonly sample: Sample | null;
    readonly settings: Settings;
    readonly hints: readonly Hint[];
  } | null = null;

  constructor(private readonly context: PanelContext) {
    const { trans, monitor, holders, panelState } = context;
    super(element('section', 'hint-list jp-gpuwidget-live'), [monitor.changed, panelState.changed]);
    this.list = new KeyedList('hint-lines', () => new HintLine(trans, holders));
    this.list.node.setAttribute('aria-label', trans.__('Hints'));
    this.button = element('button', 'panel-more', this.more.node);
    this.button.type = 'button';
    this.button.onclick = () => {
      panelState.setExpanded(NAME, !this.expanded);
    };
    this.node.append(this.list.node, this.button);
  }

  /** The current hints; none if the settings hide them. */
  get hints(): readonly Hint[] {
    const { usage, sample, server } = this.context.monitor.model;
    const settings = this.context.settings.current;
    const { found } = this;
    if (found?.usage === usage && found.sample === sample && found.settings === settings) {
      return found.hints;
    }
    const hints =
      usage === null || sample === null || !settings.show.hints
        ? []
        : this.finder.find(usage, sample, server?.interval ?? 0, settings.hints);
    this.found = { usage, sample, settings, hints };
    return hints;
  }

  private get expanded(): boolean {
    return this.context.panelState.isExpanded(NAME) ?? false;
  }

  protected override render(): boolean {
    const { trans, monitor } = this.context;
    const { hints, expanded } = this;
    const kernels = kernelsOf(monitor.model.usage);
    const collapsible = hints.length > MAX_COLLAPSED + 1;
    const shown = collapsible && !expanded ? hints.slice(0, MAX_COLLAPSED) : hints;
    this.list.arrange(shown.map(({ key }) => key)).forEach((line, index) => {
      const hint = shown[index];
      if (hint !== undefined) {
        line.update(hint, kernels);
      }
    });
    setHidden(this.button, !collapsible);
    setAttribute(this.button, 'aria-expanded', String(expanded));
    setAttribute(this.node, 'data-open', String(collapsible && expanded));
    const left = hints.length - MAX_COLLAPSED;
    this.more.set(expanded ? trans.__('Show fewer') : trans._n('and %1 more', 'and %1 more', left));
    return hints.length > 0;
  }
}

/** One hint: the notebook or GPU, what was found, and a button that opens the menu of actions. */
class HintLine {
  readonly node: HTMLElement;
  private readonly name = new TextElement('hint-name');
  private readonly chip = new TextElement('hint-chip');
  private readonly button = element('button', 'button jp-gpuwidget-hint-action');
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
    this.node = element('li', 'hint', this.name.node, this.chip.node, this.button);
  }

  update(hint: Hint, kernels: Kernels): void {
    const { trans } = this;
    let name: string;
    let title: string;
    if (hint.kind === 'idle') {
      const { kernel, idle, torch, gpus } = hint;
      name = kernelName(trans, kernel, kernels.values());
      title = kernelPath(trans, kernel);
      const where = trans.__('on %1', gpuNumbers(trans, gpus.map(gpuNumber)));
      this.chip.set(
        trans.__('idle %1, holds %2', approximateDuration(idle), memory(hint.memory)),
        torch ? trans.__('%1, reported by PyTorch', where) : where
      );
      this.target = { kernel: kernel.id, terminal: null };
      this.button.textContent = trans.__('Free…');
    } else {
      const { gpu, utilization, seconds, holders } = hint;
      const names = holders.map(holder => holderName(trans, holder, kernels.values()));
      const [first = ['', '']] = names;
      const others = names.length - 1;
      name = others > 0 ? trans._n('%2 and %1 other', '%2 and %1 others', others, first[0]) : first[0];
      title = names.map(([short, long]) => (long === '' ? short : long)).join('\n');
      this.chip.set(
        trans.__('GPU %1 at %2 % over %3', gpuNumber(gpu), whole(utilization), approximateDuration(seconds)),
        trans.__(
          'Average utilization. All this time, these holders held memory and, as far as the panel knows, were not idle'
        )
      );
      const [only] = holders;
      this.target = holders.length === 1 && only !== undefined ? targetOf(only) : null;
      this.button.textContent = trans.__('Actions…');
    }
    this.name.set(name, title);
    setHidden(this.button, this.target === null);
    setAttribute(this.button, 'aria-label', trans.__('Actions for %1', name));
  }
}
