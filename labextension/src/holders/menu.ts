import type { JupyterFrontEnd } from '@jupyterlab/application';
import { MenuSvg } from '@jupyterlab/ui-components';

import type { Target } from './actions';
import { HolderCommandIds } from '../tokens';

/** The menu of what can be done about a holder, below the button that opens it. */
export class HolderMenu {
  constructor(private readonly commands: JupyterFrontEnd['commands']) {}

  /** Open it below `button`, which has the keyboard again once it is closed. */
  open(target: Target, button: HTMLElement): void {
    const menu = new MenuSvg({ commands: this.commands });
    const { kernel, terminal } = target;
    const args = kernel === null ? { terminal } : { kernel };
    menu.addItem({ command: HolderCommandIds.goTo, args });
    if (kernel !== null) {
      menu.addItem({ command: HolderCommandIds.freeCache, args });
      menu.addItem({ type: 'separator' });
      menu.addItem({ command: HolderCommandIds.shutDown, args });
    }
    button.setAttribute('aria-expanded', 'true');
    menu.aboutToClose.connect(() => {
      button.removeAttribute('aria-expanded');
      button.focus();
      // After the item that was chosen has run its command.
      window.setTimeout(() => {
        menu.dispose();
      });
    });
    const { left, bottom } = button.getBoundingClientRect();
    menu.open(left, bottom);
  }
}
