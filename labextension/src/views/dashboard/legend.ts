import type { TranslationBundle } from '@jupyterlab/translation';

import { element, setAttribute, TextElement } from '../../ui/dom';
import type { DashboardGpu } from './dashboardGpus';
import { legendSwatch } from './gpuColors';

interface Chip {
  readonly node: HTMLButtonElement;
  readonly name: TextElement;
  readonly problem: TextElement;
}

/** The dependencies of the legend. */
export interface LegendOptions {
  readonly trans: TranslationBundle;
  /** Called when the user shows or hides a GPU. */
  readonly toggle: (uuid: string) => void;
  /** Called when the user chooses to show only one GPU. */
  readonly showOnly: (uuid: string) => void;
  /**
   * Called with the GPU's UUID when the pointer or the keyboard focus enters a chip, and with null when it
   * leaves the chip.
   */
  readonly focus: (uuid: string | null) => void;
}

/** The legend: a toggle button ("chip") for each GPU, which shows or hides the GPU's lines. */
export class Legend {
  readonly node: HTMLElement;
  private readonly chips = new Map<string, Chip>();

  constructor(private readonly options: LegendOptions) {
    this.node = element('div', 'dashboard-legend');
    setAttribute(this.node, 'role', 'group');
    setAttribute(this.node, 'aria-label', options.trans.__('GPUs'));
  }

  /** Show the GPUs, and which of them are `hidden`. */
  update(gpus: readonly DashboardGpu[], hidden: readonly string[]): void {
    this.updateChips(gpus);
    gpus.forEach(({ uuid, name, number, problem }) => {
      const chip = this.chips.get(uuid);
      if (chip === undefined) {
        return;
      }
      const { trans } = this.options;
      setAttribute(chip.node, 'aria-pressed', String(!hidden.includes(uuid)));
      chip.name.set(`${number} ${name}`);
      const [short, long] = problem ?? ['', ''];
      chip.problem.set(short);
      setAttribute(
        chip.node,
        'title',
        [
          trans.__('GPU %1, %2', number, name),
          long,
          trans.__('Click to hide or show, Shift+click to show only this GPU')
        ]
          .filter(line => line !== '')
          .join('\n')
      );
    });
  }

  private updateChips(gpus: readonly DashboardGpu[]): void {
    const uuids = gpus.map(gpu => gpu.uuid);
    if (uuids.join() === [...this.chips.keys()].join()) {
      return;
    }
    this.chips.clear();
    gpus.forEach(({ uuid }, position) => {
      this.chips.set(uuid, this.createChip(uuid, position));
    });
    this.node.replaceChildren(...[...this.chips.values()].map(chip => chip.node));
  }

  private createChip(uuid: string, position: number): Chip {
    const [name, problem] = [
      new TextElement('dashboard-chip-name'),
      new TextElement('dashboard-chip-trouble')
    ];
    const node = element('button', 'dashboard-chip', legendSwatch(position), name.node, problem.node);
    node.type = 'button';
    node.dataset.gpuUuid = uuid;
    const { toggle, showOnly, focus } = this.options;
    node.onclick = event => {
      (event.shiftKey ? showOnly : toggle)(uuid);
    };
    node.onmouseenter = node.onfocus = () => {
      focus(uuid);
    };
    node.onmouseleave = node.onblur = () => {
      focus(null);
    };
    return { node, name, problem };
  }
}
