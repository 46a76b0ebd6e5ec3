import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import type { FinishedCell } from '../src/model/cells/cellRuns';
import { LongCellNotifier, notificationTexts, type BrowserNotifications } from '../src/model/cells/longCells';
import { GIB, settled, trans } from './fakes';

const REPORT = {
  schema: 1,
  cell: { execution_count: 12 },
  gpus: [{ uuid: 'GPU-0', torch: { allocated: { peak: 15.6 * GIB }, reserved: { peak: 16 * GIB } } }]
};
const WATCHED = { output_type: 'display_data', data: { 'application/vnd.gpuwidget.report+json': REPORT } };

const UNMEASURED = { ...REPORT, gpus: [], source: { reason_id: { id: 'run-not-measured', params: {} } } };

function finished(
  changes: Partial<FinishedCell> = {},
  outputs: readonly unknown[] = [WATCHED]
): FinishedCell {
  return {
    notebook: 'train.ipynb',
    executionCount: 12,
    started: 1000,
    seconds: 200,
    died: false,
    outputs: () => outputs,
    reveal: () => undefined,
    ...changes
  };
}

/** A browser whose user answers the question for the permission with `answer`. */
class FakeBrowser implements BrowserNotifications {
  isPageHidden = true;
  asked = 0;
  readonly shown: string[][] = [];

  constructor(
    public permission: NotificationPermission | null,
    private readonly answer: NotificationPermission = 'granted'
  ) {}

  requestPermission(): Promise<NotificationPermission> {
    this.asked++;
    this.permission = this.answer;
    return Promise.resolve(this.answer);
  }

  show(title: string, body: string, tag: string): void {
    this.shown.push([title, body, tag]);
  }
}

function notifier(browser: FakeBrowser, notify = true): { made: LongCellNotifier; warnings: string[] } {
  const warnings: string[] = [];
  const made = new LongCellNotifier(trans, browser, { notify, seconds: 60 }, sentence => {
    warnings.push(sentence);
  });
  return { made, warnings };
}

test('a notification has the time and the peak memory of the cell', () => {
  const browser = new FakeBrowser('granted');
  notifier(browser).made.onFinished(finished());
  assert.deepEqual(browser.shown, [
    ['train.ipynb: cell [12] finished', '3 min 20 s · peak GPU memory 15.6 GiB', 'gpuwidget train.ipynb 1000']
  ]);
});

test('a peak that gpuwidget sampled is named as such', () => {
  const gpu = { uuid: 'GPU-0', torch: null };
  const span = { start: 0, end: 0, peak: 15.6 * GIB };
  const bodies = [{ process_memory: span }, { device_memory: span }].map(memory => {
    const report = { ...REPORT, gpus: [{ ...gpu, ...memory }] };
    const output = { ...WATCHED, data: { 'application/vnd.gpuwidget.report+json': report } };
    return notificationTexts(trans, finished({}, [output]))[1];
  });
  assert.deepEqual(bodies, [
    '3 min 20 s · sampled peak of the GPU memory 15.6 GiB',
    '3 min 20 s · sampled peak of the whole GPU’s memory 15.6 GiB'
  ]);
});

test('no notification for a short cell, in a visible tab, without the permission or if it is turned off', () => {
  const visible = new FakeBrowser('granted');
  visible.isPageHidden = false;
  const browsers = [visible, new FakeBrowser('denied'), new FakeBrowser(null), new FakeBrowser('granted')];
  for (const browser of browsers) {
    notifier(browser, browser !== browsers[3]).made.onFinished(finished());
  }
  const browser = new FakeBrowser('granted');
  notifier(browser).made.onFinished(finished({ seconds: 59 }));
  assert.deepEqual(
    [...browsers, browser].map(({ shown }) => shown.length),
    [0, 0, 0, 0, 0]
  );
});

test('failed cells, dead kernels and cells without a report are named as such', () => {
  const error = { output_type: 'error' };
  const texts = [
    finished({}, [error]),
    finished({ died: true }),
    finished({}, [
      { ...WATCHED, data: { 'application/vnd.gpuwidget.report+json': { ...REPORT, gpus: [] } } }
    ]),
    finished({}, [{ ...WATCHED, data: { 'application/vnd.gpuwidget.report+json': UNMEASURED } }])
  ].map(cell => notificationTexts(trans, cell));
  assert.deepEqual(texts, [
    ['train.ipynb: cell [12] failed', '3 min 20 s · peak GPU memory n/a (the cell was not watched)'],
    ['train.ipynb: the kernel died in cell [12]', '3 min 20 s · peak GPU memory 15.6 GiB'],
    ['train.ipynb: cell [12] finished', '3 min 20 s · no GPU used'],
    ['train.ipynb: cell [12] finished', '3 min 20 s · peak GPU memory n/a']
  ]);
});

test('the permission is asked once, when the user turns notifications on', async () => {
  const browser = new FakeBrowser('default');
  const { made, warnings } = notifier(browser, false);
  made.configure({ notify: false, seconds: 30 });
  made.configure({ notify: true, seconds: 30 });
  made.configure({ notify: true, seconds: 20 });
  await settled();
  assert.deepEqual([browser.asked, warnings], [1, []]);
});

test('a browser that does not allow notifications causes a warning', async () => {
  for (const [permission, answer, warning] of [
    ['default', 'denied', /site settings/],
    ['default', 'default', /not allow notifications from this site yet/],
    [null, 'denied', /HTTPS/]
  ] as const) {
    const { made, warnings } = notifier(new FakeBrowser(permission, answer), false);
    made.configure({ notify: true, seconds: 60 });
    await settled();
    assert.equal(warnings.length, 1);
    assert.match(warnings[0] ?? '', warning);
  }
});
