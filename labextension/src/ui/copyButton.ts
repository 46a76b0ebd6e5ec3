import type { TranslationBundle } from '@jupyterlab/translation';

import { element } from './dom';

const COPIED_MS = 2000;

/** Copies a text to the clipboard. */
export type Copy = (text: string) => void;

/** Return a button with this class and label, which copies the text and shows for a moment that it has. */
export function copyButton(
  trans: TranslationBundle,
  copy: Copy,
  className: string,
  label: string,
  text: () => string
): HTMLButtonElement {
  let timer: number | undefined;
  const button = element('button', className, label);
  button.type = 'button';
  button.onclick = () => {
    copy(text());
    // Keep the width, so that the elements next to the button do not move.
    button.style.minWidth = `${String(button.offsetWidth)}px`;
    button.textContent = trans.__('Copied');
    window.clearTimeout(timer);
    timer = window.setTimeout(() => {
      button.textContent = label;
    }, COPIED_MS);
  };
  return button;
}
