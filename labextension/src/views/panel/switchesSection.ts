import type { TranslationBundle } from '@jupyterlab/translation';

import type { PanelContext } from './panelContext';
import { kernelNotice } from './panelMessages';
import { pendingRequest, type KernelView } from '../../model/kernel/kernels';
import type { Kernel } from '../../model/kernel/kernel';
import { element, openListOnKeys, setAttribute, TextElement } from '../../ui/dom';
import { CollapsibleSection } from '../../ui/panelSection';
import { UNKNOWN } from '../../model/format';
import type { Switch } from '../../wire/wire';

const ON = 'on';
const OFF = 'off';

/** The section for torch's switches in the active notebook's kernel. */
export class SwitchesSection extends CollapsibleSection {
  private readonly list = element('div', 'switches-list');
  private readonly log = new TextElement('switches-log', 'div');
  private readonly rows = new Map<string, SwitchRow>();
  private shown: Kernel | null = null;
  /** The switch that the user changed last in this kernel. */
  private latest: string | null = null;

  constructor(private readonly context: PanelContext) {
    const { trans, monitor, panelState } = context;
    super({
      className: 'switches',
      title: trans.__('PyTorch switches'),
      panelState,
      name: 'settings',
      sources: [monitor.kernels.changed]
    });
    this.body.append(this.list, this.log.node);
    this.list.setAttribute('role', 'group');
    this.list.setAttribute('aria-label', trans.__('PyTorch switches'));
    this.log.node.setAttribute('aria-live', 'polite');
  }

  protected override render(): boolean {
    const { trans, monitor, settings } = this.context;
    const { view, state } = monitor.kernels;
    if (view.kernel !== this.shown) {
      this.shown = view.kernel;
      this.latest = null;
    }
    if (!settings.current.show.switches) {
      return false;
    }
    this.summary.set(switchesSummary(trans, view));
    if (!this.node.open) {
      return true;
    }
    const reason = disabledReason(trans, view);
    if (state === null) {
      for (const row of this.rows.values()) {
        row.clear(reason);
      }
    } else {
      this.reconcile(state.switches);
      for (const torchSwitch of state.switches) {
        const requested = pendingRequest(view, 'set_switch', ({ name }) => name === torchSwitch.name);
        this.rows.get(keyOf(torchSwitch))?.update(torchSwitch, requested?.value ?? null, reason);
      }
    }
    this.log.set(switchesLog(trans, view, this.latest));
    return true;
  }

  /**
   * Create a row for each switch, and remove all other rows. A kernel with another version of gpuwidget may
   * have other switches.
   */
  private reconcile(switches: readonly Switch[]): void {
    if (switches.map(keyOf).join() === [...this.rows.keys()].join()) {
      return;
    }
    const before = new Map(this.rows);
    this.rows.clear();
    for (const torchSwitch of switches) {
      const key = keyOf(torchSwitch);
      const row =
        before.get(key) ??
        new SwitchRow(this.context.trans, torchSwitch, value => {
          this.latest = torchSwitch.name;
          void this.context.monitor.kernels.request({ ask: 'set_switch', name: torchSwitch.name, value });
        });
      this.rows.set(key, row);
    }
    this.list.replaceChildren(...[...this.rows.values()].map(({ node }) => node));
  }
}

/** One switch: a toggle, or a dropdown if there are more than two choices. */
class SwitchRow {
  readonly node: HTMLElement;
  private readonly title = new TextElement('switches-title');
  /** The tooltip's text for screen readers. */
  private readonly description = new TextElement('switches-description');
  private readonly value = new TextElement('switches-value');
  private readonly control: HTMLInputElement | HTMLSelectElement;

  /** `onChosen` is called with the value that the user has chosen. */
  constructor(
    private readonly trans: TranslationBundle,
    { name, choices }: Switch,
    onChosen: (value: string) => void
  ) {
    if (choices.every(choice => choice === ON || choice === OFF)) {
      const toggle = element('input', 'switches-toggle');
      toggle.type = 'checkbox';
      toggle.setAttribute('role', 'switch');
      toggle.onchange = () => {
        onChosen(toggle.checked ? ON : OFF);
      };
      this.control = toggle;
    } else {
      const dropdown = element('select', 'switches-dropdown');
      dropdown.append(...choices.map(choice => new Option(choice, choice)));
      dropdown.onchange = () => {
        onChosen(dropdown.value);
      };
      openListOnKeys(dropdown);
      this.control = dropdown;
    }
    this.title.node.id = `jp-gpuwidget-switch-${name}`;
    this.description.node.id = `${this.title.node.id}-description`;
    this.control.setAttribute('aria-labelledby', this.title.node.id);
    this.control.setAttribute('aria-describedby', this.description.node.id);
    this.node = element(
      'label',
      'switches-row',
      this.title.node,
      this.value.node,
      this.control,
      this.description.node
    );
  }

  /**
   * Show the switch's value, or its `requested` value while the kernel has not replied to the request. If
   * `reason` is not empty, the control is disabled.
   */
  update(torchSwitch: Switch, requested: string | null, reason: string): void {
    const { trans } = this;
    const value = requested ?? torchSwitch.pending ?? torchSwitch.value;
    this.title.set(trans.__(torchSwitch.title));
    const pending = torchSwitch.pending !== null && (requested === null || requested === torchSwitch.pending);
    const changed = value !== null && value !== torchSwitch.default;
    this.describe(
      [
        pending ? trans.__('Takes effect in the next cell') : '',
        trans.__(torchSwitch.trades),
        trans.__('PyTorch default: %1', torchSwitch.default),
        torchSwitch.note ?? '',
        reason
      ].filter(line => line !== '')
    );
    setAttribute(this.node, 'data-changed', changed ? 'true' : '');
    setAttribute(this.node, 'data-pending', pending ? 'true' : '');
    this.show(value, pending ? trans.__('next cell') : null, reason);
  }

  /** Show the switch's value as unknown and disable the control. */
  clear(reason: string): void {
    this.describe([reason]);
    setAttribute(this.node, 'data-changed', '');
    setAttribute(this.node, 'data-pending', '');
    this.show(null, null, reason);
  }

  private describe(lines: readonly string[]): void {
    setAttribute(this.node, 'title', lines.join('\n'));
    this.description.set(lines.join(' '));
  }

  private show(value: string | null, text: string | null, reason: string): void {
    const toggle = this.control instanceof HTMLInputElement;
    this.value.set(text ?? (value === null ? UNKNOWN : toggle ? value : ''));
    this.control.disabled = reason !== '';
    if (this.control instanceof HTMLInputElement) {
      this.control.checked = value === ON;
      this.control.indeterminate = value === null;
    } else if (this.control.value !== (value ?? '')) {
      this.control.value = value ?? ''; // An unknown value is shown as an empty dropdown.
    }
  }
}

/** Return a summary of all switches for the section's header. */
export function switchesSummary(trans: TranslationBundle, view: KernelView): string {
  if (view.condition.kind !== 'ready') {
    return '';
  }
  const { torch, switches } = view.condition.state;
  if (torch === null) {
    return trans.__('torch is not imported');
  }
  const pending = switches.filter(torchSwitch => torchSwitch.pending !== null).length;
  if (pending > 0) {
    return trans._n('%1 change in the next cell', '%1 changes in the next cell', pending);
  }
  const changed = switches.filter(
    torchSwitch => torchSwitch.value !== null && torchSwitch.value !== torchSwitch.default
  );
  return changed.length === 0
    ? trans.__('all default')
    : trans._n('%1 changed', '%1 changed', changed.length);
}

/** Return a sentence about why no switch can be changed; an empty text if the switches can be changed. */
export function disabledReason(trans: TranslationBundle, view: KernelView): string {
  if (view.condition.kind !== 'ready') {
    return kernelNotice(trans, view)?.text ?? '';
  }
  if (view.silentFor !== null) {
    return trans.__('The kernel does not answer: a long call blocks it.');
  }
  return view.condition.state.torch === null
    ? trans.__('torch is not imported in this kernel: import it in a cell first.')
    : '';
}

/**
 * Return the log of the switches, one entry per line: the reason of a rejected change, then the Python
 * statements that this kernel has run or will run, with the statement of the `latest` switch before the
 * others. Why the kernel is not ready or does not answer is not repeated: the section above shows it.
 */
export function switchesLog(trans: TranslationBundle, view: KernelView, latest: string | null): string {
  const rejected = view.rejection?.ask === 'set_switch' ? [view.rejection.reason] : [];
  if (view.condition.kind !== 'ready') {
    return [...rejected, trans.__('The switches are available once gpuwidget is loaded in the kernel.')].join(
      '\n'
    );
  }
  const { state } = view.condition;
  const rank = ({ name, pending }: Switch): number => (name === latest ? 0 : pending === null ? 2 : 1);
  const switches = [...state.switches].sort((one, other) => rank(one) - rank(other));
  const lines = switches.flatMap(({ name, title, statement, pending, note, value }) => {
    const hasNote = state.torch !== null && note !== null && (value === null || name === latest);
    const notes = hasNote ? [`${trans.__(title)}: ${note}`] : [];
    if (statement === null) {
      return notes;
    }
    const code = statement.replaceAll('\n', '; ');
    return pending === null
      ? [trans.__('Ran: %1', code), ...notes]
      : [trans.__('Takes effect in the next cell: %1', code)];
  });
  const all = [
    ...(state.torch === null ? [trans.__('Import torch in a cell to use the switches.')] : []),
    ...rejected,
    ...lines
  ];
  return all.length > 0 ? all.join('\n') : trans.__('Changes appear here as the Python code that was run.');
}

/**
 * Return the key of a switch's row. It includes the choices, because different choices need a different row.
 */
function keyOf({ name, choices }: Switch): string {
  return [name, ...choices].join(' ');
}
