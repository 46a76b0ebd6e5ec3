import type { TranslationBundle } from '@jupyterlab/translation';

import { element } from '../ui/dom';

/** Puts a text on the clipboard. */
export type Copy = (text: string) => void;

const SAID_FOR_MS = 2000;

/** A button that copies, and says for a moment that it has. */
export class CopyButton {
  readonly node = element('button', 'copy jp-Button jp-mod-styled');

  constructor(trans: TranslationBundle, label: string, title: string, text: () => string, copy: Copy) {
    this.node.type = 'button';
    this.node.textContent = label;
    this.node.title = title;
    this.node.onclick = () => {
      copy(text());
      // As wide as before: nothing beside it moves.
      this.node.style.minWidth = `${String(this.node.offsetWidth)}px`;
      this.node.textContent = trans.__('Copied');
      window.setTimeout(() => {
        this.node.textContent = label;
      }, SAID_FOR_MS);
    };
  }
}
