import { dialogs, find, mount, notifications, textOf, texts, updated } from './fakes_dom';

import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import type { TranslationBundle } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';
import { Panel, Widget } from '@lumino/widgets';

import { PanelState } from '../src/model/panelState';
import { StatusMessage } from '../src/model/memory/statusMessage';
import { DEFAULTS } from '../src/model/settings/settings';
import { notify } from '../src/ui/notification';
import { announce } from '../src/views/journal/announce';
import { causeText, figuresText, outcomeText, runTitle } from '../src/views/journal/journalMessages';
import { JournalSection } from '../src/views/journal/journalSection';
import { RunActions } from '../src/views/journal/runActions';
import { curve } from '../src/views/journal/runChart';
import type { JournalRun } from '../src/wire/wire';
import { GIB, settled, trans } from './fakes';
import { codeCell, FakeCells } from './fakes_cells';
import { ENDED, FakeJournalPage, FakeJournalNotebook, journalRun, NOON } from './fakes_journal';

const DEATH = { cause: 'out_of_memory', certainty: 'certain', text: 'Killed for lack of memory.' } as const;
const DIED = journalRun({ state: 'died', status: 'died', death: DEATH });

/** The section of the journal in a visible panel. */
class Shown extends FakeJournalPage {
  readonly cells = {
    changed: new Signal<object, void>({}),
    reveal: (id: string) => {
      this.notebook.reveal(id);
    }
  };
  readonly message = new StatusMessage(this.clock);
  readonly settings = { current: { show: { ...DEFAULTS.show } }, changed: new Signal<object, void>({}) };
  readonly panelState = new PanelState(null);
  readonly opened: string[] = [];
  /** What opening a closed notebook results in. */
  openResult: () => FakeJournalNotebook | undefined = () => undefined;
  readonly panel = new Panel();
  readonly actions: RunActions;
  readonly section: JournalSection;
  readonly rendered: unknown[] = [];

  constructor(hasRenderers = true) {
    super();
    const notebooks = {
      find: ({ path }: JournalRun) => this.open.find(each => each.path === path),
      open: ({ path }: JournalRun) => {
        this.opened.push(path ?? '');
        return Promise.resolve(this.openResult());
      }
    };
    const renderers = {
      createModel: (options: object) => options,
      createRenderer: (type: string) =>
        Object.assign(new Widget(), {
          renderModel: (model: object) => {
            this.rendered.push([type, model]);
            return Promise.resolve();
          }
        })
    };
    this.actions = new RunActions({
      trans,
      source: this.source,
      model: this.model,
      notebooks: notebooks,
      message: this.message,
      renderers: hasRenderers ? (renderers as never) : null
    });
    this.section = new JournalSection({
      trans,
      locale: 'en',
      model: this.model,
      actions: this.actions,
      notebooks: Object.defineProperty({ find: notebooks.find }, 'active', {
        get: () => this.active
      }) as never,
      cells: this.cells as never,
      monitor: { model: { gpus: () => [{ gpu: { uuid: 'GPU-0', memory_total: 100 * GIB } }] } } as never,
      settings: this.settings as never,
      panelState: this.panelState
    });
    mount(document.createElement('main'));
    Widget.attach(this.panel, document.body);
    this.panel.addWidget(this.section);
  }

  /** Show the runs of the journal. */
  async show(...runs: JournalRun[]): Promise<void> {
    this.source.list = runs;
    await this.load();
    this.render();
  }

  render(): void {
    this.section.processMessage(Widget.Msg.UpdateRequest);
  }

  get rows(): string[] {
    return texts(this.section.node, '.jp-gpuwidget-journal-run');
  }

  /** Click the button with this text, and let the page work. */
  async click(text: string): Promise<void> {
    const buttons = [...this.section.node.querySelectorAll('button')];
    const button = buttons.find(each => each.textContent === text || each.title === text);
    assert.ok(button, text);
    button.click();
    await updated();
    this.render();
  }
}

test('a row says how and when a run ended, with its figures and what the user can do', async () => {
  const shown = new Shown();
  await shown.show(journalRun());
  const day =
    new Date(1000 * ENDED).toDateString() === new Date().toDateString() ? 'at 03:12' : 'on Nov 30, 03:12';
  assert.deepEqual(shown.rows, [
    `[7] finished ${day} | 1 h 00 min · peak 61 GiB | Put the card under its cell | Show card`
  ]);
  assert.equal(shown.section.isHidden, false);
});

test('a row names the run by its label, or by the first line of its cell', () => {
  assert.deepEqual(
    [
      runTitle(journalRun({ label: 'train' }), 'x = 1'),
      runTitle(journalRun(), 'x = 1'),
      runTitle(journalRun({ execution_count: null }), 'model.fit('.padEnd(60, 'x')),
      runTitle(journalRun({ execution_count: null, label: '\u202e' }), '')
    ],
    ['[7] train', '[7] x = 1', `model.fit(${'x'.repeat(29)}…`, '']
  );
});

test('each outcome has its sentence, with the day if it was another one', () => {
  const said = (changes: Partial<JournalRun>, now = NOON): string =>
    outcomeText(trans, journalRun(changes), 'train.ipynb [7]', now, 'en');
  assert.deepEqual(
    [
      said({}),
      said({ status: 'error' }),
      said({ status: 'interrupted' }),
      said({ state: 'died', status: 'died' }),
      said({}, NOON + 86_400),
      said({ status: 'error' }, NOON + 86_400),
      said({ status: 'interrupted' }, NOON + 86_400),
      said({ state: 'died', status: null }, NOON + 86_400)
    ],
    [
      'train.ipynb [7] finished at 03:12',
      'train.ipynb [7] failed at 03:12',
      'train.ipynb [7] was interrupted at 03:12',
      'train.ipynb [7] died at 03:12',
      'train.ipynb [7] finished on Nov 30, 03:12',
      'train.ipynb [7] failed on Nov 30, 03:12',
      'train.ipynb [7] was interrupted on Nov 30, 03:12',
      'train.ipynb [7] died on Nov 30, 03:12'
    ]
  );
});

test('the peak says what it measures, and is left out if it is unknown', () => {
  const said = (changes: Partial<JournalRun>): string => figuresText(trans, journalRun(changes));
  assert.deepEqual(
    [
      said({ seconds: 15_000 }),
      said({ peak_kind: 'process' }),
      said({ peak_kind: 'device' }),
      said({ peak: null, peak_kind: null })
    ],
    [
      '4 h 10 min · peak 61 GiB',
      '1 h 00 min · sampled peak 61 GiB',
      '1 h 00 min · sampled peak of the whole GPU 61 GiB',
      '1 h 00 min'
    ]
  );
});

test('a run that died has its reason', async () => {
  const likely = { ...DIED, death: { ...DEATH, certainty: 'likely' as const } };
  assert.deepEqual([journalRun(), DIED, likely].map(causeText), [
    '',
    'Killed for lack of memory.',
    'Killed for lack of memory.'
  ]);
  const shown = new Shown();
  await shown.show(likely);
  assert.equal(textOf(find(shown.section.node, '.jp-gpuwidget-journal-cause')), 'Killed for lack of memory.');
  assert.equal(textOf(find(shown.section.node, '.jp-gpuwidget-cells-mark')), '✕');
});

test('the button puts the card under its cell, the row goes, and the cell is selected', async () => {
  const shown = new Shown();
  await shown.show(journalRun());
  await shown.click('Put the card under its cell');
  assert.deepEqual([shown.notebook.cell7.outputs.length, shown.notebook.revealed], [1, ['cell-7']]);
  assert.equal(shown.message.text, '');
});

test('the button is disabled while the card is being put there', async () => {
  const shown = new Shown();
  await shown.show(journalRun());
  shown.source.delay = new Promise(() => undefined);
  await shown.click('Put the card under its cell');
  const button = find<HTMLButtonElement>(shown.section.node, '.jp-gpuwidget-journal-buttons > :first-child');
  assert.equal(button.disabled, true);
});

test('if the cell is running, the panel says so and nothing is added', async () => {
  const shown = new Shown();
  await shown.show(journalRun());
  shown.notebook.state = { isRunning: true, executionCount: null, started: null };
  await shown.click('Put the card under its cell');
  assert.deepEqual(
    [shown.message.text, shown.message.kind, shown.notebook.cell7.outputs.length],
    ['The cell is running or waiting. Put the card under it when it has ended.', 'error', 0]
  );
});

test('if the server does not answer, the panel says so', async () => {
  const shown = new Shown();
  await shown.show(journalRun());
  shown.source.failure = 'unreachable';
  await shown.click('Put the card under its cell');
  assert.equal(shown.message.text, 'The card could not be loaded: The server does not answer.');
  await shown.click('Show card');
  assert.equal(shown.message.text, 'The card could not be loaded: The server does not answer.');
  shown.source.failure = null;
  shown.source.data = null;
  await shown.click('Show card');
  assert.equal(shown.message.text, 'The server does not have the card yet. Try again in a minute.');
});

test('before the card goes under an edited cell, a dialog asks; Cancel leaves the cell as it is', async () => {
  const shown = new Shown();
  shown.notebook.cells = new FakeCells([
    { ...shown.notebook.cell7, sharedModel: { getSource: () => 'x = 2' } }
  ]);
  await shown.show(journalRun());
  dialogs.shown.length = 0;
  dialogs.accept = false;
  await shown.click('Put the card under its cell');
  dialogs.accept = true;
  assert.deepEqual(
    dialogs.shown.map(({ title, body, buttons }) => [title, body, buttons.map(({ label }) => label)]),
    [
      [
        'Put the card of [7] under its cell?',
        'The cell’s code has changed since this run, so the card would be below other code.',
        ['Cancel', 'Put Card']
      ]
    ]
  );
  assert.equal(shown.notebook.cell7.outputs.length, 0);
});

test('a run whose cell was deleted can only be shown', async () => {
  const shown = new Shown();
  shown.notebook.cells = new FakeCells([codeCell('cell-8')]);
  await shown.show(journalRun({ label: 'train' }));
  assert.match(
    shown.rows[0] ?? '',
    /Its cell was deleted, so there is no place for its card\. \| Show card$/
  );
  assert.equal(find<HTMLButtonElement>(shown.section.node, '.jp-gpuwidget-journal-name').disabled, true);
  dialogs.shown.length = 0;
  await shown.click('Show card');
  assert.equal(dialogs.shown[0]?.title, 'train.ipynb [7] train');
  assert.deepEqual(shown.rendered, [['text/html', { data: { 'text/html': '<b>card</b>' }, trusted: true }]]);
});

test('a card that finds its cell deleted by then is shown instead', async () => {
  const shown = new Shown();
  await shown.show(journalRun());
  shown.notebook.cells = new FakeCells([]);
  dialogs.shown.length = 0;
  await shown.click('Put the card under its cell');
  await settled();
  assert.equal(shown.message.text, 'The cell of this run was deleted, so there is no place for its card.');
  assert.equal(dialogs.shown.length, 1);
});

test('without renderers, a card is shown as text', async () => {
  const shown = new Shown(false);
  await shown.show(journalRun());
  dialogs.shown.length = 0;
  await shown.click('Show card');
  assert.equal((dialogs.shown[0]?.body as Widget).node.textContent, 'card');
});

test('a dismissed row goes, and a click on its name goes to the cell', async () => {
  const shown = new Shown();
  await shown.show(journalRun());
  find(shown.section.node, '.jp-gpuwidget-journal-name').click();
  assert.deepEqual(shown.notebook.revealed, ['cell-7']);
  await shown.click('Don’t offer this card any more');
  assert.deepEqual([shown.rows, shown.section.isHidden], [[], true]);
});

test('the section is hidden with the list of cells, without a notebook, and if there is nothing to show', async () => {
  const shown = new Shown();
  await shown.show(journalRun());
  const hidden: boolean[] = [];
  const add = (): void => {
    shown.render();
    hidden.push(shown.section.isHidden);
  };
  shown.panelState.setExpanded('cells', false);
  add();
  shown.panelState.setExpanded('cells', true);
  add();
  shown.settings.current.show.cells = false;
  add();
  shown.settings.current.show.cells = true;
  shown.active = null;
  add();
  shown.active = shown.notebook;
  await shown.show();
  add();
  assert.deepEqual(hidden, [true, false, true, true, true]);
});

test('a problem of the journal is a sentence in the section', async () => {
  const shown = new Shown();
  shown.source.problem = 'The journal’s folder can’t be read.';
  await shown.show();
  assert.equal(textOf(shown.section.node), 'The journal’s folder can’t be read.');
});

test('the run that lasts has a chart of each of its GPUs', async () => {
  Object.defineProperty(document, 'visibilityState', { value: 'visible', configurable: true });
  const shown = new Shown();
  shown.notebook.activity = { phase: 'busy' };
  await shown.show(journalRun({ state: 'running', status: null }));
  await shown.clock.pass(10);
  shown.render();
  const { node } = shown.section;
  assert.equal(textOf(node), 'peak 61 GiB | GPU 0 | 97 % · 61 GiB');
  assert.equal(
    find(node, 'svg').getAttribute('aria-label'),
    'GPU 0 since the start of the run: utilization 97 %, memory 61 GiB'
  );
  assert.deepEqual(
    [...node.querySelectorAll('path')].map(each => each.getAttribute('d')),
    ['M0.0 90.0M100.0 3.0', 'M0.0 99.0L50.0 99.0L100.0 39.0']
  );
  shown.change('idle');
  shown.render();
  assert.equal(shown.section.isHidden, true);
});

test('a curve is interrupted where nothing is known, and never leaves the chart', () => {
  assert.equal(curve([0, 1, 2, 4], [0, 50, null, 200], 100), 'M0.0 100.0L25.0 50.0M100.0 0.0');
  assert.equal(curve([], [], 1), '');
  assert.equal(curve([0], [1], 1), 'M0.0 0.0');
});

/** Return the notifications about runs, and the names of the actions that their buttons have called. */
function announced(
  runs: readonly JournalRun[],
  listed = false
): { shown: typeof notifications; called: string[] } {
  notifications.length = 0;
  const called: string[] = [];
  const action = (name: string) => (run: JournalRun) => {
    called.push(`${name} ${run.id}`);
    return Promise.resolve();
  };
  const actions = { show: action('show'), put: action('put'), showCard: action('card') };
  const news = runs.map(run => ({ run, name: run.name ?? '' }));
  const bundle: TranslationBundle = trans;
  announce({ trans: bundle, locale: 'en', actions, notify, isListed: () => listed }, news, NOON);
  return { shown: [...notifications], called };
}

test('a notification names the notebook, the cell, the end, the time and the peak', () => {
  const { shown, called } = announced([journalRun({ seconds: 15_000, started: ENDED - 15_000 })]);
  assert.deepEqual(
    shown.map(({ message, type, options }) => [message, type, options.autoClose]),
    [['train.ipynb [7] finished at 03:12 · 4 h 10 min · peak 61 GiB', 'success', false]]
  );
  const actions = shown[0]?.options.actions ?? [];
  actions.forEach(({ callback }) => {
    callback();
  });
  assert.deepEqual(
    [actions.map(({ label }) => label), called],
    [
      ['Show', 'Put the card under its cell'],
      ['show run-7', 'put run-7']
    ]
  );
});

test('a notification stays, unless it would cover the row of its run for long', () => {
  const { shown } = announced([journalRun()], true);
  assert.equal(shown[0]?.options.autoClose, 15_000);
});

test('notifications of failed, interrupted and died runs differ; the cause is before the figures', () => {
  const { shown } = announced([
    journalRun({ status: 'error' }),
    journalRun({ status: 'interrupted', execution_count: null }),
    DIED
  ]);
  assert.deepEqual(
    shown.map(({ message, type }) => [message, type]),
    [
      ['train.ipynb [7] failed at 03:12 · 1 h 00 min · peak 61 GiB', 'error'],
      ['train.ipynb was interrupted at 03:12 · 1 h 00 min · peak 61 GiB', 'info'],
      ['train.ipynb [7] died at 03:12 · Killed for lack of memory. · 1 h 00 min · peak 61 GiB', 'error']
    ]
  );
});

test('at most three runs have notifications; one more counts the others', () => {
  const runs = [1, 2, 3, 4, 5].map(count => journalRun({ id: String(count), execution_count: count }));
  assert.deepEqual(
    [announced(runs), announced(runs.slice(0, 4)), announced(runs.slice(0, 3))].map(({ shown }) => [
      shown.length,
      shown[3]?.message
    ]),
    [
      [4, '2 more watched runs have ended.'],
      [4, '1 more watched run has ended.'],
      [3, undefined]
    ]
  );
});

test('a long reason is in the dialog of a third button', () => {
  const text = 'Killed. '.repeat(40).trim();
  const { shown } = announced([{ ...DIED, death: { ...DEATH, text } }]);
  assert.deepEqual(
    shown[0]?.options.actions.map(({ label }) => label),
    ['Show', 'Put the card under its cell', 'Show All']
  );
});

test('a notebook that this server does not show has only its card', () => {
  const { shown } = announced([journalRun({ path: null })]);
  assert.deepEqual(
    shown[0]?.options.actions.map(({ label }) => label),
    ['Show card']
  );
});

test('Show and Put open a closed notebook', async () => {
  const shown = new Shown();
  const closed = Object.assign(new FakeJournalNotebook(), { path: 'b.ipynb' });
  const run = journalRun({ path: 'b.ipynb', kernel: null });
  shown.source.list = [run];
  shown.openResult = () => closed;
  await shown.actions.show(run);
  await shown.actions.put(run);
  assert.deepEqual(
    [shown.opened, closed.revealed, closed.cell7.outputs.length],
    [['b.ipynb', 'b.ipynb'], ['cell-7', 'cell-7'], 1]
  );
});

test('a notebook that opens in another page, or not at all, is no error of this page', async () => {
  const shown = new Shown();
  const run = journalRun({ path: 'b.ipynb' });
  await shown.actions.put(run);
  assert.deepEqual([shown.opened, shown.message.text], [['b.ipynb'], '']);
  shown.openResult = () => {
    throw new Error('Not found');
  };
  await shown.actions.show(run);
  assert.equal(shown.message.text, 'train.ipynb could not be opened: Not found.');
  await shown.actions.show(journalRun({ path: null }));
  assert.equal(shown.message.text, 'The notebook is not in a folder that this server shows.');
});
