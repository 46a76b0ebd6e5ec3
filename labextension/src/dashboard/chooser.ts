import type { TranslationBundle } from '@jupyterlab/translation';

import { element, Text } from '../ui/dom';
import { isCounted, kindOf, METRICS, wordsOf, type MetricName } from './metrics';

/** The choice of metrics: a list of boxes that opens below its button. */
export class Chooser {
  readonly node: HTMLDetailsElement;
  private readonly count = new Text('count');
  private readonly boxes = new Map<MetricName, HTMLInputElement>();

  /** `chosen` is told of every box that is ticked or not any more; `all` of one button for all, or for none. */
  constructor(
    trans: TranslationBundle,
    chosen: (name: MetricName, shown: boolean) => void,
    all: (shown: boolean) => void
  ) {
    const summary = element('summary', 'act', trans.__('Metrics'), this.count.node);
    const list = element('div', 'list');
    const group = (title: string, names: readonly MetricName[]): void => {
      const set = element('fieldset', 'group', element('legend', '', title));
      for (const name of names) {
        set.append(this.box(trans, name, chosen));
      }
      list.append(set);
    };
    group(
      trans.__('Driver'),
      METRICS.filter(name => !isCounted(name))
    );
    group(
      trans.__('Hardware counters'),
      METRICS.filter(name => isCounted(name) && kindOf(name) !== 'rate')
    );
    group(
      trans.__('Traffic'),
      METRICS.filter(name => kindOf(name) === 'rate')
    );
    const button = (words: string, shown: boolean): HTMLButtonElement => {
      const made = element('button', 'act', words);
      made.type = 'button';
      made.onclick = () => {
        all(shown);
      };
      return made;
    };
    list.append(element('div', 'both', button(trans.__('All'), true), button(trans.__('None'), false)));
    this.node = element('details', 'chooser', summary, list);
    this.node.onkeydown = event => {
      if (event.key === 'Escape' && this.node.open) {
        this.close();
        summary.focus();
        event.stopPropagation();
      }
    };
    this.node.addEventListener('focusout', ({ relatedTarget }) => {
      if (relatedTarget instanceof Node && !this.node.contains(relatedTarget)) {
        this.close();
      }
    });
  }

  /** Tick the boxes of what is shown. */
  update(shown: readonly MetricName[]): void {
    for (const [name, box] of this.boxes) {
      box.checked = shown.includes(name);
    }
    this.count.set(
      shown.length === METRICS.length ? '' : `${String(shown.length)}/${String(METRICS.length)}`
    );
  }

  /** Fold it, as when something else was clicked. */
  close(): void {
    this.node.open = false;
  }

  private box(
    trans: TranslationBundle,
    name: MetricName,
    chosen: (name: MetricName, shown: boolean) => void
  ): HTMLLabelElement {
    const box = element('input', '');
    box.type = 'checkbox';
    box.value = name;
    box.onchange = () => {
      chosen(name, box.checked);
    };
    this.boxes.set(name, box);
    const [label, meaning] = wordsOf(trans, name);
    const made = element('label', '', box, label);
    made.title = meaning;
    return made;
  }
}
