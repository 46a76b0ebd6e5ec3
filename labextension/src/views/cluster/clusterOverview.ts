import type { TranslationBundle } from '@jupyterlab/translation';

import { element, setAttribute, setHidden, TextElement } from '../../ui/dom';
import { model as modelName, UNKNOWN } from '../../model/format';
import type { ClusterSnapshot } from '../../wire/wire';
import { clusterEmptyText, clusterNotice, clusterSummary } from './clusterMessages';
import type { ICluster } from '../../model/cluster/clusterModel';
import { lastValue } from '../../model/freshness';
import { gpuTitle, MARKS } from './gpuGrid';
import { errorText, hasErrors, quantity, summaryText } from './quantities';
import { isFree, models, nodesUp } from './wallRows';

/** Maximum number of problems that the section lists. */
const MAX_PROBLEMS = 5;

/** The dependencies of the overview. */
export interface OverviewOptions {
  readonly trans: TranslationBundle;
  readonly model: ICluster;
  readonly openWall: () => void;
  readonly openNode: (node: string) => void;
}

/** The contents of the cluster's section in the panel: GPUs per model and problems. */
export class ClusterOverview {
  readonly nodes: readonly HTMLElement[];
  private readonly notice = new TextElement('cluster-notice', 'div');
  private readonly body = element('tbody', '');
  private readonly table: HTMLTableElement;
  private readonly problems = element('ul', 'cluster-problems');
  /** The snapshot in the table, which is rebuilt only for a new one. */
  private shown: ClusterSnapshot | null = null;

  constructor(private readonly options: OverviewOptions) {
    const { trans, openWall } = options;
    const heads = [trans.__('Model'), trans.__('GPUs'), trans.__('Free'), trans.__('Util')];
    this.table = element(
      'table',
      'cluster-models',
      element('thead', '', element('tr', '', ...heads.map(head => element('th', '', head)))),
      this.body
    );
    for (const head of this.table.querySelectorAll('th')) {
      head.scope = 'col';
    }
    const button = element('button', 'button jp-gpuwidget-cluster-open', trans.__('Show all nodes'));
    button.type = 'button';
    button.onclick = openWall;
    this.nodes = [this.notice.node, this.table, this.problems, button];
    setAttribute(this.notice.node, 'role', 'status');
  }

  /** Show the current state. Return the numbers of GPUs and nodes, which the section's head has. */
  update(): string {
    const { trans, model } = this.options;
    const { data } = model;
    const snapshot = lastValue(data);
    const empty = snapshot === null || (snapshot.nodes.length === 0 && snapshot.gpus.length === 0);
    const text = clusterEmptyText(trans, data, empty) ?? clusterNotice(trans, data);
    this.notice.set(text ?? '');
    setHidden(this.notice.node, text === null);
    for (const node of [this.table, this.problems]) {
      setHidden(node, empty);
      setAttribute(node, 'data-stale', data.kind === 'live' ? '' : 'true');
    }
    if (snapshot !== null && snapshot !== this.shown) {
      this.shown = snapshot;
      this.body.replaceChildren(...modelRows(trans, snapshot));
      this.updateProblems(snapshot);
    }
    return empty ? '' : clusterSummary(trans, snapshot, false);
  }

  /** List lost nodes, lost GPUs and errors. The rest is only counted. */
  private updateProblems(snapshot: ClusterSnapshot): void {
    const { trans, openNode } = this.options;
    const up = nodesUp(snapshot);
    const found: [node: string, text: string][] = [];
    for (const { name } of snapshot.nodes.filter(node => !node.up)) {
      found.push([name, `${MARKS.lost} ${trans.__('%1: lost', name)}`]);
    }
    for (const gpu of snapshot.gpus.filter(({ node }) => up.has(node))) {
      if (gpu.lost) {
        found.push([gpu.node, `${MARKS.lost} ${trans.__('%1, %2: lost', gpu.node, gpuTitle(trans, gpu))}`]);
      } else if (hasErrors(gpu)) {
        const where = trans.__('%1, %2: %3', gpu.node, gpuTitle(trans, gpu), errorText(trans, gpu));
        found.push([gpu.node, `${MARKS.error} ${where}`]);
      }
    }
    const items = found.slice(0, MAX_PROBLEMS).map(([node, text]) => {
      const button = element('button', 'cluster-problem', text);
      button.type = 'button';
      button.title = trans.__('Show the charts of %1', node);
      button.onclick = () => {
        openNode(node);
      };
      return element('li', '', button);
    });
    if (found.length > MAX_PROBLEMS) {
      items.push(element('li', 'cluster-more', trans.__('and %1 more', found.length - MAX_PROBLEMS)));
    }
    this.problems.replaceChildren(...items);
  }
}

function modelRows(trans: TranslationBundle, snapshot: ClusterSnapshot): HTMLTableRowElement[] {
  const up = nodesUp(snapshot);
  const known: readonly (string | null)[] = models(snapshot);
  const names = snapshot.gpus.some(gpu => gpu.model === null) ? [...known, null] : known;
  return names.map(name => {
    const gpus = snapshot.gpus.filter(gpu => gpu.model === name);
    const free = gpus.filter(gpu => up.has(gpu.node) && isFree(gpu)).length;
    const mean = summaryText(trans, quantity('utilization'), gpus);
    const head = element('th', '', name === null ? UNKNOWN : modelName(name));
    head.scope = 'row';
    return element(
      'tr',
      '',
      head,
      ...[String(gpus.length), String(free), mean].map(text => element('td', '', text))
    );
  });
}
