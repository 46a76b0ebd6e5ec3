import { MenuSvg } from '@jupyterlab/ui-components';
import type { CommandRegistry } from '@lumino/commands';
import type { Menu } from '@lumino/widgets';

/** Open a menu with these `items` below `button`. When the menu closes, the button gets the focus again. */
export function openMenu(
  commands: CommandRegistry,
  items: readonly Menu.IItemOptions[],
  button: HTMLElement
): void {
  const menu = new MenuSvg({ commands });
  for (const item of items) {
    menu.addItem(item);
  }
  button.setAttribute('aria-expanded', 'true');
  menu.aboutToClose.connect(() => {
    button.removeAttribute('aria-expanded');
    button.focus();
    // The command of the chosen item is executed after the menu has closed, so dispose of the menu later.
    window.setTimeout(() => {
      menu.dispose();
    });
  });
  const { left, bottom } = button.getBoundingClientRect();
  menu.open(left, bottom);
}
