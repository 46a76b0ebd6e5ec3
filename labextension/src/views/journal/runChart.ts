import type { TranslationBundle } from '@jupyterlab/translation';

import { peakText } from './journalMessages';
import { shortMemory, UNKNOWN, whole, withUnit } from '../../model/format';
import { element, KeyedList, setAttribute, setHidden, TextElement } from '../../ui/dom';
import type { JournalCard, JournalGpu } from '../../wire/wire';

/** At most this many GPUs have a chart. */
const MAX_GPUS = 4;
const SVG = 'http://www.w3.org/2000/svg';
/** The height of the drawing: percent. The curves are stretched to the size of the chart. */
const FULL = 100;

/** The charts of the run that lasts: the utilization and the memory of each of its GPUs since its start. */
export class RunChart {
  readonly node = element('div', 'journal-chart');
  private readonly head = new TextElement('journal-figures', 'div');
  private readonly gpus: KeyedList<GpuCurves>;
  private readonly more = new TextElement('journal-note', 'div');
  private shown: JournalCard | null = null;

  /** `totalOf` returns the memory of a GPU in bytes; null if unknown. */
  constructor(
    private readonly trans: TranslationBundle,
    private readonly totalOf: (uuid: string) => number | null
  ) {
    this.gpus = new KeyedList('journal-gpus', () => new GpuCurves(trans), 'div');
    this.node.append(this.head.node, this.gpus.node, this.more.node);
  }

  /** Show a run; nothing if it is null. */
  update(card: JournalCard | null): void {
    setHidden(this.node, card === null || card.gpus.length === 0);
    if (card === null || card === this.shown) {
      return;
    }
    this.shown = card;
    const shown = card.gpus.slice(0, MAX_GPUS);
    this.head.set(peakText(this.trans, card.run));
    this.gpus.arrange(shown.map(({ uuid }) => uuid)).forEach((curves, index) => {
      const gpu = shown[index];
      if (gpu !== undefined) {
        curves.update(card, gpu, this.totalOf(gpu.uuid));
      }
    });
    const others = card.gpus.length - shown.length;
    setHidden(this.more.node, others === 0);
    this.more.set(others === 0 ? '' : this.trans._n('and %1 more GPU', 'and %1 more GPUs', others));
  }
}

/** The curves of one GPU, with their last values. */
class GpuCurves {
  readonly node: HTMLElement;
  private readonly name = new TextElement('journal-gpu');
  private readonly values = new TextElement('journal-values');
  private readonly svg = document.createElementNS(SVG, 'svg');
  private readonly utilization = path('journal-utilization');
  private readonly memory = path('journal-memory');

  constructor(private readonly trans: TranslationBundle) {
    setAttribute(this.svg, 'viewBox', `0 0 ${String(FULL)} ${String(FULL)}`);
    setAttribute(this.svg, 'preserveAspectRatio', 'none');
    setAttribute(this.svg, 'class', 'jp-gpuwidget-journal-curves');
    setAttribute(this.svg, 'role', 'img');
    this.svg.append(this.utilization, this.memory);
    this.node = element('div', 'journal-row', this.name.node, this.svg, this.values.node);
  }

  update(
    { t }: JournalCard,
    { index, utilization, memory_used: memory }: JournalGpu,
    total: number | null
  ): void {
    // Without the total, the highest use is the top of the chart.
    const top = total ?? Math.max(1, ...memory.map(size => size ?? 0));
    setAttribute(this.utilization, 'd', curve(t, utilization, FULL));
    setAttribute(this.memory, 'd', curve(t, memory, top));
    const util = withUnit(whole(last(utilization)), '%');
    const used = shortMemory(last(memory));
    this.name.set(this.trans.__('GPU %1', index));
    this.values.set(util === UNKNOWN && used === UNKNOWN ? UNKNOWN : `${util} · ${used}`);
    const label = this.trans.__(
      'GPU %1 since the start of the run: utilization %2, memory %3',
      index,
      util,
      used
    );
    setAttribute(this.svg, 'aria-label', label);
  }
}

function path(className: string): SVGPathElement {
  const node = document.createElementNS(SVG, 'path');
  setAttribute(node, 'class', `jp-gpuwidget-${className}`);
  setAttribute(node, 'vector-effect', 'non-scaling-stroke');
  return node;
}

function last(values: readonly (number | null)[]): number | null {
  return values[values.length - 1] ?? null;
}

/** Return the path of a curve from 0 to `top`, interrupted where the value is unknown. */
export function curve(t: readonly number[], values: readonly (number | null)[], top: number): string {
  const end = t[t.length - 1] ?? 0;
  let isDrawing = false;
  const parts: string[] = [];
  t.forEach((time, index) => {
    const value = values[index] ?? null;
    if (value !== null) {
      const x = end === 0 ? 0 : (FULL * time) / end;
      const y = FULL - (FULL * Math.min(value, top)) / top;
      parts.push(`${isDrawing ? 'L' : 'M'}${x.toFixed(1)} ${y.toFixed(1)}`);
    }
    isDrawing = value !== null;
  });
  return parts.join('');
}
