import type { TranslationBundle } from '@jupyterlab/translation';

import { element } from '../ui/dom';
import type { Check } from '../wire';
import { CopyButton, type Copy } from './copyButton';
import { commandIn, statusWord, SYMBOLS } from './words';

/** One link of the chain: a line, and below it what was found. What is not well is unfolded. */
export function linkView(trans: TranslationBundle, link: Check, copy: Copy): HTMLElement {
  const { status, title, found, reason, remedy, evidence } = link;
  const symbol = element('span', 'link-symbol', SYMBOLS[status]);
  symbol.setAttribute('aria-hidden', 'true');
  const head = element(
    'summary',
    'link-head',
    symbol,
    element('span', 'link-title', trans.__(title)),
    element('span', 'link-found', found),
    element('span', 'link-status', statusWord(trans, status))
  );
  const body = element('div', 'link-body', element('div', 'link-what', found));
  if (reason !== null) {
    body.append(element('div', '', reason));
  }
  if (remedy !== null) {
    body.append(...remedyView(trans, link, remedy, copy));
  }
  const read = Object.entries(evidence);
  if (read.length > 0) {
    const list = element('dl', 'link-evidence');
    for (const [name, value] of read) {
      list.append(element('dt', '', name), element('dd', '', value));
    }
    body.append(element('details', '', element('summary', 'link-read', trans.__('What was read')), list));
  }
  const node = element('details', 'link', head, body);
  node.dataset.status = status;
  node.open = reason !== null;
  return node;
}

/** The one thing to do; a command in it stands apart, with a button that copies it. */
function remedyView(trans: TranslationBundle, link: Check, remedy: string, copy: Copy): HTMLElement[] {
  const found = commandIn(link);
  const label = element('b', '', trans.__('Do: '));
  if (found === null) {
    return [element('div', '', label, remedy)];
  }
  const { before, command, after } = found;
  const button = new CopyButton(trans, trans.__('Copy'), trans.__('Copy the command'), () => command, copy);
  return [
    element('div', '', label, before),
    element('div', 'link-copy', element('code', 'command', command), button.node),
    ...(after === '' ? [] : [element('div', '', after)])
  ];
}
