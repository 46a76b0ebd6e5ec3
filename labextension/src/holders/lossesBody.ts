import { Widget } from '@lumino/widgets';

import { element } from '../ui/dom';

/** What is lost, as a list between two sentences. */
export class LossesBody extends Widget {
  constructor(before: string, losses: readonly string[], after: string) {
    const items = losses.map(loss => element('li', '', loss));
    super({
      node: element(
        'div',
        'losses',
        element('div', '', before),
        element('ul', '', ...items),
        element('div', '', after)
      )
    });
  }
}
