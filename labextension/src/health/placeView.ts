import type { TranslationBundle } from '@jupyterlab/translation';

import { element, setAttribute, Text } from '../ui/dom';
import { moment } from '../ui/format';
import type { Diagnosis } from '../wire';
import { CopyButton, type Copy } from './copyButton';
import { diagnosis, type Examination } from './health';
import { linkView } from './linkView';
import { asJson } from './words';

/** One environment: whose it is, the doctor's sentence, and the chain. */
export class PlaceView {
  readonly node: HTMLElement;
  private readonly title = new Text('place-title', 'h3');
  private readonly sentence = new Text('place-sentence', 'div');
  private readonly chain = element('div', 'chain');
  private readonly about = new Text('place-about', 'div');
  private readonly json: CopyButton;
  private shown: Diagnosis | null = null;

  constructor(
    private readonly trans: TranslationBundle,
    private readonly copy: Copy
  ) {
    this.json = new CopyButton(
      trans,
      trans.__('Copy as JSON'),
      trans.__('As `gpuwidget doctor --json` writes it, for --diff or a bug report'),
      () => (this.shown === null ? '' : asJson(this.shown)),
      copy
    );
    this.node = element(
      'section',
      'place',
      this.title.node,
      this.sentence.node,
      this.chain,
      this.about.node,
      this.json.node
    );
  }

  /** Show what is known of the environment called `title`; null says, by `reason`, why there is none. */
  show(title: string, examination: Examination | null, reason: string): void {
    this.title.set(title);
    setAttribute(this.node, 'aria-label', title);
    const doctor = diagnosis(examination);
    this.sentence.set(examination === null ? reason : this.sentenceOf(examination));
    setAttribute(this.node, 'aria-busy', examination?.kind === 'asking' ? 'true' : '');
    this.about.node.hidden = this.json.node.hidden = doctor === null;
    if (doctor !== this.shown) {
      this.shown = doctor;
      this.chain.replaceChildren(...(doctor?.links ?? []).map(link => linkView(this.trans, link, this.copy)));
      this.about.set(
        doctor === null
          ? ''
          : this.trans.__('%1, at %2', doctor.python, moment(doctor.time, Date.now() / 1000)),
        doctor?.python ?? ''
      );
    }
  }

  private sentenceOf(examination: Examination): string {
    switch (examination.kind) {
      case 'unasked':
        return this.trans.__('Not looked at yet.');
      case 'asking':
        return this.trans.__('Looking: this takes some seconds.');
      case 'failed':
        return examination.reason;
      case 'examined':
        return examination.doctor.summary;
    }
  }
}
