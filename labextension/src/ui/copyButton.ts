import type { TranslationBundle } from '@jupyterlab/translation';

import { element } from './dom';

/** Copies a text to the clipboard. */
export type Copy = (text: string) => void;

/** Return a button with this class and label, which copies the text, and shows that it has until the pointer or the
 * focus leaves it. */
export function copyButton(
  trans: TranslationBundle,
  copy: Copy,
  className: string,
  label: string,
  text: () => string
): HTMLButtonElement {
  const button = element('button', className, label);
  button.type = 'button';
  button.onclick = () => {
    copy(text());
    // Keep the width, so that the elements next to the button do not move.
    button.style.minWidth = `${String(button.offsetWidth)}px`;
    button.textContent = trans.__('Copied');
  };
  button.onblur = button.onpointerleave = () => {
    button.textContent = label;
  };
  return button;
}
