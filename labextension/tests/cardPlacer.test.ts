import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { CardPlacer, type Doubt } from '../src/model/cells/cardPlacer';
import { REPORT_MIME } from '../src/model/cells/report';
import { settled } from './fakes';
import { codeCell, FakeCells, FakeOutput, report } from './fakes_cells';
import { cardOf, FakeJournalPage, journalRun } from './fakes_journal';

/** A page that puts the card of a run under cell 7. */
class Placing extends FakeJournalPage {
  readonly asked: Doubt[] = [];
  answer = true;
  readonly run = journalRun();
  readonly placer = new CardPlacer(this.source, this.model, (_, doubt) => {
    this.asked.push(doubt);
    return Promise.resolve(this.answer);
  });

  constructor() {
    super();
    this.source.list = [this.run];
    const { started, execution_count: count, seconds } = this.run;
    const cell = { started, duration_s: seconds };
    this.source.data = { 'text/plain': 'card', [REPORT_MIME]: report(count, {}, cell) };
  }

  async place(): Promise<string> {
    return (await this.placer.place(this.run, this.notebook)).kind;
  }

  get outputs(): number {
    return this.notebook.cell7.outputs.length;
  }
}

test('the card becomes one more output of its cell', async () => {
  const page = new Placing();
  page.notebook.cell7.outputs.add(new FakeOutput('stream'));
  assert.equal(await page.place(), 'placed');
  assert.deepEqual([page.outputs, page.asked], [2, []]);
});

test('a second click adds no second card, nor does a click while the first one lasts', async () => {
  const page = new Placing();
  const changes: boolean[] = [];
  const id = JSON.stringify([Math.round(1000 * page.run.started), 7]);
  page.placer.changed.connect(() => changes.push(page.placer.isPending(id)));
  assert.deepEqual(await Promise.all([page.place(), page.place()]), ['placed', 'pending']);
  assert.equal(await page.place(), 'present');
  assert.deepEqual([page.outputs, changes], [1, [true, false, true, false]]);
});

test('a card that arrives while it is being loaded is not added again', async () => {
  const page = new Placing();
  let deliver = (): void => undefined;
  page.source.delay = new Promise(resolve => {
    deliver = resolve;
  });
  const placed = page.place();
  await settled();
  page.notebook.cell7.outputs.add(cardOf(page.run));
  deliver();
  assert.deepEqual([await placed, page.outputs], ['present', 1]);
});

test('a card in another cell counts, such as that of a cell that was copied', async () => {
  const page = new Placing();
  page.notebook.cells = new FakeCells([page.notebook.cell7, codeCell('copy', cardOf(page.run))]);
  assert.deepEqual([await page.place(), page.outputs], ['present', 0]);
});

test('nothing is put under a cell that is running, by this page or by the journal', async () => {
  const page = new Placing();
  page.notebook.state = { isRunning: true, executionCount: null, started: null };
  assert.deepEqual([await page.place(), page.source.askedCards], ['running', []]);
  page.notebook.state = { isRunning: false, executionCount: 7, started: null };
  page.notebook.activity = { phase: 'busy' };
  page.source.list = [journalRun({ state: 'running', id: 'again', execution_count: 8 })];
  await page.load();
  assert.deepEqual([await page.place(), page.outputs], ['running', 0]);
});

test('a cell that the user starts or deletes meanwhile gets no card', async () => {
  for (const [happens, expected] of [
    [
      (page: Placing) => {
        page.notebook.state = { isRunning: true, executionCount: null, started: null };
      },
      'running'
    ],
    [
      (page: Placing) => {
        page.notebook.cells = new FakeCells([]);
      },
      'no-cell'
    ]
  ] as const) {
    const page = new Placing();
    let deliver = (): void => undefined;
    page.source.delay = new Promise(resolve => {
      deliver = resolve;
    });
    const placed = page.place();
    await settled();
    happens(page);
    deliver();
    assert.deepEqual([await placed, page.outputs], [expected, 0]);
  }
});

test('a deleted cell, and one that is no longer code, get no card', async () => {
  const page = new Placing();
  page.notebook.cells = new FakeCells([codeCell('cell-8')]);
  assert.equal(await page.place(), 'no-cell');
  const { id, sharedModel, trusted } = page.notebook.cell7;
  page.notebook.cells = new FakeCells([{ id, sharedModel, trusted }]);
  assert.deepEqual([await page.place(), page.source.askedCards], ['no-cell', []]);
});

test('the user is asked before the card of other code is put under an edited cell', async () => {
  const page = new Placing();
  page.notebook.cells = new FakeCells([
    { ...page.notebook.cell7, sharedModel: { getSource: () => 'x = 2' } }
  ]);
  page.answer = false;
  assert.deepEqual([await page.place(), page.asked, page.outputs], ['canceled', ['edited'], 0]);
  page.answer = true;
  assert.deepEqual([await page.place(), page.outputs], ['placed', 1]);
});

test('the user is asked if the cell was run again, as its count, its outputs or this page show', async () => {
  const later = (page: Placing): FakeOutput =>
    cardOf(journalRun({ started: page.run.started + 9000, execution_count: 8 }));
  for (const [happened, doubts] of [
    [{ executionCount: 8 }, ['run-again']],
    [{ started: journalRun().started + 9000 }, ['run-again']],
    [{ executionCount: 1, report: true }, ['run-again']],
    [{ executionCount: 3, started: journalRun().started - 1 }, []],
    [{ executionCount: null }, []]
  ] as const) {
    const page = new Placing();
    page.notebook.state = { ...page.notebook.state, ...happened };
    if ('report' in happened) {
      page.notebook.cell7.outputs.add(later(page));
    }
    page.answer = false;
    assert.equal(await page.place(), doubts.length > 0 ? 'canceled' : 'placed');
    assert.deepEqual(page.asked, doubts);
  }
});

test('both doubts are one question', async () => {
  const page = new Placing();
  page.notebook.state = { isRunning: false, executionCount: 9, started: null };
  page.notebook.cells = new FakeCells([{ ...page.notebook.cell7, sharedModel: { getSource: () => '' } }]);
  await page.place();
  assert.deepEqual(page.asked, ['edited-and-run-again']);
});

test('if the server has no card, nothing is added, and the next click tries again', async () => {
  const page = new Placing();
  page.source.failure = 'unreachable';
  assert.deepEqual(await page.placer.place(page.run, page.notebook), {
    kind: 'failed',
    reason: 'The server does not answer.'
  });
  page.source.failure = null;
  const { data } = page.source;
  page.source.data = null;
  assert.deepEqual(await page.placer.place(page.run, page.notebook), { kind: 'failed', reason: null });
  page.source.data = data;
  assert.equal(await page.place(), 'placed');
});
