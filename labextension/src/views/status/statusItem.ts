import type { TranslationBundle } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';

import type { Settings } from '../../model/settings/settings';
import { element, setAttribute, setHidden, TextElement } from '../../ui/dom';
import { gpuIcon } from '../../ui/icon';
import { percentText, type SparkPoint, type StatusModel } from './statusModel';

const SVG = 'http://www.w3.org/2000/svg';
/** The width of the sparkline in seconds. */
const WIDTH = 115;
/** A longer time between two points is a gap. */
const MAX_PAUSE_S = 15;

/**
 * The status bar item: a button that shows GPU memory and utilization, as a tiny meter or as a sentence, and
 * opens the panel.
 *
 * The item changes in the same frame as the panel. A React component would change in a later frame, so the
 * browser would lay out and paint the page twice for each sample.
 */
export class StatusItem extends Widget {
  private readonly button: HTMLButtonElement;
  private readonly text = new TextElement('status-text');
  private readonly utilization = new TextElement('status-utilization');
  private readonly memory = new TextElement('');
  private readonly line = document.createElementNS(SVG, 'path');
  private readonly bar = element('span', 'status-bar');
  private readonly meter: HTMLElement;

  /** `kind` returns whether the item is a meter or a sentence. */
  constructor(
    private readonly trans: TranslationBundle,
    private readonly model: StatusModel,
    private readonly kind: () => Settings['statusBar'],
    open: () => void
  ) {
    super();
    this.id = 'jp-gpuwidget-status';
    this.addClass('jp-gpuwidget-status');
    this.text.node.classList.add('jp-StatusBar-TextItem');
    const sparkline = document.createElementNS(SVG, 'svg');
    sparkline.setAttribute('viewBox', `0 0 ${String(WIDTH)} 100`);
    sparkline.setAttribute('preserveAspectRatio', 'none');
    sparkline.append(this.line);
    this.meter = element(
      'span',
      'status-meter',
      sparkline,
      this.utilization.node,
      this.bar,
      this.memory.node
    );
    // For screen readers, the button's name is the sentence.
    this.meter.setAttribute('aria-hidden', 'true');
    const icon = gpuIcon.element({ tag: 'span', className: 'jp-gpuwidget-status-icon' });
    this.button = element('button', 'status-button', icon, this.text.node, this.meter);
    this.button.type = 'button';
    setHidden(this.button, true);
    this.button.addEventListener('click', open);
    this.node.append(this.button);
    model.changed.connect(this.update, this);
    this.update();
  }

  override dispose(): void {
    if (!this.isDisposed) {
      this.model.dispose();
      super.dispose();
    }
  }

  protected override onUpdateRequest(): void {
    const { text } = this.model;
    setHidden(this.button, text === null);
    if (text !== null) {
      const { utilization, percent, level, memory } = text.meter;
      const isSentence = this.kind() === 'sentence';
      setHidden(this.text.node, !isSentence);
      setHidden(this.meter, isSentence);
      this.text.set(text.text);
      this.utilization.set(percentText(utilization));
      this.memory.set(memory);
      setAttribute(this.bar, 'data-level', level);
      setAttribute(this.bar, 'style', `--jp-gpuwidget-used: ${(percent ?? 0).toFixed(1)}%`);
      setAttribute(this.line, 'd', sparkline(this.model.history));
      setAttribute(this.button, 'title', text.title);
      setAttribute(this.button, 'aria-label', this.trans.__('%1. Show the GPU panel', text.text));
    }
  }
}

/** Return the path of the sparkline. The newest point is at its right end, and a gap interrupts it. */
function sparkline(points: readonly SparkPoint[]): string {
  const end = points.at(-1)?.[0] ?? 0;
  let before = -Infinity;
  return points
    .map(([time, value]) => {
      const command = time - before > MAX_PAUSE_S ? 'M' : 'L';
      before = value === null ? -Infinity : time;
      return value === null ? '' : `${command}${(WIDTH + time - end).toFixed(0)} ${(100 - value).toFixed(0)}`;
    })
    .join('');
}
