import type { TranslationBundle } from '@jupyterlab/translation';

import { element, setAttribute, Text } from '../ui/dom';
import { moment } from '../ui/format';
import type { Chooser } from './chooser';
import { RANGES, type DashboardState, type Part } from './state';

/** What the user asks for. */
export interface ToolbarPorts {
  readonly trans: TranslationBundle;
  readonly range: (seconds: number) => void;
  /** Follow what happens now, or stand still. */
  readonly live: (live: boolean) => void;
  readonly save: () => void;
}

/** Above the charts: how much of the past, whether it goes on, what is shown, and the table of it. */
export class Toolbar {
  readonly node: HTMLElement;
  private readonly ranges = new Map<number, HTMLButtonElement>();
  private readonly live: HTMLButtonElement;
  private readonly save: HTMLButtonElement;
  private readonly part = new Text('part');
  private making = false;
  private nothing = true;

  constructor(ports: ToolbarPorts, chooser: Chooser) {
    const { trans } = ports;
    const button = (words: string, title: string, act: () => void): HTMLButtonElement => {
      const made = element('button', 'act', words);
      made.type = 'button';
      made.title = title;
      made.onclick = act;
      return made;
    };
    const group = element('div', 'ranges');
    setAttribute(group, 'role', 'group');
    setAttribute(group, 'aria-label', trans.__('How much of the past'));
    for (const seconds of RANGES) {
      const words = seconds < 3600 ? trans.__('%1 min', seconds / 60) : trans.__('%1 h', seconds / 3600);
      const made = button(words, trans.__('Show the last %1', words), () => {
        ports.range(seconds);
      });
      this.ranges.set(seconds, made);
      group.append(made);
    }
    this.live = button(trans.__('Live'), trans.__('Follow what happens now, or stand still'), () => {
      ports.live(this.live.getAttribute('aria-pressed') !== 'true');
    });
    this.live.classList.add('jp-gpuwidget-live');
    this.save = button(trans.__('CSV'), trans.__('Save what is shown as a table (CSV)'), ports.save);
    this.save.classList.add('jp-gpuwidget-save');
    this.node = element('div', 'tools', group, this.live, this.part.node, chooser.node, this.save);
    setAttribute(this.node, 'role', 'toolbar');
    setAttribute(this.node, 'aria-label', trans.__('GPU dashboard'));
  }

  /** Show the range that is chosen, and the part that stands still if one does. */
  update({ range }: DashboardState, still: Part | null): void {
    for (const [seconds, button] of this.ranges) {
      setAttribute(button, 'aria-pressed', String(still === null && seconds === range));
    }
    setAttribute(this.live, 'aria-pressed', String(still === null));
    const now = Date.now() / 1000;
    this.part.set(still === null ? '' : `${moment(still.from, now)} – ${moment(still.to, now)}`);
  }

  /** Whether there is nothing to make a table of. */
  set empty(empty: boolean) {
    this.nothing = empty;
    this.enable();
  }

  /** Whether a table is being made. */
  saving(saving: boolean): void {
    this.making = saving;
    this.enable();
  }

  private enable(): void {
    this.save.disabled = this.making || this.nothing;
  }
}
