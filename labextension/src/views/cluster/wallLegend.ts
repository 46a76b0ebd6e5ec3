import type { TranslationBundle } from '@jupyterlab/translation';

import { element, setAttribute, TextElement } from '../../ui/dom';
import { UNKNOWN } from '../../model/format';
import { legendRanges, quantity, type QuantityName } from './quantities';

/** The legend of the wall: the colors with their ranges and unit, and the symbols. */
export class WallLegend {
  readonly node: HTMLElement;
  private readonly title = new TextElement('cluster-legend-title');
  private readonly scale = element('span', 'cluster-legend-scale');

  constructor(private readonly trans: TranslationBundle) {
    const symbols = [
      entry({ level: 'unknown' }, UNKNOWN),
      entry({ level: 'unknown', mark: 'lost' }, trans.__('lost')),
      entry({ mark: 'error' }, trans.__('errors in the last hour')),
      entry({ mark: 'found' }, trans.__('free, matches the search'))
    ];
    this.node = element('div', 'cluster-legend', this.title.node, this.scale, ...symbols);
  }

  /** Show the scale of a quantity, in the current units. */
  update(name: QuantityName): void {
    const shown = quantity(name);
    this.title.set(shown.legendTitle(this.trans));
    this.scale.replaceChildren(
      ...legendRanges(shown).map(({ level, text }) =>
        entry({ level: String(level), scale: shown.warm ? 'warm' : '' }, text)
      )
    );
  }
}

/** Return a sample of a cell with its meaning. */
function entry(
  {
    level = '',
    scale = '',
    mark = ''
  }: { level?: string; scale?: string; mark?: 'lost' | 'error' | 'found' | '' },
  text: string
): HTMLElement {
  const cell = element('span', 'cluster-cell');
  setAttribute(cell, 'data-level', level);
  setAttribute(cell, 'data-scale', scale);
  setAttribute(cell, 'data-mark', mark);
  setAttribute(cell, 'aria-hidden', 'true');
  return element('span', 'cluster-legend-entry', cell, text);
}
