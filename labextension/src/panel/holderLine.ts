import type { TranslationBundle } from '@jupyterlab/translation';
import { ellipsesIcon } from '@jupyterlab/ui-components';

import { targetOf, type Target } from '../holders/actions';
import type { Holder } from '../holders/holders';
import type { HolderPorts } from '../holders/ports';
import { stateOf, titleOf } from '../holders/words';
import { element, setAttribute, Text } from '../ui/dom';
import { memory } from '../ui/format';
import type { ServerKernel } from '../wire';

/** What a line is told besides its holder. */
export interface Surroundings {
  readonly kernels: ReadonlyMap<string, ServerKernel>;
  /** The server's time, epoch seconds. */
  readonly time: number;
  /** Ids of the kernels that are pointed out. */
  readonly warm: ReadonlySet<string>;
  /** Whether there are lines at all. */
  readonly listed: boolean;
}

/** Who holds so much of a GPU, and the button for what can be done about it. */
export class HolderLine {
  readonly node: HTMLElement;
  private readonly name = new Text('holder-name');
  private readonly state = new Text('holder-state');
  private readonly torch = new Text('holder-torch');
  private readonly memory = new Text('holder-memory');
  private readonly button: HTMLButtonElement;
  private target: Target | null = null;

  constructor(
    private readonly trans: TranslationBundle,
    ports: HolderPorts
  ) {
    this.button = menuButton(() => {
      if (this.target !== null) {
        ports.open(this.target, this.button);
      }
    });
    // For the mouse; the keyboard has the menu's first item.
    this.name.node.onclick = () => {
      if (this.target !== null) {
        ports.goTo(this.target);
      }
    };
    this.node = element(
      'li',
      'holder',
      element('i', 'swatch'),
      this.name.node,
      this.torch.node,
      this.state.node,
      this.memory.node,
      this.button
    );
  }

  /** Show `holder`. */
  update(holder: Holder, { kernels, time, warm }: Surroundings): void {
    const { trans } = this;
    const { kernel, here, kind, holding } = holder;
    const [name, whole] = titleOf(trans, holder, kernels.values());
    setAttribute(this.node, 'data-who', here ? 'here' : kind === 'unattributed' ? 'unknown' : 'other');
    setAttribute(this.node, 'aria-current', here ? 'true' : '');
    this.name.set(name, here ? trans.__('%1 · the notebook in front', whole) : whole);
    const state = stateOf(trans, kernel, time);
    this.state.set(state);
    setAttribute(this.node, 'data-state', state === '' ? '' : 'true');
    setAttribute(this.state.node, 'data-warm', kernel !== null && warm.has(kernel.id) ? 'true' : '');
    const torch = holding?.source === 'torch';
    this.torch.set(
      torch ? trans.__('torch') : '',
      torch ? trans.__('torch’s own number: what it has reserved, without the CUDA context') : ''
    );
    this.memory.set(memory(holder.memory));
    this.target = targetOf(holder);
    setAttribute(this.node, 'data-torch', torch ? 'true' : '');
    setAttribute(this.node, 'data-act', this.target === null ? '' : 'true');
    this.button.disabled = this.target === null;
    setAttribute(this.button, 'aria-label', this.target === null ? '' : trans.__('Actions for %1', name));
    setAttribute(this.button, 'title', this.target === null ? '' : trans.__('Actions for %1', name));
  }
}

/** A button with three dots, which opens a menu. */
export function menuButton(pressed: () => void): HTMLButtonElement {
  const button = element('button', 'menu', ellipsesIcon.element({ tag: 'span' }));
  button.type = 'button';
  button.setAttribute('aria-haspopup', 'menu');
  button.onclick = pressed;
  return button;
}
