import type { ISignal } from '@lumino/signaling';

import { NoticeView } from './notice';
import type { PanelContext } from './panelContext';
import { serverNotice } from './panelMessages';
import { duration } from '../../model/format';
import { gpuHoursText, gpuHoursTitle, jobText } from '../../model/memory/gpuHours';
import { sharedReason } from '../../model/memory/holders';
import { element, TextElement } from '../../ui/dom';
import { PanelSection } from '../../ui/panelSection';

/** A text, optionally with a tooltip. */
type Text = readonly [text: string, title?: string];

/** A section that is a single text. It is hidden while the text is empty. */
export class TextSection extends PanelSection {
  private readonly text: TextElement;

  constructor(
    className: string,
    sources: readonly ISignal<unknown, unknown>[],
    private readonly content: () => Text
  ) {
    const text = new TextElement(className, 'div');
    super(text.node, sources);
    this.text = text;
  }

  protected override render(): boolean {
    const [text, title] = this.content();
    this.text.set(text, title);
    return text !== '';
  }
}

/** Why it is unknown who holds the memory of all GPUs; empty if it is known or not shown. */
export function reasonText({ monitor, settings }: PanelContext): string {
  return settings.current.show.holders ? sharedReason(monitor.model.usage) : '';
}

/** The label of a recording. With a recording, its tooltip has the reason that otherwise has its own section. */
export function recordingSection(context: PanelContext): PanelSection {
  const { monitor } = context;
  return new TextSection('panel-recording', [monitor.changed], () => {
    const recording = monitor.model.sample?.origin.recording ?? '';
    return [recording, `${recording}\n${reasonText(context)}`.trim()];
  });
}

/** Why it is unknown who holds the memory of all GPUs. */
export function reasonSection(context: PanelContext): PanelSection {
  const { monitor } = context;
  return new TextSection('panel-reason', [monitor.changed], () => [
    typeof monitor.model.sample?.origin.recording === 'string' ? '' : reasonText(context)
  ]);
}

/** The Slurm job in which the server runs. */
export function jobSection({ trans, monitor }: PanelContext): PanelSection {
  return new TextSection('panel-job jp-gpuwidget-live', [monitor.changed], () => {
    const { usage, sample } = monitor.model;
    const job = usage?.job ?? null;
    return [job === null || sample === null ? '' : jobText(trans, job, sample.time)];
  });
}

/** What the active notebook has used of the GPUs. */
export function useSection({ trans, monitor }: PanelContext): PanelSection {
  return new TextSection('panel-use jp-gpuwidget-live', [monitor.changed, monitor.kernels.changed], () => {
    const kernel = monitor.kernels.view.kernel?.id;
    const hours = monitor.model.usage?.kernels.find(({ id }) => id === kernel)?.gpu_hours ?? null;
    return hours === null
      ? ['']
      : [trans.__('This notebook: %1', gpuHoursText(trans, hours)), gpuHoursTitle(trans, hours)];
  });
}

/**
 * Why there are no current values. The panel has two of these sections: one in place of the GPUs and, for when
 * GPUs are shown, one below everything that scrolls, so that they do not move.
 */
export class ServerNoticeSection extends PanelSection {
  private readonly view: NoticeView;

  constructor(
    private readonly context: PanelContext,
    private readonly belowGpus: boolean
  ) {
    const view = new NoticeView(context.trans, () => undefined);
    super(view.node, [context.monitor.changed]);
    this.view = view;
    this.addClass('jp-gpuwidget-server-notice');
  }

  protected override render(): boolean {
    const { trans, monitor } = this.context;
    const { sample } = monitor.model;
    const reason = sample?.origin.reason ?? null;
    const notice = serverNotice(trans, monitor.data) ?? (reason === null ? null : { text: reason });
    const shown = this.belowGpus === (sample?.gpus.length ?? 0) > 0 ? notice : null;
    this.view.show(shown);
    return shown !== null;
  }
}

/** The legend of the charts, with the time that they show. */
export class LegendSection extends PanelSection {
  private readonly span = new TextElement('');

  constructor(private readonly context: PanelContext) {
    const { trans, monitor, cells } = context;
    super(element('div', 'panel-legend'), [monitor.changed, cells.changed]);
    this.node.append(
      element('span', 'panel-legend-utilization', trans.__('util')),
      element('span', 'panel-legend-memory', trans.__('memory')),
      this.span.node
    );
  }

  protected override render(): boolean {
    const { trans, monitor, settings } = this.context;
    const { seconds, sample } = monitor.model;
    this.span.set(
      seconds >= 60 && seconds % 60 === 0 ? trans.__('%1 min', seconds / 60) : duration(seconds),
      settings.current.show.bands ? this.clockSkewTitle() : ''
    );
    return (sample?.gpus.length ?? 0) > 0;
  }

  private clockSkewTitle(): string {
    const { trans, cells } = this.context;
    const { seconds } = cells.clockSkew;
    return seconds === null
      ? ''
      : trans.__(
          'Cell runs are not shown: the clocks of the kernel and of the server differ by %1.',
          duration(Math.abs(seconds))
        );
  }
}
