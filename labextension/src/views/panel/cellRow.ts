import type { TranslationBundle } from '@jupyterlab/translation';

import { runName, type RunningCell } from '../../model/cells/cellRuns';
import type { CellReport, GpuPart } from '../../model/cells/report';
import type { CellRun, Totals } from '../../model/cells/runTable';
import { element, setAttribute, TextElement } from '../../ui/dom';
import {
  change,
  duration,
  energy,
  figure,
  memory,
  memoryChange,
  moment,
  otherDay,
  padded,
  elapsedTime,
  UNKNOWN,
  type MemoryUnit
} from '../../model/format';

/** Shown in place of a figure if the cell used no GPU. An unknown figure has another text. */
const NONE = '–';
/** Suffix of a memory figure that includes the memory of all processes on the GPU. */
const WHOLE_GPU = '*';

/** A row of the list of cells: a button with the cell's name, followed by figures. */
class Row {
  readonly node: HTMLElement;
  protected readonly button = element('button', 'cells-name');
  protected readonly name = new TextElement('cells-label');
  protected readonly mark = new TextElement('cells-mark');
  protected readonly day = new TextElement('cells-day');
  protected readonly delta = new TextElement('');
  protected readonly peak = new TextElement('');
  protected readonly time = new TextElement('');
  protected readonly energy = new TextElement('');
  protected readonly header: HTMLElement;

  constructor(reveal: () => void) {
    this.button.type = 'button';
    this.button.tabIndex = -1;
    this.button.append(this.name.node, this.mark.node);
    this.header = element('div', 'cells-row-header', this.button, this.day.node);
    this.header.setAttribute('role', 'rowheader');
    const figures = [this.delta, this.peak, this.time, this.energy].map(({ node }) => node);
    for (const node of figures) {
      node.setAttribute('role', 'cell');
    }
    this.node = element('div', 'cells-row', this.header, ...figures);
    this.node.setAttribute('role', 'row');
    this.node.onclick = reveal;
  }
}

/** What the user can do with a run that has ended. */
export interface RunActions {
  /** Scroll to the cell. */
  readonly reveal: () => void;
  /** Show the time of the run in the dashboard. */
  readonly showTime: () => void;
  /** Return why the time of the run can't be shown; null if it can. */
  readonly timeProblem: () => string | null;
  /** Called when the user has ticked the run, or has removed its tick. */
  readonly ticked: () => void;
}

/**
 * The row of a run that has ended. The run's report never changes, but the unit of its memory figures may.
 */
export class RunRow extends Row {
  private readonly report: CellReport;
  /** Whether JupyterLab trusts the cell's outputs. */
  readonly trusted: boolean;
  /** Marks the run as one of the two to compare. */
  readonly tick = element('input', '');
  private readonly label = element('label', 'cells-tick');

  constructor(
    private readonly trans: TranslationBundle,
    run: CellRun,
    { now, locale }: { now: number; locale: string },
    { reveal, showTime, timeProblem, ticked }: RunActions
  ) {
    super(reveal);
    const { report } = run;
    this.report = report;
    this.trusted = run.trusted;
    setAttribute(this.node, 'data-untrusted', run.trusted ? '' : 'true');
    this.node.dataset.cellId = run.cellId;
    const [mark, meaning] = outcomeMark(trans, report) ?? ['', ''];
    const name = cellName(trans, run);
    this.name.set(name);
    this.tick.type = 'checkbox';
    this.tick.tabIndex = -1;
    this.tick.onchange = ticked;
    this.tick.setAttribute('aria-label', trans.__('Compare %1', name));
    this.label.append(this.tick);
    this.setComparable(true);
    this.label.onclick = event => {
      event.stopPropagation(); // A click elsewhere in the row reveals the cell.
    };
    this.header.prepend(this.label);
    this.mark.set(mark);
    this.day.set(report.started === null ? '' : otherDay(report.started, now, locale));
    setAttribute(
      this.mark.node,
      'data-warm',
      meaning === '' || report.status === 'interrupted' ? '' : 'true'
    );
    setAttribute(this.mark.node, 'aria-label', meaning);
    setAttribute(this.mark.node, 'role', meaning === '' ? '' : 'img');
    this.button.title = [
      meaning === '' ? name : `${name}: ${meaning}`,
      ...(run.trusted ? [] : [trans.__('Not trusted')]),
      trans.__('Go to the cell')
    ].join('\n');
    const memory = memoryTitle(trans, report);
    this.delta.set('', memory);
    this.peak.set('', memory);
    const time = element('button', 'cells-time', elapsedTime(report.duration));
    time.type = 'button';
    time.tabIndex = -1;
    time.onmouseenter = time.onfocus = () => {
      const problem = timeProblem();
      setAttribute(time, 'aria-disabled', problem === null ? '' : 'true');
      time.title = [
        timeTitle(trans, report, now),
        problem ?? trans.__('Show this time in the dashboard')
      ].join('\n');
    };
    time.onclick = event => {
      event.stopPropagation(); // A click elsewhere in the row reveals the cell.
      if (timeProblem() === null) {
        showTime();
      }
    };
    this.time.node.append(time);
    const joules = { joules: report.energy, atLeast: report.atLeast };
    this.energy.set(report.gpus.length === 0 ? none(report) : energyText(joules), energyTitle(trans, report));
  }

  /** Enable the tick, or disable it and remove it: the user can't remove the tick of a disabled box. */
  setComparable(comparable: boolean): void {
    this.tick.disabled = !comparable;
    this.tick.checked &&= comparable;
    this.label.title = comparable
      ? this.trans.__('Tick two cells to compare them (%gpu compare)')
      : this.trans.__('Only cells that this kernel has run while the page was open can be compared');
  }

  /** Show the memory in `unit`. */
  setUnit(unit: MemoryUnit): void {
    const { gpus, kind, delta, peak } = this.report;
    const suffix = kind === 'device' ? WHOLE_GPU : '';
    const text = (size: number | null, shown: string): string =>
      gpus.length === 0 ? none(this.report) : size === null ? shown : `${shown}${suffix}`;
    this.delta.set(text(delta, change(delta, unit)), this.delta.node.title);
    this.peak.set(text(peak, figure(peak, unit)), this.peak.node.title);
  }
}

/** The row of the running cell. */
export class RunningRow extends Row {
  private cellId = '';

  constructor(
    private readonly trans: TranslationBundle,
    reveal: (cellId: string) => void
  ) {
    super(() => {
      reveal(this.cellId);
    });
    this.node.classList.add('jp-gpuwidget-cells-running');
    this.button.tabIndex = 0;
    this.button.title = trans.__('Running. Go to the cell');
    this.mark.set('▸');
    setAttribute(this.mark.node, 'role', 'img');
    setAttribute(this.mark.node, 'aria-label', trans.__('running'));
  }

  /** Show the running cell. If no cell runs, the row is blank but keeps its place, so that nothing moves. */
  update(running: RunningCell | null, unit: MemoryUnit): void {
    setAttribute(this.node, 'data-idle', running === null ? 'true' : '');
    if (running === null) {
      return;
    }
    this.cellId = running.cellId;
    this.node.dataset.cellId = running.cellId;
    const { executionCount, code } = running;
    const name = [executionCount === null ? '[*]' : `[${String(executionCount)}]`, code].join(' ');
    this.name.set(name.trimEnd());
    // A right-aligned text moves when it gets longer, so the texts are padded to the widths of `±99.9` and,
    // in the first minute, `59 s`.
    this.delta.set(padded(change(running.delta, unit), 5), runningTitle(this.trans, running));
    this.time.set(padded(duration(running.seconds), 4));
  }
}

/** Return a run's execution count and its label or code, or a placeholder if it has none of them. */
export function cellName(trans: TranslationBundle, run: Pick<CellRun, 'report' | 'code'>): string {
  return runName(run) || trans.__('(unnamed)');
}

/**
 * Return a mark and its meaning for a run that died, or with an error, an interrupt or out-of-memory errors; null for
 * any other run.
 */
export function outcomeMark(trans: TranslationBundle, report: CellReport): [string, string] | null {
  const outOfMemory =
    report.ooms === 0 ? '' : trans._n('%1 out-of-memory error', '%1 out-of-memory errors', report.ooms);
  if (report.status === 'error') {
    return ['✕', [trans.__('stopped by an error'), outOfMemory].filter(part => part !== '').join(', ')];
  }
  if (report.status === 'died') {
    return ['✕', trans.__('the kernel died')];
  }
  if (report.status === 'interrupted') {
    return ['■', trans.__('interrupted')];
  }
  return outOfMemory === '' ? null : ['▲', outOfMemory];
}

/** Return what replaces a figure of a report without GPUs. */
function none({ hasGpus }: CellReport): string {
  return hasGpus === null ? UNKNOWN : NONE;
}

/**
 * Return the tooltip of the memory figures: what they measure, the figures of each GPU, and the reason if a
 * figure is unknown.
 */
export function memoryTitle(trans: TranslationBundle, report: CellReport): string {
  const { gpus, kind, delta, peak, missing } = report;
  if (gpus.length === 0) {
    return report.hasGpus === null
      ? trans.__('The GPUs could not be measured')
      : report.hasGpus
        ? trans.__('The cell used no GPU')
        : trans.__('The machine had no GPU');
  }
  const what = {
    torch: trans.__('Allocated by PyTorch'),
    process: report.children
      ? trans.__('Held by this notebook and its child processes')
      : trans.__('Held by this notebook'),
    device: trans.__('Whole GPU (this notebook’s share is unknown)')
  }[kind];
  const field = { torch: 'torch', process: 'process_memory', device: 'device_memory' }[kind];
  const figures = (name: string, span: { delta: number | null; peak: number | null }): string =>
    kind === 'torch'
      ? trans.__('%1: %2, peak %3', name, memoryChange(span.delta), memory(span.peak))
      : trans.__('%1: %2, sampled peak %3', name, memoryChange(span.delta), memory(span.peak));
  const lines = [
    figures(what, report),
    ...(gpus.length > 1 || delta === null || peak === null
      ? gpus.map(gpu => figures(gpuText(trans, gpu), gpu))
      : [gpus.map(gpu => gpuText(trans, gpu)).join(', ')]),
    unlistedText(trans, report)
  ];
  const { recording } = report;
  const reason = (delta === null && recording === null) || peak === null ? (missing[field] ?? '') : '';
  const noChange =
    recording === null
      ? []
      : [
          trans.__('The change is unknown: what changed in a recording is not what the cell kept.'),
          recording
        ];
  return [...lines, reason, ...noChange].filter(line => line !== '').join('\n');
}

/** Return the tooltip of the time: its exact value, and when the run began. `now` is in epoch seconds. */
export function timeTitle(trans: TranslationBundle, report: CellReport, now: number): string {
  const { started, duration } = report;
  const began = started === null ? '' : trans.__('began %1', moment(started, now));
  return [elapsedTime(duration), began].filter(part => part !== '').join(', ');
}

/** Return the energy as text, prefixed by `≥` if the energy of some GPU is unknown. */
export function energyText({ joules, atLeast }: { joules: number | null; atLeast: boolean }): string {
  return joules === null ? UNKNOWN : `${atLeast ? '≥' : ''}${energy(joules)}`;
}

/** Return the tooltip of the energy: the energy of each GPU, and the reason if it is unknown for a GPU. */
export function energyTitle(trans: TranslationBundle, report: CellReport): string {
  const { gpus, atLeast, missing } = report;
  if (gpus.length === 0) {
    return memoryTitle(trans, report);
  }
  const parts = gpus.map(gpu => `${gpuText(trans, gpu)}: ${energy(gpu.energy)}`);
  return [...parts, unlistedText(trans, report), atLeast ? (missing.energy_j ?? '') : '']
    .filter(line => line !== '')
    .join('\n');
}

/**
 * Return the number of runs, and the sums of their times and energies, on one line. `trusted` is whether
 * JupyterLab trusts all of the runs' cells.
 */
export function totalsText(trans: TranslationBundle, count: number, totals: Totals, trusted = true): string {
  return count === 0
    ? ''
    : [
        ...(trusted ? [] : [trans.__('Not trusted')]),
        trans._n('%1 run', '%1 runs', count),
        ...(totals.seconds === null ? [] : [elapsedTime(totals.seconds)]),
        ...(totals.joules === null ? [] : [energyText(totals)])
      ].join(' · ');
}

/**
 * Return the tooltip of the running cell's memory: what the figure measures, or that it is unknown and why.
 */
export function runningTitle(trans: TranslationBundle, running: RunningCell): string {
  if (running.delta === null) {
    return trans.__('Unknown: the kernel did not report its memory before this cell, or does not answer');
  }
  const parts = running.gpus.filter(({ bytes }) => bytes !== 0);
  const torch = running.gpus.some(gpu => gpu.torch);
  return [
    torch
      ? trans.__(
          'Change of the memory reserved by PyTorch since the cell began: %1',
          memoryChange(running.delta)
        )
      : trans.__(
          'Change of this notebook’s GPU memory since the cell began: %1',
          memoryChange(running.delta)
        ),
    ...parts.map(({ uuid, torchDevice, bytes }) => `${torchDevice ?? uuid}: ${memoryChange(bytes)}`)
  ].join('\n');
}

/** Return how many GPUs count in the figures without being listed; empty if all are listed. */
function unlistedText(trans: TranslationBundle, { unlisted }: CellReport): string {
  return unlisted === 0 ? '' : trans._n('and %1 more GPU', 'and %1 more GPUs', unlisted);
}

function gpuText(trans: TranslationBundle, { number, torchDevice }: GpuPart): string {
  return torchDevice === null ? trans.__('GPU %1', number) : trans.__('GPU %1 (%2)', number, torchDevice);
}
