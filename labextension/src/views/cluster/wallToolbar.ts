import type { TranslationBundle } from '@jupyterlab/translation';

import { element, setAttribute, setHidden, TextElement } from '../../ui/dom';
import { model as modelName } from '../../model/format';
import { quantity, QUANTITY_NAMES } from './quantities';
import { GROUPINGS, MAX_COUNT, SORTINGS, type Grouping, type Sorting, type WallState } from './wallState';

/** The dependencies of the toolbar. */
export interface WallToolbarOptions {
  readonly trans: TranslationBundle;
  readonly change: (part: Partial<WallState>) => void;
  readonly exportCsv: () => void;
}

const FIRST_COUNT = 4;

/** The wall's toolbar: color, filter, groups, order, the search for free GPUs and the CSV export. */
export class WallToolbar {
  readonly node: HTMLElement;
  private readonly quantity: HTMLSelectElement;
  private readonly grouping: HTMLSelectElement;
  private readonly sorting: HTMLSelectElement;
  private readonly filter = element('input', 'cluster-input jp-gpuwidget-cluster-filter');
  private readonly count = element('input', 'cluster-input jp-gpuwidget-cluster-count');
  private readonly model = element('select', 'cluster-input jp-gpuwidget-cluster-model');
  private readonly find = element('button', 'dashboard-button jp-gpuwidget-cluster-find');
  private readonly end = element('button', 'dashboard-button jp-gpuwidget-cluster-end');
  private readonly csv = element('button', 'dashboard-button jp-gpuwidget-cluster-csv');
  private readonly result = new TextElement('cluster-result');
  private models: readonly string[] = [];

  constructor(private readonly options: WallToolbarOptions) {
    const { trans, change, exportCsv } = options;
    this.quantity = select(
      QUANTITY_NAMES.map(name => [name, quantity(name).title(trans)]),
      name => {
        change({ quantity: name });
      }
    );
    this.grouping = select(
      GROUPINGS.map(name => [name, groupingTitle(trans, name)]),
      name => {
        change({ grouping: name });
      }
    );
    this.sorting = select(
      SORTINGS.map(name => [name, sortingTitle(trans, name)]),
      name => {
        change({ sorting: name });
      }
    );
    this.filter.type = 'search';
    this.filter.placeholder = trans.__('node, user, job…');
    this.filter.oninput = () => {
      change({ filter: this.filter.value });
    };
    this.count.type = 'number';
    this.count.min = '1';
    this.count.max = String(MAX_COUNT);
    this.count.required = true;
    this.count.value = String(FIRST_COUNT);
    setAttribute(this.count, 'aria-label', trans.__('Number of free GPUs'));
    setAttribute(this.model, 'aria-label', trans.__('Model of the free GPUs'));
    this.find.type = 'submit';
    this.find.textContent = trans.__('Find free');
    this.find.title = trans.__('List the nodes with this many free GPUs first');
    this.end.type = 'button';
    this.end.textContent = trans.__('Clear search');
    this.end.onclick = () => {
      change({ search: null });
      this.count.focus();
    };
    const form = element('form', 'cluster-search', this.count, this.model, this.find, this.end);
    // The browser checks the number, and says what is wrong with it.
    form.onsubmit = event => {
      event.preventDefault();
      change({ search: { count: this.count.valueAsNumber, model: this.model.value } });
    };
    this.csv.type = 'button';
    this.csv.textContent = trans.__('CSV');
    this.csv.title = trans.__('Save what is shown as a table (CSV)');
    this.csv.onclick = exportCsv;
    this.result.node.setAttribute('role', 'status');
    this.node = element(
      'div',
      'cluster-toolbar',
      labeled(trans.__('Color by'), this.quantity),
      labeled(trans.__('Group by'), this.grouping),
      labeled(trans.__('Sort by'), this.sorting),
      labeled(trans.__('Filter'), this.filter),
      form,
      this.csv,
      this.result.node
    );
    this.setModels([]);
  }

  /** Show the state of the wall. */
  update({ quantity, grouping, sorting, filter, search }: WallState): void {
    this.quantity.value = quantity;
    this.grouping.value = grouping;
    this.sorting.value = sorting;
    if (this.filter.value !== filter) {
      this.filter.value = filter;
    }
    setHidden(this.end, search === null);
  }

  /** Offer these models, and select the one of the search. */
  setModels(models: readonly string[], selected = this.model.value): void {
    if (models.length !== this.models.length || models.some((name, index) => name !== this.models[index])) {
      this.models = models;
      this.model.replaceChildren(...models.map(name => option(name, modelName(name))));
    }
    if (!this.model.options.length || this.model.options[0]?.value !== '') {
      this.model.prepend(option('', this.options.trans.__('any model')));
    }
    this.model.value = models.includes(selected) ? selected : '';
  }

  /** Show the search's number. */
  setCount(count: number): void {
    this.count.value = String(count);
  }

  /** Show the result of the search; empty for none. */
  setResult(text: string): void {
    this.result.set(text);
  }

  /** Disable the export if there is nothing to export. */
  setEmpty(empty: boolean): void {
    this.csv.disabled = empty;
  }
}

function groupingTitle(trans: TranslationBundle, name: Grouping): string {
  switch (name) {
    case 'node':
      return trans.__('Node');
    case 'model':
      return trans.__('Model');
    case 'user':
      return trans.__('User');
    case 'notebook':
      return trans.__('Notebook');
    case 'job':
      return trans.__('Job');
  }
}

function sortingTitle(trans: TranslationBundle, name: Sorting): string {
  switch (name) {
    case 'name':
      return trans.__('Name');
    case 'highest':
      return trans.__('Highest value first');
    case 'lowest':
      return trans.__('Lowest value first');
    case 'free':
      return trans.__('Most free GPUs first');
    case 'problems':
      return trans.__('Problems first');
  }
}

function labeled(title: string, control: HTMLElement): HTMLLabelElement {
  setAttribute(control, 'aria-label', title); // Else the name would contain the options.
  return element('label', 'cluster-label', title, control);
}

function select<Name extends string>(
  options: readonly (readonly [name: Name, title: string])[],
  choose: (name: Name) => void
): HTMLSelectElement {
  const node = element('select', 'cluster-input', ...options.map(([name, title]) => option(name, title)));
  node.onchange = () => {
    const [name] = options[node.selectedIndex] ?? [];
    if (name !== undefined) {
      choose(name);
    }
  };
  return node;
}

function option(value: string, title: string): HTMLOptionElement {
  const node = element('option', '', title);
  node.value = value;
  return node;
}
