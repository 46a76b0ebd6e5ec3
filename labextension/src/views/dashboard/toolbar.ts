import type { TranslationBundle } from '@jupyterlab/translation';

import { element, setAttribute, setHidden, TextElement } from '../../ui/dom';
import { moment, twoDigits } from '../../model/format';
import {
  DAY_S,
  historyLength,
  HOUR_S,
  RANGES,
  SERVER_HISTORY_S,
  SMOOTHINGS,
  type DashboardState,
  type TimeRange
} from '../../model/history/dashboardState';
import { metricTexts, type MetricName } from '../../wire/metricTable';
import { METRICS, sectionOf, sectionTitles } from '../../model/metrics';

/** The dependencies of the toolbar. */
export interface ToolbarOptions {
  readonly trans: TranslationBundle;
  /** Whether a Prometheus has the history beyond the server's hour, and of other machines. */
  readonly hasPrometheus: boolean;
  /** Called when the user selects a machine; null is the server's own. */
  readonly setNode: (node: string | null) => void;
  /** Called when the user selects a part of the history. */
  readonly setZoom: (zoom: TimeRange) => void;
  /** Called when the user selects a time range. */
  readonly setRange: (seconds: number) => void;
  /** Called when the user resumes or pauses live mode. */
  readonly setLive: (live: boolean) => void;
  /** Called when the user selects or deselects a metric. */
  readonly setMetric: (name: MetricName, shown: boolean) => void;
  /** Called when the user selects all metrics or none. */
  readonly setAllMetrics: (shown: boolean) => void;
  /** Called when the user selects the number of points over which lines are smoothed. */
  readonly setSmoothing: (points: number) => void;
  /** Called when the user turns the mean over the GPUs on or off. */
  readonly setMean: (shown: boolean) => void;
  /** Called when the user switches between the lines and the heat maps of many GPUs. */
  readonly setLines: (shown: boolean) => void;
  /** Called when the user returns from an enlarged chart to all charts. */
  readonly showAll: () => void;
  /** Called when the user turns the recording without pages on or off. */
  readonly setAlwaysOn: (on: boolean) => void;
  readonly exportCsv: () => void;
  /** Whether the dashboard has only one chart, so that there is nothing to select. */
  readonly isSingle: boolean;
}

/** The dashboard's toolbar: time range, live mode, smoothing, mean, metrics and CSV export. */
export class Toolbar {
  readonly node: HTMLElement;
  private readonly ranges = new Map<number, HTMLButtonElement>();
  private readonly live: HTMLButtonElement;
  private readonly csv: HTMLButtonElement;
  private readonly timeRange = new TextElement('dashboard-time-range');
  private readonly metricPicker: MetricPicker;
  private readonly smoothing = element('select', 'dashboard-button');
  private readonly mean: HTMLButtonElement;
  private readonly lines: HTMLButtonElement;
  private readonly all: HTMLButtonElement;
  private readonly alwaysOn: HTMLButtonElement;
  private readonly nodePicker = element('select', 'dashboard-button');
  private nodes: readonly string[] | null = null;
  private readonly trans: TranslationBundle;
  private exporting = false;
  private empty = true;

  constructor(private readonly options: ToolbarOptions) {
    this.trans = options.trans;
    const { trans, hasPrometheus, setRange, setLive, setMean, setLines, showAll, setAlwaysOn, exportCsv } =
      options;
    const group = element('div', 'dashboard-ranges');
    setAttribute(group, 'role', 'group');
    setAttribute(group, 'aria-label', trans.__('Time range'));
    for (const seconds of RANGES.filter(range => hasPrometheus || range <= SERVER_HISTORY_S)) {
      const label = rangeLabel(trans, seconds);
      const node = button(label, trans.__('Show the last %1', label), () => {
        setRange(seconds);
      });
      this.ranges.set(seconds, node);
      group.append(node);
    }
    this.live = button(trans.__('Live'), trans.__('Follow the newest samples, or pause'), () => {
      setLive(this.live.getAttribute('aria-pressed') !== 'true');
    });
    this.live.classList.add('jp-gpuwidget-dashboard-live');
    this.csv = button(
      trans.__('CSV'),
      trans.__('Save the shown metrics and GPUs as a table (CSV)'),
      exportCsv
    );
    this.csv.classList.add('jp-gpuwidget-dashboard-csv');
    this.metricPicker = new MetricPicker(options);
    this.mean = button(
      trans.__('Mean of GPUs'),
      trans.__('Show the mean over the GPUs instead of each GPU'),
      () => {
        setMean(this.mean.getAttribute('aria-pressed') !== 'true');
      }
    );
    this.lines = button(
      trans.__('Lines'),
      trans.__('Show a line for each GPU instead of a heat map, in which stronger colors are higher values'),
      () => {
        setLines(this.lines.getAttribute('aria-pressed') !== 'true');
      }
    );
    this.all = button(trans.__('All charts'), trans.__('Show all charts again (Escape)'), showAll);
    this.alwaysOn = button(
      trans.__('Record always'),
      trans.__(
        'Keep the values of the last hour even while no page is open, until you press this again or the server stops'
      ),
      () => {
        setAlwaysOn(this.alwaysOn.getAttribute('aria-pressed') !== 'true');
      }
    );
    this.alwaysOn.classList.add('jp-gpuwidget-dashboard-always-on');
    setHidden(this.alwaysOn, true);
    this.smoothing.title = trans.__(
      'Each point of a smoothed line is the mean of the last points. The area behind the line spans their minimum and maximum'
    );
    setAttribute(this.smoothing, 'aria-label', trans.__('Smoothing'));
    const smoothings = SMOOTHINGS.map(points => {
      const label = points === 1 ? trans.__('No smoothing') : trans.__('Smooth over %1 points', points);
      return new Option(label, String(points));
    });
    this.smoothing.append(...smoothings);
    this.smoothing.onchange = () => {
      options.setSmoothing(Number(this.smoothing.value));
    };
    this.nodePicker.title = trans.__('The machine whose GPUs are shown');
    setAttribute(this.nodePicker, 'aria-label', trans.__('Machine'));
    this.nodePicker.onchange = () => {
      options.setNode(this.nodePicker.value === '' ? null : this.nodePicker.value);
    };
    this.node = element(
      'div',
      'dashboard-toolbar',
      ...(hasPrometheus ? [this.nodePicker] : []),
      group,
      ...(hasPrometheus ? [new DatePicker(options).node] : []),
      this.live,
      this.timeRange.node,
      this.alwaysOn,
      this.all,
      this.mean,
      this.lines,
      this.smoothing,
      ...(options.isSingle ? [] : [this.metricPicker.node]),
      this.csv
    );
    setAttribute(this.node, 'role', 'toolbar');
    setAttribute(this.node, 'aria-label', trans.__('GPU dashboard'));
  }

  /** Show the state of the dashboard. */
  update({ range, zoom, metrics, enlarged, mean, lines, smoothing }: DashboardState): void {
    for (const [seconds, node] of this.ranges) {
      setAttribute(node, 'aria-pressed', String(zoom === null && seconds === range));
    }
    setAttribute(this.live, 'aria-pressed', String(zoom === null));
    const now = Date.now() / 1000;
    const { trans, isSingle } = this.options;
    const hint =
      isSingle || enlarged !== null
        ? trans.__('Drag to zoom in')
        : trans.__('Drag to zoom in, click to enlarge');
    const shown = zoom === null ? hint : `${moment(zoom.from, now)} – ${moment(zoom.to, now)}`;
    this.timeRange.set(shown, zoom === null ? hint : trans.__('Double-click a chart to return to live'));
    setAttribute(this.mean, 'aria-pressed', String(mean));
    setAttribute(this.lines, 'aria-pressed', String(lines));
    this.smoothing.value = String(smoothing);
    setHidden(this.all, enlarged === null);
    this.metricPicker.update(metrics);
  }

  /** Show the names of the cluster's machines. `node` is the chosen one; null is the server's own. */
  setNodes(names: readonly string[], node: string | null): void {
    const nodes = node === null || names.includes(node) ? names : [...names, node];
    if (nodes.join('\n') !== this.nodes?.join('\n')) {
      this.nodes = nodes;
      const options = nodes.map(name => new Option(name, name));
      this.nodePicker.replaceChildren(new Option(this.trans.__('This machine'), ''), ...options);
    }
    this.nodePicker.value = node ?? '';
  }

  /** Show the choices that need several GPUs. `hasHeatMaps` is whether there is a heat map without *Lines*. */
  setGpuCount(count: number, hasHeatMaps: boolean): void {
    setHidden(this.mean, count < 2);
    setHidden(this.lines, !hasHeatMaps);
  }

  /** Show whether the server stores values even without pages; null: pages can't change that. */
  showAlwaysOn(alwaysOn: boolean | null): void {
    setHidden(this.alwaysOn, alwaysOn === null);
    setAttribute(this.alwaysOn, 'aria-pressed', String(alwaysOn));
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
  private readonly count = new TextElement('dashboard-metric-count');
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
      ...sectionTitles(trans).map(([section, title]) =>
        this.group(title, name => sectionOf(name) === section)
      ),
      element('div', 'dashboard-metric-buttons', all, none)
    );
    this.node = dropdown(summary, list);
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

/** A dropdown in which the user chooses start and end of a part of the history, in local time. */
class DatePicker {
  readonly node: HTMLDetailsElement;
  private readonly from = element('input', '');
  private readonly to = element('input', '');

  constructor({ trans, setZoom }: ToolbarOptions) {
    const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
    const title = trans.__('Show a part of the last 30 days');
    const summary = element('summary', 'dashboard-button', trans.__('Date…'));
    summary.title = title;
    const show = element('button', 'dashboard-button', trans.__('Show'));
    show.type = 'submit';
    const form = element(
      'form',
      'dashboard-date-form',
      element('label', '', trans.__('From'), this.from),
      element('label', '', trans.__('To'), this.to),
      element('div', 'dashboard-date-zone', trans.__('Time zone: %1', timeZone)),
      show
    );
    setAttribute(form, 'aria-label', title);
    for (const input of [this.from, this.to]) {
      input.type = 'datetime-local';
      input.required = true;
      input.oninput = () => {
        this.to.setCustomValidity('');
      };
    }
    this.node = dropdown(summary, form);
    this.node.ontoggle = () => {
      if (this.node.open) {
        this.suggest();
      }
    };
    form.onsubmit = event => {
      event.preventDefault();
      const zoom = { from: epoch(this.from.value), to: epoch(this.to.value) };
      if (zoom.from >= zoom.to) {
        this.to.setCustomValidity(trans.__('The end must be later than the start.'));
        this.to.reportValidity();
        return;
      }
      this.node.open = false;
      summary.focus();
      setZoom(zoom);
    };
  }

  /** Set the limits and, the first time, the last hour. */
  private suggest(): void {
    const now = Date.now() / 1000;
    for (const input of [this.from, this.to]) {
      input.min = localTime(now - historyLength(true));
      input.max = localTime(now + 60);
    }
    if (this.from.value === '') {
      this.from.value = localTime(now - SERVER_HISTORY_S);
      this.to.value = localTime(now);
    }
    this.from.focus();
  }
}

/** Return the epoch seconds of a local time such as `2026-11-24T03:00`. */
function epoch(local: string): number {
  return new Date(local).getTime() / 1000;
}

/** Return a time in epoch seconds as local time such as `2026-11-24T03:00`. */
function localTime(time: number): string {
  const date = new Date(1000 * time);
  const day = [date.getFullYear(), twoDigits(date.getMonth() + 1), twoDigits(date.getDate())].join('-');
  return `${day}T${twoDigits(date.getHours())}:${twoDigits(date.getMinutes())}`;
}

function rangeLabel(trans: TranslationBundle, seconds: number): string {
  if (seconds < HOUR_S) {
    return trans.__('%1 min', seconds / 60);
  }
  return seconds <= DAY_S ? trans.__('%1 h', seconds / HOUR_S) : trans.__('%1 d', seconds / DAY_S);
}

/** Return a dropdown that Escape closes, and that closes when the focus leaves it. */
function dropdown(summary: HTMLElement, content: HTMLElement): HTMLDetailsElement {
  const node = element('details', 'dashboard-dropdown', summary, content);
  node.onkeydown = event => {
    if (event.key === 'Escape' && node.open) {
      node.open = false;
      summary.focus();
      event.stopPropagation();
    }
  };
  node.addEventListener('focusout', ({ relatedTarget }) => {
    if (relatedTarget instanceof Node && !node.contains(relatedTarget)) {
      node.open = false;
    }
  });
  return node;
}

function button(label: string, title: string, onclick: () => void): HTMLButtonElement {
  const node = element('button', 'dashboard-button', label);
  node.type = 'button';
  setAttribute(node, 'title', title);
  node.onclick = onclick;
  return node;
}
