import type { TranslationBundle } from '@jupyterlab/translation';

import { gpuName, unavailability } from '../panel/panelMessages';
import { element, setAttribute, Text } from '../ui/dom';
import { gpuNumber } from '../ui/format';
import type { Gpu, Sample } from '../wire';
import { swatch } from './swatch';

/** Up to so many GPUs are told with their model, more by their number. */
const FEW = 4;

interface Chip {
  readonly node: HTMLButtonElement;
  readonly name: Text;
  readonly away: Text;
}

/** What the legend tells. */
export interface LegendPorts {
  readonly trans: TranslationBundle;
  /** The user shows or hides a GPU. */
  readonly toggled: (uuid: string) => void;
  /** The user wants to see this one alone. */
  readonly only: (uuid: string) => void;
  readonly focus: (uuid: string | null) => void;
}

/** All GPUs, each a button that shows or hides its lines. */
export class Legend {
  readonly node: HTMLElement;
  private readonly chips = new Map<string, Chip>();

  constructor(private readonly ports: LegendPorts) {
    this.node = element('div', 'legend');
    setAttribute(this.node, 'role', 'group');
    setAttribute(this.node, 'aria-label', ports.trans.__('GPUs'));
  }

  /** Show the GPUs of `sample`, those `hidden` as such. */
  update(sample: Sample | null, hidden: readonly string[]): void {
    const gpus = sample?.gpus ?? [];
    this.reconcile(gpus);
    gpus.forEach((gpu, place) => {
      const chip = this.chips.get(gpu.uuid);
      const reading = sample?.readings[place];
      if (chip === undefined || reading === undefined) {
        return;
      }
      const { trans } = this.ports;
      const shown = !hidden.includes(gpu.uuid);
      const name = gpuName(trans, gpu);
      setAttribute(chip.node, 'aria-pressed', String(shown));
      chip.name.set(gpus.length <= FEW ? `${gpuNumber(gpu)} ${name}` : gpuNumber(gpu));
      const [short, long] = unavailability(trans, reading, sample?.time ?? NaN) ?? ['', ''];
      chip.away.set(short);
      setAttribute(
        chip.node,
        'title',
        [trans.__('GPU %1, %2', gpuNumber(gpu), name), long, trans.__('Shift: this one alone')]
          .filter(words => words !== '')
          .join('\n')
      );
    });
  }

  private reconcile(gpus: readonly Gpu[]): void {
    const order = gpus.map(gpu => gpu.uuid);
    if (order.join() === [...this.chips.keys()].join()) {
      return;
    }
    this.chips.clear();
    gpus.forEach(({ uuid }, place) => {
      this.chips.set(uuid, this.chip(uuid, place));
    });
    this.node.replaceChildren(...[...this.chips.values()].map(chip => chip.node));
  }

  private chip(uuid: string, place: number): Chip {
    const [name, away] = [new Text('name'), new Text('away')];
    const node = element('button', 'chip', swatch(place), name.node, away.node);
    node.type = 'button';
    node.dataset.gpuUuid = uuid;
    const { toggled, only, focus } = this.ports;
    node.onclick = event => {
      (event.shiftKey ? only : toggled)(uuid);
    };
    node.onmouseenter = node.onfocus = () => {
      focus(uuid);
    };
    node.onmouseleave = node.onblur = () => {
      focus(null);
    };
    return { node, name, away };
  }
}
