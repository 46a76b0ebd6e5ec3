import type { TranslationBundle } from '@jupyterlab/translation';

import type { Notice } from '../panel/panelMessages';
import { element, setAttribute, setHidden, TextElement } from '../../ui/dom';

/** What is shown in place of the charts when there is nothing to draw: a text, and possibly a button. */
export interface EmptyState {
  readonly text: string;
  readonly command?: string | undefined;
  /** What the button shows again: all metrics or all GPUs. If undefined, there is no button. */
  readonly action?: 'metrics' | 'gpus';
  /** Whether this state usually lasts only a moment; it is then shown with a delay. */
  readonly transient?: true;
  /** Whether the text contains an increasing number of seconds. */
  readonly counts?: true | undefined;
}

/** The data that determines whether there is anything to draw. */
export interface DashboardContent {
  /** Number of GPUs that the server reports; null before the first sample. */
  readonly gpus: number | null;
  /** Why the server has no GPU; null if it has one. */
  readonly reason: string | null;
  /** Number of GPUs that are shown. */
  readonly shownGpus: number;
  /** Number of selected metrics. */
  readonly metrics: number;
  /** Whether the history has been loaded. */
  readonly loaded: boolean;
  /** A notice about a problem with the server; null if there is none. */
  readonly notice: Notice | null;
}

/** Return the empty state to show; null if there is something to draw. */
export function emptyState(
  trans: TranslationBundle,
  { gpus, reason, shownGpus, metrics, loaded, notice }: DashboardContent
): EmptyState | null {
  if (gpus === null) {
    return fromNotice(notice) ?? { text: trans.__('Waiting for the first sample…'), transient: true };
  }
  if (gpus === 0) {
    return { text: reason ?? trans.__('The server found no GPU.') };
  }
  if (metrics === 0) {
    return { text: trans.__('No metric is selected.'), action: 'metrics' };
  }
  if (shownGpus === 0) {
    return { text: trans.__('No GPU is selected.'), action: 'gpus' };
  }
  return loaded ? null : (fromNotice(notice) ?? { text: trans.__('Loading the history…'), transient: true });
}

function fromNotice(notice: Notice | null): EmptyState | null {
  return notice && { text: notice.text, command: notice.command, counts: notice.countsSeconds };
}

/** Shows an empty state in place of the charts, with a button if the state has an action. */
export class EmptyStateView {
  readonly node: HTMLElement;
  private readonly text = new TextElement('dashboard-empty-text', 'div');
  private readonly command = new TextElement('notice-command', 'code');
  private readonly label = new TextElement('');
  private readonly button = element('button', 'dashboard-button', this.label.node);
  private action: EmptyState['action'];

  /** `act` is called with the action of the button when it is clicked. */
  constructor(
    private readonly trans: TranslationBundle,
    icon: HTMLElement,
    act: (action: NonNullable<EmptyState['action']>) => void
  ) {
    icon.setAttribute('aria-hidden', 'true');
    this.button.type = 'button';
    this.button.onclick = () => {
      if (this.action !== undefined) {
        act(this.action);
      }
    };
    const sentence = element('div', 'dashboard-empty-sentence', this.text.node, this.command.node);
    this.node = element('div', 'dashboard-empty', icon, sentence, this.button);
    setHidden(this.node, true);
  }

  /** Show `state`, or nothing if it is null. */
  show(state: EmptyState | null): void {
    setHidden(this.node, state === null);
    setAttribute(this.node, 'data-transient', state?.transient === true ? 'true' : '');
    // If the region were live, a screen reader would read the text aloud every second, because its number of
    // seconds increases.
    setAttribute(this.text.node, 'aria-live', state?.counts === true ? 'off' : 'polite');
    this.text.set(state?.text ?? '');
    this.command.set(state?.command ?? '');
    setHidden(this.command.node, state?.command === undefined);
    this.action = state?.action;
    setHidden(this.button, this.action === undefined);
    if (this.action !== undefined) {
      this.label.set(
        this.action === 'metrics' ? this.trans.__('Show all metrics') : this.trans.__('Show all GPUs')
      );
    }
  }
}
