import type { TranslationBundle } from '@jupyterlab/translation';

import { element, setAttribute, Text } from '../ui/dom';
import { moment } from '../ui/format';
import { RANGES, type DashboardState } from './dashboardState';
import { metricTexts, type MetricName } from '../metricTable';
import { isCounter, kindOf, METRICS } from './metrics';

/** The dependencies of the toolbar. */
export interface ToolbarOptions {
  readonly trans: TranslationBundle;
  /** Called when the user selects a time range. */
  readonly setRange: (seconds: number) => void;
  /** Called when the user resumes or pauses live mode. */
  readonly setLive: (live: boolean) => void;
  /** Called when the user selects or deselects a metric. */
  readonly setMetric: (name: MetricName, shown: boolean) => void;
  /** Called when the user selects all metrics or none. */
  readonly setAllMetrics: (shown: boolean) => void;
  readonly exportCsv: () => void;
}

/** The dashboard's toolbar: time range, live mode, metrics and CSV export. */
export class Toolbar {
  readonly node: HTMLElement;
  private readonly ranges = new Map<number, HTMLButtonElement>();
  private readonly live: HTMLButtonElement;
  private readonly csv: HTMLButtonElement;
  private readonly timeRange = new Text('dashboard-time-range');
  private readonly metricPicker: MetricPicker;
  private exporting = false;
  private empty = true;

  constructor(options: ToolbarOptions) {
    const { trans, setRange, setLive, exportCsv } = options;
    const group = element('div', 'dashboard-ranges');
    setAttribute(group, 'role', 'group');
    setAttribute(group, 'aria-label', trans.__('How much of the past'));
    for (const seconds of RANGES) {
      const label = seconds < 3600 ? trans.__('%1 min', seconds / 60) : trans.__('%1 h', seconds / 3600);
      const node = button(label, trans.__('Show the last %1', label), () => {
        setRange(seconds);
      });
      this.ranges.set(seconds, node);
      group.append(node);
    }
    this.live = button(trans.__('Live'), trans.__('Follow what happens now, or stand still'), () => {
      setLive(this.live.getAttribute('aria-pressed') !== 'true');
    });
    this.live.classList.add('jp-gpuwidget-dashboard-live');
    this.csv = button(trans.__('CSV'), trans.__('Save what is shown as a table (CSV)'), exportCsv);
    this.csv.classList.add('jp-gpuwidget-dashboard-csv');
    this.metricPicker = new MetricPicker(options);
    this.node = element(
      'div',
      'dashboard-toolbar',
      group,
      this.live,
      this.timeRange.node,
      this.metricPicker.node,
      this.csv
    );
    setAttribute(this.node, 'role', 'toolbar');
    setAttribute(this.node, 'aria-label', trans.__('GPU dashboard'));
  }

  /** Show the state of the dashboard. */
  update({ range, zoom, metrics }: DashboardState): void {
    for (const [seconds, node] of this.ranges) {
      setAttribute(node, 'aria-pressed', String(zoom === null && seconds === range));
    }
    setAttribute(this.live, 'aria-pressed', String(zoom === null));
    const now = Date.now() / 1000;
    this.timeRange.set(zoom === null ? '' : `${moment(zoom.from, now)} – ${moment(zoom.to, now)}`);
    this.metricPicker.update(metrics);
  }

  /** Disable the export if there is nothing to export. */
  setEmpty(empty: boolean): void {
    this.empty = empty;
    this.updateCsv();
  }

  /** Set whether an export is under way. */
  setExporting(exporting: boolean): void {
    this.exporting = exporting;
    this.updateCsv();
  }

  private updateCsv(): void {
    this.csv.disabled = this.exporting || this.empty;
  }
}

/** A dropdown with a checkbox for each metric. */
class MetricPicker {
  readonly node: HTMLDetailsElement;
  private readonly count = new Text('dashboard-metric-count');
  private readonly boxes = new Map<MetricName, HTMLInputElement>();

  constructor(private readonly options: ToolbarOptions) {
    const { trans, setAllMetrics } = options;
    const summary = element('summary', 'dashboard-button', trans.__('Metrics'), this.count.node);
    const all = button(trans.__('All'), '', () => {
      setAllMetrics(true);
    });
    const none = button(trans.__('None'), '', () => {
      setAllMetrics(false);
    });
    const list = element(
      'div',
      'dashboard-metric-list',
      this.group(trans.__('Driver'), name => !isCounter(name)),
      this.group(trans.__('Hardware counters'), name => isCounter(name) && kindOf(name) !== 'rate'),
      this.group(trans.__('Traffic'), name => kindOf(name) === 'rate'),
      element('div', 'dashboard-metric-buttons', all, none)
    );
    this.node = element('details', 'dashboard-metric-picker', summary, list);
    this.node.onkeydown = event => {
      if (event.key === 'Escape' && this.node.open) {
        this.node.open = false;
        summary.focus();
        event.stopPropagation();
      }
    };
    this.node.addEventListener('focusout', ({ relatedTarget }) => {
      if (relatedTarget instanceof Node && !this.node.contains(relatedTarget)) {
        this.node.open = false;
      }
    });
  }

  /** Check the boxes of the selected metrics. */
  update(selected: readonly MetricName[]): void {
    for (const [name, box] of this.boxes) {
      box.checked = selected.includes(name);
    }
    this.count.set(
      selected.length === METRICS.length ? '' : `${String(selected.length)}/${String(METRICS.length)}`
    );
  }

  private group(title: string, contains: (name: MetricName) => boolean): HTMLFieldSetElement {
    const boxes = METRICS.filter(contains).map(name => this.checkbox(name));
    return element('fieldset', 'dashboard-metric-group', element('legend', '', title), ...boxes);
  }

  private checkbox(name: MetricName): HTMLLabelElement {
    const { trans, setMetric } = this.options;
    const box = element('input', '');
    box.type = 'checkbox';
    box.value = name;
    box.onchange = () => {
      setMetric(name, box.checked);
    };
    this.boxes.set(name, box);
    const [label, description] = metricTexts(trans, name);
    const node = element('label', '', box, label);
    node.title = description;
    return node;
  }
}

function button(label: string, title: string, onclick: () => void): HTMLButtonElement {
  const node = element('button', 'dashboard-button', label);
  node.type = 'button';
  setAttribute(node, 'title', title);
  node.onclick = onclick;
  return node;
}
