import type { IDisposable } from '@lumino/disposable';
import type { ISignal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';

import type { IPanelState } from '../model/panelState';
import { element, TextElement } from './dom';

/**
 * A section of the panel. It is updated after each signal of its sources, but only while the panel is visible.
 * The panel itself updates all sections when it becomes visible and when the settings have changed.
 */
export abstract class PanelSection extends Widget {
  constructor(node: HTMLElement, sources: readonly ISignal<unknown, unknown>[]) {
    super({ node });
    for (const source of sources) {
      source.connect(this.update, this);
    }
  }

  /** Show the current state. Return whether there is something to show; if not, the section is hidden. */
  protected abstract render(): boolean;

  protected override onAfterAttach(): void {
    this.update();
  }

  protected override onUpdateRequest(): void {
    if (this.parent?.isVisible === true) {
      this.setHidden(!this.render());
    }
  }
}

/** What a section is that the user expands and collapses. */
export interface CollapsibleSectionOptions {
  readonly className: string;
  readonly title: string;
  readonly panelState: IPanelState;
  /** The section's name in the saved state of the panel. */
  readonly name: string;
  readonly sources: readonly ISignal<unknown, unknown>[];
}

/** A section with a header, below which the rest is expanded and collapsed. It is collapsed by default. */
export abstract class CollapsibleSection extends PanelSection {
  declare readonly node: HTMLDetailsElement;
  protected readonly summary = new TextElement('section-summary');
  protected readonly head: HTMLElement;
  protected readonly body = element('div', 'section-body');
  private readonly binding: IDisposable;

  constructor({ className, title, panelState, name, sources }: CollapsibleSectionOptions) {
    super(element('details', `section jp-gpuwidget-${className}`), sources);
    this.head = element(
      'summary',
      'section-head',
      element('span', 'section-title', title),
      this.summary.node
    );
    this.node.append(this.head, this.body);
    this.binding = panelState.bindDetails(this.node, name, byUser => {
      this.onToggle?.(byUser);
      this.update();
    });
  }

  override dispose(): void {
    this.binding.dispose();
    super.dispose();
  }

  /** Called after the section has been expanded or collapsed. `byUser` is false if its saved state was restored. */
  protected onToggle?(byUser: boolean): void;
}
