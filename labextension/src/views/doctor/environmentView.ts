import type { TranslationBundle } from '@jupyterlab/translation';

import { element, setAttribute, setHidden, TextElement } from '../../ui/dom';
import { copyButton, type Copy } from '../../ui/copyButton';
import { moment } from '../../model/format';
import type { TranslatedDiagnosis } from '../../wire/kernelReply';
import type { Fix } from '../../wire/wire';
import {
  mergeSkipped,
  statusLabel,
  textAfterCommand,
  toJson,
  type ShownCheck,
  type Translate
} from './doctorMessages';
import { SYMBOLS } from './doctorSummary';
import { newestDiagnosis, type DiagnosisState } from '../../model/doctor/doctorModel';

/** Returns a button with a label that copies a text. */
type CopyButton = (label: string, text: () => string) => HTMLButtonElement;

/** The diagnosis of an environment, or the checks that several environments share: a title, a summary and checks. */
export class EnvironmentView {
  readonly node: HTMLElement;
  private readonly title = new TextElement('doctor-title', 'h3');
  private readonly summary = new TextElement('doctor-summary', 'div');
  private readonly checks = element('div', 'doctor-checks');
  private readonly about = new TextElement('doctor-about', 'div');
  private readonly copyButton: CopyButton;
  private readonly copyJson: HTMLButtonElement;
  private shown: TranslatedDiagnosis | null = null;
  private shownChecks: readonly ShownCheck[] | null = null;

  constructor(
    private readonly trans: TranslationBundle,
    copy: Copy
  ) {
    this.copyButton = copyButton.bind(null, trans, copy, 'button jp-gpuwidget-doctor-copy');
    this.copyJson = this.copyButton(trans.__('Copy as JSON'), () =>
      this.shown === null ? '' : toJson(this.shown)
    );
    this.node = element(
      'section',
      'doctor-environment',
      this.title.node,
      this.summary.node,
      this.checks,
      this.about.node,
      this.copyJson
    );
  }

  /**
   * Show `summary` and `checks`, which may be only some of those in the diagnosis of the environment called
   * `title`. `texts` are the translations of the checks' texts.
   */
  show(
    title: string,
    state: DiagnosisState | null,
    summary: string,
    checks: readonly ShownCheck[],
    texts: TranslatedDiagnosis['texts']
  ): void {
    this.title.set(title);
    setAttribute(this.node, 'aria-label', title);
    const diagnosis = newestDiagnosis(state);
    this.summary.set(summary);
    setAttribute(this.node, 'aria-busy', state?.kind === 'running' ? 'true' : '');
    setHidden(this.about.node, diagnosis === null);
    setHidden(this.copyJson, diagnosis === null);
    if (checks !== this.shownChecks) {
      this.shownChecks = checks;
      const translate = translator(texts);
      this.checks.replaceChildren(
        ...mergeSkipped(this.trans, checks, translate).map(check =>
          checkView(this.trans, check, translate, this.copyButton)
        )
      );
    }
    if (diagnosis !== this.shown) {
      this.shown = diagnosis;
      this.about.set(
        diagnosis === null
          ? ''
          : this.trans.__('%1, at %2', diagnosis.python, moment(diagnosis.time, Date.now() / 1000)),
        diagnosis?.python ?? ''
      );
    }
  }
}

/** Return the state of a diagnosis in a sentence. */
export function stateSentence(trans: TranslationBundle, state: DiagnosisState): string {
  switch (state.kind) {
    case 'none':
      return trans.__('Not run');
    case 'running':
      return trans.__('Running (takes a few seconds)…');
    case 'failed':
      return state.reason;
    case 'done':
      return translator(state.diagnosis.texts)(state.diagnosis.summary);
  }
}

function translator(texts: TranslatedDiagnosis['texts']): Translate {
  return text => texts[text] ?? text;
}

/**
 * Return a line for one check that expands to the check's details. A check that has found the cause of a
 * problem is expanded from the start.
 */
function checkView(
  trans: TranslationBundle,
  { check, problems, causes }: ShownCheck,
  translate: Translate,
  copyButton: CopyButton
): HTMLElement {
  const { status, title, evidence } = check;
  const found = translate(check.found);
  const titles = (others: readonly string[]): string => others.map(translate).join(', ');
  const symbol = element('span', 'doctor-symbol', SYMBOLS[status]);
  symbol.setAttribute('aria-hidden', 'true');
  const head = element(
    'summary',
    'doctor-check-head',
    symbol,
    element('span', 'doctor-check-title', translate(title)),
    element('span', 'doctor-check-found', found),
    element('span', 'doctor-check-status', statusLabel(trans, status))
  );
  const body = element('div', 'doctor-check-body', element('div', 'doctor-check-result', found));
  for (const { problem, affects } of problems) {
    body.append(...problem.reasons.map(reason => element('div', '', translate(reason))));
    if (problem.fix !== null) {
      body.append(...fixView(trans, problem.fix, translate, copyButton));
    }
    if (affects.length > 0) {
      body.append(element('div', '', trans.__('Also affected: %1.', titles(affects))));
    }
  }
  if (causes.length > 0) {
    body.append(element('div', '', trans.__('See: %1.', titles(causes))));
  }
  const entries = Object.entries(evidence);
  if (entries.length > 0) {
    const list = element('dl', 'doctor-evidence');
    for (const [name, value] of entries) {
      // The other values are raw data, which may be the same string as a text.
      const shown = name.startsWith('finding ') ? translate(value) : value;
      list.append(element('dt', '', name), element('dd', '', shown));
    }
    const summary = element('summary', 'doctor-evidence-head', trans.__('Raw data'));
    body.append(element('details', '', summary, list));
  }
  const node = element('details', 'doctor-check', head, body);
  node.dataset.status = status;
  node.open = problems.length > 0;
  return node;
}

/**
 * Return the text of a fix. If the text contains a command, the command is on a separate line with a copy
 * button.
 */
function fixView(
  trans: TranslationBundle,
  fix: Fix,
  translate: Translate,
  copyButton: CopyButton
): HTMLElement[] {
  const { command } = fix;
  const head = element('div', '', element('b', '', trans.__('Fix:')), ` ${translate(fix.before)}`);
  if (command === null) {
    return [head];
  }
  const after = textAfterCommand(translate(fix.after));
  return [
    head,
    element(
      'div',
      'doctor-fix',
      element('code', 'notice-command', command),
      copyButton(trans.__('Copy'), () => command)
    ),
    ...(after === '' ? [] : [element('div', '', after)])
  ];
}
