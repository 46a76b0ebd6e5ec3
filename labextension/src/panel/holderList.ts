import type { TranslationBundle } from '@jupyterlab/translation';

import { arranged, holdersOf, type Holder } from '../holders/holders';
import type { HolderPorts } from '../holders/ports';
import type { GpuNow } from '../stream/model';
import { element, setAttribute, Text } from '../ui/dom';
import { gpuNumber, memory } from '../ui/format';
import { KeyedList } from '../ui/keyedList';
import type { GpuMemoryOwnership } from '../wire';
import { HolderLine, type Surroundings } from './holderLine';

/** So many have a line; the rest unfold. */
const MOST = 5;

/** Who holds the memory of one GPU, a line each. */
export class HolderList {
  readonly node: HTMLElement;
  private readonly list: KeyedList<HolderLine>;
  /** What is nobody's stands below the button, folded or not. */
  private readonly rest: KeyedList<HolderLine>;
  private readonly reason = new Text('reason', 'div');
  private readonly count = new Text('more-count');
  private readonly sum = new Text('holder-memory');
  private readonly more: HTMLButtonElement;
  private all = false;
  private holders: readonly Holder[] = [];
  private madeFor: { readonly usage: GpuMemoryOwnership | null; readonly front: string | null } | null = null;

  constructor(
    private readonly trans: TranslationBundle,
    ports: HolderPorts
  ) {
    const line = (): HolderLine => new HolderLine(trans, ports);
    this.list = new KeyedList('holder-lines', line);
    this.rest = new KeyedList('holder-lines', line);
    this.more = element('button', 'more', this.count.node, this.sum.node);
    this.more.type = 'button';
    this.node = element('div', 'holders', this.list.node, this.more, this.rest.node, this.reason.node);
  }

  /** What the list does when its button is pressed: `redraw` it. */
  onToggle(redraw: () => void): void {
    this.more.onclick = () => {
      this.all = !this.all;
      redraw();
    };
  }

  /** All who hold memory of `now`, in the order of their lines. */
  arrange({ usage, front }: GpuNow, kernels: Surroundings['kernels']): readonly Holder[] {
    if (this.madeFor?.usage !== usage || this.madeFor.front !== front) {
      this.madeFor = { usage, front };
      const before = this.holders.map(({ key }) => key);
      this.holders = usage === null ? [] : arranged(holdersOf(usage, kernels, front), before);
    }
    return this.holders;
  }

  /** Write the lines. */
  update({ gpu, usage }: GpuNow, around: Surroundings): void {
    const { trans } = this;
    const number = gpuNumber(gpu);
    setAttribute(this.list.node, 'aria-label', trans.__('Who holds the memory of GPU %1', number));
    setAttribute(this.rest.node, 'aria-label', trans.__('Memory of GPU %1 that is nobody’s', number));
    const known = this.holders.filter(({ kind }) => kind !== 'unattributed');
    // A button for a single line would take its place.
    const many = known.length > MOST + 1;
    const shown = many && !this.all ? known.slice(0, MOST) : known;
    this.write(this.list, shown, around);
    this.write(
      this.rest,
      this.holders.filter(({ kind }) => kind === 'unattributed'),
      around
    );
    this.more.hidden = !many;
    setAttribute(this.more, 'aria-expanded', String(this.all));
    const hidden = known.slice(shown.length);
    this.count.set(
      this.all ? trans.__('Show the largest only') : trans._n('and %1 more', 'and %1 more', hidden.length)
    );
    this.sum.set(hidden.length === 0 ? '' : sumOf(hidden));
    this.reason.set(usage?.reason ?? '');
  }

  private write(list: KeyedList<HolderLine>, holders: readonly Holder[], around: Surroundings): void {
    list.node.hidden = holders.length === 0;
    list.arrange(holders.map(({ key }) => key)).forEach((line, place) => {
      const holder = holders[place];
      if (holder !== undefined) {
        line.update(holder, around);
      }
    });
  }
}

/** What they hold together; at least that much where of some it is not known. */
function sumOf(holders: readonly Holder[]): string {
  const known = holders.flatMap(holder => holder.memory ?? []);
  const sum = known.reduce((all, each) => all + each, 0);
  const exact =
    known.length === holders.length && holders.every(({ holding }) => holding?.source !== 'torch');
  return known.length === 0 ? memory(null) : `${exact ? '' : '≥ '}${memory(sum)}`;
}
