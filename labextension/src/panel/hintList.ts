import type { TranslationBundle } from '@jupyterlab/translation';

import { targetOf, type Target } from '../holders/actions';
import type { Hint } from '../holders/hints';
import type { HolderPorts } from '../holders/ports';
import { gpuNumbers, kernelName, kernelPath, roughly, titleOf } from '../holders/words';
import { element, setAttribute, Text } from '../ui/dom';
import { gpuNumber, memory, whole } from '../ui/format';
import { KeyedList } from '../ui/dom';
import type { ServerKernel } from '../wire';

/** So many are said; the rest unfold. */
const MOST = 3;

type Kernels = ReadonlyMap<string, ServerKernel>;

/** What a person may want to act on, a calm line each; takes no room while there is nothing. */
export class HintList {
  readonly node: HTMLElement;
  private readonly list: KeyedList<HintLine>;
  private readonly more = new Text('more-count');
  private readonly button: HTMLButtonElement;
  private all = false;

  constructor(
    private readonly trans: TranslationBundle,
    ports: HolderPorts
  ) {
    this.list = new KeyedList('hint-lines', () => new HintLine(trans, ports));
    this.list.node.setAttribute('aria-label', trans.__('Worth a look'));
    this.button = element('button', 'more', this.more.node);
    this.button.type = 'button';
    this.node = element('section', 'hints', this.list.node, this.button);
  }

  /** What the list does when its button is pressed: `redraw` it. */
  onToggle(redraw: () => void): void {
    this.button.onclick = () => {
      this.all = !this.all;
      redraw();
    };
  }

  /** Say these. */
  update(hints: readonly Hint[], kernels: Kernels): void {
    this.node.hidden = hints.length === 0;
    const many = hints.length > MOST + 1;
    const shown = many && !this.all ? hints.slice(0, MOST) : hints;
    this.list.arrange(shown.map(({ key }) => key)).forEach((line, place) => {
      const hint = shown[place];
      if (hint !== undefined) {
        line.update(hint, kernels);
      }
    });
    this.button.hidden = !many;
    setAttribute(this.button, 'aria-expanded', String(this.all));
    const left = hints.length - MOST;
    this.more.set(
      this.all ? this.trans.__('Show the first only') : this.trans._n('and %1 more', 'and %1 more', left)
    );
  }
}

/** One hint: whom it is about, what was seen, and a way to act. */
class HintLine {
  readonly node: HTMLElement;
  private readonly name = new Text('hint-name');
  private readonly chip = new Text('hint-chip');
  private readonly button = element('button', 'hint-act jp-Button jp-mod-styled');
  private target: Target | null = null;

  constructor(
    private readonly trans: TranslationBundle,
    ports: HolderPorts
  ) {
    this.button.type = 'button';
    this.button.setAttribute('aria-haspopup', 'menu');
    this.button.onclick = () => {
      if (this.target !== null) {
        ports.open(this.target, this.button);
      }
    };
    this.node = element('li', 'hint', this.name.node, this.chip.node, this.button);
  }

  update(hint: Hint, kernels: Kernels): void {
    const { trans } = this;
    let name: string;
    let about: string;
    if (hint.kind === 'idle') {
      const { kernel, idle, torch, gpus } = hint;
      name = kernelName(trans, kernel, kernels.values());
      about = kernelPath(trans, kernel);
      const held = trans.__('idle %1, holds %2', roughly(idle), memory(hint.memory));
      const where = trans.__('on %1', gpuNumbers(trans, gpus.map(gpuNumber)));
      this.chip.set(held, torch ? trans.__('%1, torch’s own number', where) : where);
      this.target = { kernel: kernel.id, terminal: null };
      this.button.textContent = trans.__('Free…');
    } else {
      const { gpu, utilization, seconds, holders } = hint;
      const titles = holders.map(holder => titleOf(trans, holder, kernels.values()));
      const [first = ['', '']] = titles;
      name = titles.length > 1 ? trans.__('%1 and others', first[0]) : first[0];
      about = titles.map(([short, long]) => (long === '' ? short : long)).join('\n');
      this.chip.set(
        trans.__('GPU %1 at %2 % over %3', gpuNumber(gpu), whole(utilization), roughly(seconds)),
        trans.__('On average; they were on it all that time, as far as was seen')
      );
      const [only] = holders;
      this.target = holders.length === 1 && only !== undefined ? targetOf(only) : null;
      this.button.textContent = trans.__('See…');
    }
    this.name.set(name, about);
    this.button.hidden = this.target === null;
    setAttribute(this.button, 'aria-label', trans.__('Actions for %1', name));
  }
}
