import type { TranslationBundle } from '@jupyterlab/translation';

import { element, KeyedList, setAttribute, setHidden, TextElement } from '../../ui/dom';
import { gpuNumber, model as modelName, moment, UNKNOWN } from '../../model/format';
import type { ClusterGpu, ClusterNode } from '../../wire/wire';
import { errorText, hasErrors, level, quantity, remarks, summaryText } from './quantities';
import { isEnough, isFound, isFree, type WallGroup, type WallRow } from './wallRows';
import type { WallState } from './wallState';

/** The symbols of problems, so that no meaning depends on color alone. The cells' are in the style sheet. */
export const MARKS = { lost: '✕', error: '!' } as const;

/** The dependencies of the grid. */
export interface GpuGridOptions {
  readonly trans: TranslationBundle;
  /** Called when the user opens a node. */
  readonly open: (node: string) => void;
  /** Called when the user presses Escape. */
  readonly escape: () => void;
  /** Called with a description of the node or GPU under the pointer or with the focus; empty for none. */
  readonly describe: (text: string) => void;
}

/**
 * The nodes and their GPUs: an ARIA grid whose rows are nodes and whose cells are GPUs.
 *
 * The cells are DOM elements that are updated in place, rather than a canvas, because focus, names and themes
 * come with elements. Updates are fast enough for thousands of GPUs: see docs/developers/benchmarks.md.
 */
export class GpuGrid {
  readonly node: HTMLElement;
  private readonly groups: KeyedList<GroupView>;
  private readonly descriptions = new WeakMap<Element, () => string>();
  /** The element that the Tab key reaches. */
  private current: HTMLElement | null = null;

  constructor(private readonly options: GpuGridOptions) {
    const { trans, open, describe } = options;
    this.groups = new KeyedList('cluster-grid', () => new GroupView(trans, this.descriptions), 'div');
    this.node = this.groups.node;
    setAttribute(this.node, 'role', 'grid');
    setAttribute(
      this.node,
      'aria-label',
      trans.__('GPUs of the cluster by node. Keys: arrows move, Enter opens the charts of the node')
    );
    this.node.addEventListener('keydown', this.handleKey);
    this.node.addEventListener('focusin', ({ target }) => {
      this.setCurrent(target as HTMLElement);
      this.describe(target);
    });
    this.node.addEventListener('mouseover', ({ target }) => {
      this.describe(target);
    });
    this.node.addEventListener('mouseleave', () => {
      describe('');
    });
    this.node.addEventListener('click', ({ target }) => {
      const name = nodeOf(target);
      if (name !== null) {
        open(name);
      }
    });
  }

  /** Show these groups. `time` is the time of the values in epoch seconds. */
  update(groups: readonly WallGroup[], state: WallState, time: number): void {
    // The key of the group without a name can't be the name of another group.
    const keys = groups.map(({ name }) => (name === null ? '' : `=${name}`));
    this.groups.arrange(keys).forEach((view, index) => {
      const group = groups[index];
      if (group !== undefined) {
        view.update(group, state, time);
      }
    });
    if (!this.current?.matches('[tabindex]') || !this.node.contains(this.current)) {
      this.setCurrent(this.node.querySelector('[tabindex]'));
    }
  }

  /** Focus the element that had the focus last, or the first one. */
  focus(): void {
    this.current?.focus();
  }

  private setCurrent(target: HTMLElement | null): void {
    if (target !== this.current && (target === null || target.matches('[tabindex]'))) {
      this.current?.setAttribute('tabindex', '-1');
      this.current = target;
      target?.setAttribute('tabindex', '0');
    }
  }

  private describe(target: EventTarget | null): void {
    const part = target instanceof Element ? target.closest('[tabindex]') : null;
    this.options.describe((part && this.descriptions.get(part)?.()) ?? '');
  }

  private readonly handleKey = (event: KeyboardEvent): void => {
    const { target, key } = event;
    if (!(target instanceof HTMLElement) || event.ctrlKey || event.altKey || event.metaKey) {
      return;
    }
    const name = nodeOf(target);
    if (key === 'Escape') {
      this.options.escape();
    } else if ((key === 'Enter' || key === ' ') && name !== null) {
      this.options.open(name);
    } else {
      const next = this.next(target, key);
      if (next === undefined) {
        return;
      }
      next?.focus();
    }
    event.preventDefault();
    event.stopPropagation();
  };

  /** Return where a key moves the focus; null if there is nothing there, undefined for another key. */
  private next(from: HTMLElement, key: string): HTMLElement | null | undefined {
    const row = from.closest<HTMLElement>('[role=row]');
    if (row === null) {
      return undefined;
    }
    const parts = partsOf(row);
    const all = (): HTMLElement[] => [...this.node.querySelectorAll<HTMLElement>('[tabindex]')];
    switch (key) {
      case 'ArrowRight':
      case 'ArrowLeft': {
        const order = all();
        return order[order.indexOf(from) + (key === 'ArrowRight' ? 1 : -1)] ?? null;
      }
      case 'Home':
        return parts[0] ?? null;
      case 'End':
        return parts.at(-1) ?? null;
      case 'ArrowDown':
      case 'ArrowUp': {
        const place = parts.indexOf(from);
        const target = this.rowBeside(row, key === 'ArrowDown');
        const choices = target === null ? [] : partsOf(target);
        return choices[Math.min(place, choices.length - 1)] ?? null;
      }
      default:
        return undefined;
    }
  }

  /** Return the row that is displayed below or above `row`. */
  private rowBeside(row: HTMLElement, below: boolean): HTMLElement | null {
    const { left, top } = row.getBoundingClientRect();
    let best: HTMLElement | null = null;
    let bestDistance = [Infinity, Infinity];
    for (const other of this.node.querySelectorAll<HTMLElement>('[role=row]:not([hidden])')) {
      const box = other.getBoundingClientRect();
      const vertical = below ? box.top - top : top - box.top;
      const distance = [vertical, Math.abs(box.left - left)];
      if (vertical > 1 && isSmaller(distance, bestDistance)) {
        best = other;
        bestDistance = distance;
      }
    }
    return best;
  }
}

/** The rows of one group, below the group's title. */
class GroupView {
  readonly node: HTMLElement;
  private readonly name = new TextElement('cluster-group-name');
  private readonly count = new TextElement('cluster-group-count');
  private readonly titleCell = element('div', '', this.name.node, this.count.node);
  private readonly title = element('div', 'cluster-group-title', this.titleCell);
  private readonly rows: KeyedList<RowView>;

  constructor(
    private readonly trans: TranslationBundle,
    descriptions: WeakMap<Element, () => string>
  ) {
    setAttribute(this.title, 'role', 'row');
    setAttribute(this.titleCell, 'role', 'rowheader');
    this.rows = new KeyedList('cluster-nodes', () => new RowView(trans, descriptions), 'div');
    this.node = element('div', 'cluster-group', this.title, this.rows.node);
    setAttribute(this.node, 'role', 'rowgroup');
  }

  update({ name, rows }: WallGroup, state: WallState, time: number): void {
    const { trans } = this;
    const plain = state.grouping === 'node';
    setHidden(this.title, plain);
    if (plain) {
      this.titleCell.removeAttribute('tabindex');
    } else if (!this.titleCell.hasAttribute('tabindex')) {
      this.titleCell.tabIndex = -1;
    }
    const gpus = rows.flatMap(one => (one.node.up ? one.gpus : []));
    const all = rows.reduce((sum, one) => sum + one.gpus.length, 0);
    this.name.set(groupName(trans, name, state));
    this.count.set(
      [
        trans._n('%1 GPU', '%1 GPUs', all),
        trans.__('%1 free', gpus.filter(isFree).length),
        trans._n('%1 node', '%1 nodes', rows.length)
      ].join(', ')
    );
    this.rows.arrange(rows.map(({ node }) => node.name)).forEach((view, index) => {
      const row = rows[index];
      if (row !== undefined) {
        view.update(row, state, time);
      }
    });
  }
}

/** A node and its GPUs. */
class RowView {
  readonly node: HTMLElement;
  private readonly name = new TextElement('cluster-node-name');
  private readonly value = new TextElement('cluster-node-value');
  private readonly header = element('div', 'cluster-node-header', this.name.node, this.value.node);
  private readonly cells = element('div', 'cluster-cells');
  private readonly views: CellView[] = [];
  private description = '';

  constructor(
    private readonly trans: TranslationBundle,
    private readonly descriptions: WeakMap<Element, () => string>
  ) {
    this.header.tabIndex = -1;
    setAttribute(this.header, 'role', 'rowheader');
    this.node = element('div', 'cluster-node', this.header, this.cells);
    setAttribute(this.node, 'role', 'row');
    descriptions.set(this.header, () => this.description);
  }

  update(row: WallRow, state: WallState, time: number): void {
    const { trans } = this;
    const { node, gpus, found } = row;
    const problem = nodeProblem(trans, node, time);
    const shown = quantity(state.quantity);
    const value = summaryText(trans, shown, gpus);
    setAttribute(this.node, 'data-node', node.name);
    setAttribute(this.node, 'data-lost', node.up ? '' : 'true');
    setAttribute(this.node, 'data-match', found === null ? '' : String(isEnough(row, state.search)));
    this.name.set(node.name);
    this.value.set(
      problem !== null
        ? `${MARKS.lost} ${trans.__('lost')}`
        : found === null
          ? value
          : trans.__('%1 free', found)
    );
    this.description = [
      node.name,
      problem ?? `${shown.title(trans)}: ${value}`,
      trans._n('%1 GPU', '%1 GPUs', gpus.length),
      ...(problem === null ? [trans.__('%1 free', gpus.filter(isFree).length)] : [])
    ].join(' · ');
    setAttribute(this.header, 'aria-label', this.description.replaceAll(' · ', ', '));
    gpus.forEach((gpu, index) => {
      let view = this.views[index];
      if (view === undefined) {
        view = new CellView(trans);
        this.views.push(view);
        this.cells.append(view.node);
        this.descriptions.set(view.node, view.describe);
      }
      view.update(gpu, node, state, time);
    });
    for (const extra of this.views.splice(gpus.length)) {
      extra.node.remove();
    }
  }
}

/** One GPU. */
class CellView {
  readonly node = element('div', 'cluster-cell');
  private gpu: ClusterGpu | null = null;
  private owner: ClusterNode | null = null;
  private time = 0;

  constructor(private readonly trans: TranslationBundle) {
    this.node.tabIndex = -1;
    setAttribute(this.node, 'role', 'gridcell');
  }

  update(gpu: ClusterGpu, owner: ClusterNode, state: WallState, time: number): void {
    const { trans, node } = this;
    this.gpu = gpu;
    this.owner = owner;
    this.time = time;
    const shown = quantity(state.quantity);
    const lost = gpu.lost || !owner.up;
    const errors = hasErrors(gpu);
    const found = state.search !== null && owner.up && isFound(gpu, state.search);
    const reached = level(shown, shown.value(gpu));
    setAttribute(node, 'data-scale', shown.warm ? 'warm' : '');
    setAttribute(node, 'data-level', reached === null ? 'unknown' : String(reached));
    setAttribute(node, 'data-mark', lost ? 'lost' : errors ? 'error' : found ? 'found' : '');
    setAttribute(node, 'data-found', found ? 'true' : '');
    const parts = [gpuTitle(trans, gpu), `${shown.title(trans)} ${shown.text(trans, gpu)}`];
    if (gpu.lost) {
      parts.push(trans.__('lost'));
    }
    if (errors && state.quantity !== 'errors') {
      parts.push(errorText(trans, gpu));
    }
    if (owner.up && isFree(gpu)) {
      parts.push(trans.__('free'));
    }
    setAttribute(node, 'aria-label', parts.join(', '));
  }

  readonly describe = (): string =>
    this.gpu === null || this.owner === null ? '' : describeGpu(this.trans, this.gpu, this.owner, this.time);
}

/** Return all that is known about a GPU, in one line. */
export function describeGpu(
  trans: TranslationBundle,
  gpu: ClusterGpu,
  node: ClusterNode,
  time: number
): string {
  const problem = nodeProblem(trans, node, time) ?? (gpu.lost ? trans.__('the GPU is lost') : null);
  const parts = [node.name, gpuTitle(trans, gpu), gpu.model === null ? UNKNOWN : modelName(gpu.model)];
  if (gpu.mig !== null) {
    parts.push(gpu.mig);
  }
  if (problem !== null) {
    parts.push(problem);
  }
  parts.push(...remarks(trans, gpu), ...gpu.users, ...gpu.notebooks);
  if (gpu.job !== null) {
    parts.push(trans.__('job %1', gpu.job));
  }
  return parts.join(' · ');
}

/** Return why a node has no values; null if it answers. */
export function nodeProblem(trans: TranslationBundle, node: ClusterNode, time: number): string | null {
  if (node.up) {
    return null;
  }
  return node.last_seen === null
    ? trans.__('lost')
    : trans.__('lost, last seen %1', moment(node.last_seen, time));
}

/** Return the title of a GPU, such as `GPU 3`. */
export function gpuTitle(trans: TranslationBundle, { index, uuid }: ClusterGpu): string {
  return index === null ? uuid : trans.__('GPU %1', gpuNumber({ index, mig_index: null }));
}

function groupName(trans: TranslationBundle, name: string | null, { grouping }: WallState): string {
  if (name !== null) {
    return grouping === 'model' ? modelName(name) : name;
  }
  switch (grouping) {
    case 'user':
      return trans.__('no known user');
    case 'notebook':
      return trans.__('no known notebook');
    case 'job':
      return trans.__('no known job');
    default:
      return trans.__('unknown model');
  }
}

function nodeOf(target: EventTarget | null): string | null {
  const part = target instanceof Element ? target.closest('[tabindex]') : null;
  return part?.closest('[data-node]')?.getAttribute('data-node') ?? null;
}

function partsOf(row: HTMLElement): HTMLElement[] {
  return [...row.querySelectorAll<HTMLElement>('[tabindex]')];
}

function isSmaller([a = 0, b = 0]: readonly number[], [c = 0, d = 0]: readonly number[]): boolean {
  // Rows of one line may differ by a fraction of a pixel.
  return a < c - 1 || (a < c + 1 && b < d);
}
