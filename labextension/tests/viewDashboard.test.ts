import './fakes_dom';

import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { DEFAULT_STATE } from '../src/model/history/dashboardState';
import type { DashboardGpu } from '../src/views/dashboard/dashboardGpus';
import { Legend } from '../src/views/dashboard/legend';
import { Toolbar } from '../src/views/dashboard/toolbar';
import { trans } from './fakes';
import { choose, find, mount, textOf, texts } from './fakes_dom';

function dashboardGpu(position: number, problem: DashboardGpu['problem'] = null): DashboardGpu {
  return {
    uuid: `GPU-${String(position)}`,
    name: 'H200',
    number: String(position),
    position,
    memoryTotal: null,
    powerLimit: null,
    reading: null,
    problem
  };
}

/** Return a legend, and a list of what the user has done with it. */
function shownLegend(): { legend: Legend; done: unknown[] } {
  const done: unknown[] = [];
  const legend = new Legend({
    trans,
    toggle: uuid => done.push(['toggle', uuid]),
    showOnly: uuid => done.push(['only', uuid]),
    focus: uuid => done.push(['focus', uuid])
  });
  mount(legend.node);
  return { legend, done };
}

test('a chip hides or shows its GPU, with Shift all others, and a GPU with a problem has the reason', () => {
  const { legend, done } = shownLegend();
  legend.update([dashboardGpu(0), dashboardGpu(1, ['lost', 'Lost since 12:00:00: no driver.'])], ['GPU-0']);
  const chips = [...legend.node.querySelectorAll<HTMLButtonElement>('button')];
  assert.deepEqual(
    chips.map(chip => [textOf(chip), chip.getAttribute('aria-pressed')]),
    [
      ['0 H200', 'false'],
      ['1 H200 | lost', 'true']
    ]
  );
  assert.equal(
    chips[1]?.title,
    'GPU 1, H200\nLost since 12:00:00: no driver.\nClick to hide or show, Shift+click to show only this GPU'
  );
  chips[0]?.click();
  chips[1].dispatchEvent(new MouseEvent('click', { shiftKey: true }));
  assert.deepEqual(done, [
    ['toggle', 'GPU-0'],
    ['only', 'GPU-1']
  ]);
});

test('a chip keeps the focus when its GPU is lost, and the lines follow the focus', () => {
  const { legend, done } = shownLegend();
  legend.update([dashboardGpu(0), dashboardGpu(1)], []);
  const [, second] = legend.node.querySelectorAll<HTMLButtonElement>('button');
  second?.focus();
  legend.update([dashboardGpu(0), dashboardGpu(1, ['lost', 'Lost.'])], []);
  assert.equal(document.activeElement, second);
  second?.blur();
  assert.deepEqual(done, [
    ['focus', 'GPU-1'],
    ['focus', null]
  ]);
});

/** Return a toolbar, and a list of what the user has done with it. */
function shownToolbar(hasPrometheus = true): { toolbar: Toolbar; done: unknown[] } {
  const done: unknown[] = [];
  const record =
    (name: string) =>
    (...values: unknown[]): void => {
      done.push([name, ...values]);
    };
  const toolbar = new Toolbar({
    trans,
    hasPrometheus,
    isSingle: false,
    setNode: record('node'),
    setZoom: record('zoom'),
    setRange: record('range'),
    setLive: record('live'),
    setMetric: record('metric'),
    setAllMetrics: record('all metrics'),
    setSmoothing: record('smoothing'),
    setMean: record('mean'),
    setLines: record('lines'),
    showAll: record('show all'),
    setAlwaysOn: record('always on'),
    exportCsv: record('csv')
  });
  mount(toolbar.node);
  toolbar.update(DEFAULT_STATE);
  return { toolbar, done };
}

function button(toolbar: Toolbar, label: string): HTMLButtonElement {
  const found = [...toolbar.node.querySelectorAll('button')].find(node => textOf(node) === label);
  assert.ok(found, label);
  return found;
}

test('without a Prometheus, the toolbar offers the server’s hour only, and no other machine', () => {
  const ranges = (hasPrometheus: boolean): string[] =>
    texts(shownToolbar(hasPrometheus).toolbar.node, '.jp-gpuwidget-dashboard-ranges button');
  assert.deepEqual(ranges(false), ['1 min', '5 min', '15 min', '1 h']);
  assert.deepEqual(ranges(true), ['1 min', '5 min', '15 min', '1 h', '6 h', '24 h', '7 d', '30 d']);
  const { toolbar } = shownToolbar(false);
  assert.equal(toolbar.node.querySelector('[aria-label=Machine], form'), null);
});

test('buttons that are pressed show the state, not the click', () => {
  const { toolbar, done } = shownToolbar();
  const [live, hour, minute] = ['Live', '1 h', '1 min'].map(label => button(toolbar, label));
  const pressed = (): (string | null | undefined)[] =>
    [live, hour, minute].map(each => each?.getAttribute('aria-pressed'));
  toolbar.update({ ...DEFAULT_STATE, range: 60 });
  assert.deepEqual(pressed(), ['true', 'false', 'true']);
  hour?.click();
  live?.click();
  assert.deepEqual(done, [
    ['range', 3600],
    ['live', false]
  ]);
  assert.deepEqual(pressed(), ['true', 'false', 'true']);
  toolbar.update({ ...DEFAULT_STATE, zoom: { from: 1000, to: 1060 } });
  assert.deepEqual(pressed(), ['false', 'false', 'false']);
});

test('the chosen machine stays selected when the list of machines changes, also if it is no longer in it', () => {
  const { toolbar, done } = shownToolbar();
  const select = find<HTMLSelectElement>(toolbar.node, '[aria-label=Machine]');
  toolbar.setNodes(['node1', 'node2'], null);
  choose(select, 'node2');
  toolbar.setNodes(['node1', 'node2', 'node3'], 'node2');
  assert.deepEqual(
    [select.value, texts(select, 'option')],
    ['node2', ['This machine', 'node1', 'node2', 'node3']]
  );
  toolbar.setNodes(['node1'], 'node2');
  assert.deepEqual([select.value, texts(select, 'option')], ['node2', ['This machine', 'node1', 'node2']]);
  const options = [...select.options];
  toolbar.setNodes(['node1'], 'node2');
  assert.deepEqual([...select.options], options);
  choose(select, '');
  assert.deepEqual(done, [
    ['node', 'node2'],
    ['node', null]
  ]);
});

test('values can be recorded always only where the administrator allows it, and every page shows the state', () => {
  const { toolbar, done } = shownToolbar();
  const always = button(toolbar, 'Record always');
  assert.equal(always.hidden, true);
  toolbar.showAlwaysOn(null);
  assert.equal(always.hidden, true);
  toolbar.showAlwaysOn(false);
  always.click();
  assert.deepEqual(
    [always.hidden, always.getAttribute('aria-pressed'), done],
    [false, 'false', [['always on', true]]]
  );
  toolbar.showAlwaysOn(true);
  assert.equal(always.getAttribute('aria-pressed'), 'true');
});

test('nothing can be exported while there are no values or an export is under way', () => {
  const { toolbar } = shownToolbar();
  const csv = button(toolbar, 'CSV');
  toolbar.setEmpty(true);
  const disabled = [csv.disabled];
  toolbar.setEmpty(false);
  disabled.push(csv.disabled);
  toolbar.setExporting(true);
  disabled.push(csv.disabled);
  toolbar.setExporting(false);
  disabled.push(csv.disabled);
  assert.deepEqual(disabled, [true, false, true, false]);
});

test('a part of the history must end after it starts', () => {
  const { toolbar, done } = shownToolbar();
  const form = find<HTMLFormElement>(toolbar.node, 'form');
  const [from, to] = form.querySelectorAll('input');
  assert.ok(from && to);
  const submit = (start: string, end: string): void => {
    [from.value, to.value] = [start, end];
    form.dispatchEvent(new Event('submit', { cancelable: true }));
  };
  submit('2026-11-24T03:00', '2026-11-24T02:00');
  assert.deepEqual([done, to.validationMessage], [[], 'The end must be later than the start.']);
  to.dispatchEvent(new Event('input'));
  assert.equal(to.validationMessage, '');
  submit('2026-11-24T03:00', '2026-11-24T04:00');
  const start = new Date('2026-11-24T03:00').getTime() / 1000;
  assert.deepEqual(done, [['zoom', { from: start, to: start + 3600 }]]);
});
