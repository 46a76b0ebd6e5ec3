import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { alertText, type AlertSettings, type Finding } from '../src/model/alerts/alertRules';
import { AlertTracker, type AlertStore } from '../src/model/alerts/alertTracker';
import { xidAlertText } from '../src/model/alerts/xidText';
import type { Reading } from '../src/wire/wire';
import { GIB, gpu, reading, sample, trans } from './fakes';

const QUIET: AlertSettings = {
  when: 'panel',
  lost: true,
  errors: true,
  throttle: false,
  memory: false,
  memoryPercent: 90,
  temperature: false,
  temperatureCelsius: 85
};

class FakeStore implements AlertStore {
  text: string | null = null;

  load(): string | null {
    return this.text;
  }

  save(text: string): void {
    this.text = text;
  }
}

/** A page on which time passes second by second. A reload keeps only the store. */
class Page {
  readonly store = new FakeStore();
  private tracker: AlertTracker;
  time = 10_000;
  viewOpen = true;

  constructor(private settings: AlertSettings) {
    this.tracker = new AlertTracker(this.store, settings);
  }

  reload(): void {
    this.tracker = new AlertTracker(this.store, this.settings);
  }

  configure(changes: Partial<AlertSettings>): void {
    this.settings = { ...this.settings, ...changes };
    this.tracker.configure(this.settings);
  }

  /**
   * Return the texts, up to the first colon, of the alerts raised while the GPUs have these readings for
   * `seconds`.
   */
  pass(seconds: number, ...readings: Partial<Reading>[]): string[] {
    const texts: string[] = [];
    for (let second = 0; second < seconds; second++) {
      this.time++;
      const now = sample(
        this.time,
        readings.map((changes, index) => reading(index, { answered: this.time, ...changes }))
      );
      texts.push(
        ...this.tracker.take(now, 1, this.viewOpen).map(alert => alertText(trans, alert, this.time))
      );
    }
    return texts.map(text => text.split(':')[0] ?? '');
  }
}

test('a lost GPU alerts once, also across a reload, and again when it is lost again', () => {
  const page = new Page(QUIET);
  assert.deepEqual(page.pass(5, {}), []);
  assert.equal(page.pass(5, { lost_since: page.time }).length, 1);
  const since = page.time - 5;
  page.reload();
  assert.deepEqual(page.pass(5, { lost_since: since }), []);
  assert.deepEqual(page.pass(5, {}), []);
  assert.equal(page.pass(5, { lost_since: page.time }).length, 1);
});

test('GPUs that are lost together are one notification', () => {
  const alerts = new Page(QUIET).pass(1, { lost_since: 9 }, {}, { lost_since: 9 });
  assert.equal(alerts.length, 1);
  assert.match(alerts[0] ?? '', /^GPUs 0, 2 lost since /);
});

test('a MIG slice that is lost with its parent raises no separate alert', () => {
  const now = sample(1, [reading(0, { lost_since: 1 }), reading(1, { lost_since: 1 })]);
  const gpus = [gpu(0), gpu(1, { mig_parent: 'GPU-0', mig_index: 0 })];
  const [alert] = new AlertTracker(new FakeStore(), QUIET).take({ ...now, gpus }, 1, true);
  assert.deepEqual(
    alert?.findings.map(finding => finding.gpu.uuid),
    ['GPU-0']
  );
});

test('an exceeded limit alerts after three seconds, and again only after a minute clearly below it', () => {
  const page = new Page({ ...QUIET, memory: true });
  const [full, nearly, empty] = [
    { memory_used: 130 * GIB },
    { memory_used: 122 * GIB },
    { memory_used: GIB }
  ];
  assert.deepEqual(page.pass(3, full), []);
  assert.deepEqual(page.pass(100, full), ['GPU 0']);
  page.pass(300, nearly);
  assert.deepEqual(page.pass(10, full), []);
  page.pass(30, empty);
  assert.deepEqual(page.pass(10, full), []);
  page.pass(62, empty);
  assert.deepEqual(page.pass(10, full), ['GPU 0']);
});

test('short peaks raise no alert, and unknown values do not end a condition', () => {
  const page = new Page({ ...QUIET, temperature: true });
  for (let round = 0; round < 20; round++) {
    assert.deepEqual([...page.pass(2, { temperature_c: 99 }), ...page.pass(1, { temperature_c: 84 })], []);
  }
  assert.deepEqual(page.pass(5, { temperature_c: 99 }), ['GPU 0']);
  page.pass(300, { temperature_c: null });
  assert.deepEqual(page.pass(5, { temperature_c: 99 }), []);
});

test('a condition does not last across a gap between samples', () => {
  const page = new Page({ ...QUIET, temperature: true });
  assert.deepEqual(page.pass(1, { temperature_c: 99 }), []);
  page.time += 3600;
  assert.deepEqual(page.pass(3, { temperature_c: 99 }), []);
  assert.deepEqual(page.pass(1, { temperature_c: 99 }), ['GPU 0']);
  page.pass(1, { temperature_c: 40 });
  page.time += 3600;
  page.pass(1, { temperature_c: 40 });
  assert.deepEqual(page.pass(10, { temperature_c: 99 }), []);
});

test('throttling by heat or a power brake alerts, throttling by the power limit does not', () => {
  const page = new Page({ ...QUIET, throttle: true });
  assert.deepEqual(page.pass(60, { throttle: ['power cap'] }), []);
  assert.deepEqual(page.pass(60, { throttle: ['power brake', 'power cap'] }), [
    'GPU 0 throttled (power brake).'
  ]);
});

test('alerts that are off are not raised', () => {
  const bad = { lost_since: 1, memory_used: 140 * GIB, temperature_c: 110, throttle: ['too hot'] };
  assert.deepEqual(new Page({ ...QUIET, lost: false }).pass(60, bad), []);
  const all = { ...QUIET, throttle: true, memory: true, temperature: true };
  assert.deepEqual(new Page({ ...all, when: 'never' }).pass(60, bad), []);
});

test('the user who wants alerts only while a view of the GPUs is open gets none while all are closed', () => {
  const problems = { lost_since: 9, memory_used: 140 * GIB, ecc_uncorrected: 2 };
  const all = ['GPU 0 lost since', 'GPU 0', 'GPU 0'];
  const texts = (page: Page): string[] =>
    page.pass(10, problems).map(text => text.replace(/lost since.*/, 'lost since'));
  const page = new Page({ ...QUIET, memory: true });
  page.pass(1, { ecc_uncorrected: 1 });
  page.viewOpen = false;
  assert.deepEqual(texts(page), []);
  page.viewOpen = true; // Problems that still exist alert when a view is opened.
  assert.deepEqual(texts(page), all);
  const always = new Page({ ...QUIET, when: 'always', memory: true });
  always.viewOpen = false;
  always.pass(1, { ecc_uncorrected: 1 });
  assert.deepEqual(texts(always), all);
});

test('new errors alert, existing ones do not', () => {
  const page = new Page(QUIET);
  assert.deepEqual(page.pass(3, { ecc_uncorrected: 7 }), []);
  assert.deepEqual(page.pass(3, { ecc_uncorrected: null }), []);
  assert.deepEqual(page.pass(3, { ecc_uncorrected: 9 }), ['GPU 0']);
  page.reload();
  assert.deepEqual(page.pass(3, { ecc_uncorrected: 9 }), []);
  assert.deepEqual(page.pass(3, { ecc_uncorrected: 0 }), []);
  assert.deepEqual(page.pass(3, { ecc_uncorrected: 1 }), ['GPU 0']);
});

test('an XID caused by a program raises no alert', () => {
  const page = new Page(QUIET);
  assert.deepEqual(page.pass(3, { xid: 31, xid_time: page.time }), []);
});

test('a recent XID alerts once, an old one does not', () => {
  const page = new Page(QUIET);
  assert.deepEqual(page.pass(3, { xid: 79, xid_time: page.time - 5 }), ['GPU 0']);
  assert.deepEqual(page.pass(3, { xid: 79, xid_time: page.time - 8 }), []);
  assert.deepEqual(page.pass(3, { xid: 48, xid_time: page.time }), ['GPU 0']);
  const later = new Page(QUIET);
  assert.deepEqual(later.pass(3, { xid: 79, xid_time: later.time - 3600 }), []);
});

test('an XID that needs no action raises no alert', () => {
  const page = new Page(QUIET);
  assert.deepEqual(page.pass(3, { xid: 63, xid_time: page.time }), []);
});

test('the alert of an XID has its meaning and what to do', () => {
  const finding = (index: number, value: number): Finding => ({
    kind: 'xid',
    gpu: gpu(index),
    state: 'on',
    value
  });
  assert.equal(
    xidAlertText(trans, { kind: 'xid', findings: [finding(3, 79)] }),
    'GPU 3: XID 79, the GPU fell off the bus. Drain the node: ask its administrator to take the machine out ' +
      'of service, check the GPU and restart the machine.'
  );
  assert.equal(
    xidAlertText(trans, { kind: 'xid', findings: [finding(0, 9999)] }),
    "GPU 0: XID 9999. Look the XID up in NVIDIA's catalog: https://docs.nvidia.com/deploy/xid-errors/."
  );
  assert.equal(
    xidAlertText(trans, { kind: 'xid', findings: [finding(0, 94), finding(1, 54), finding(2, 94)] }),
    'GPUs 0, 2: XID 94, a memory error that affected one program. ' +
      "GPU 1: XID 54, the GPU's power cable isn't connected. " +
      'Drain the node: ask its administrator to take the machine out of service, check the GPU and restart ' +
      'the machine. ' +
      'Restart the program that failed, which in a notebook is the kernel. The GPU needs no reset.'
  );
});

test('a server without error counts raises no alert', () => {
  assert.deepEqual(new Page(QUIET).pass(3, {}), []);
});

test('a recording raises no alert', () => {
  const now = sample(1, [reading(0, { lost_since: 1 })]);
  const recorded = { ...now, origin: { ...now.origin, kind: 'replay' as const, recording: 'Recording' } };
  assert.deepEqual(new AlertTracker(new FakeStore(), QUIET).take(recorded, 1, true), []);
});

test('an unreadable store is ignored', () => {
  const store = new FakeStore();
  store.text = '{';
  const tracker = new AlertTracker(store, QUIET);
  assert.equal(tracker.take(sample(1, [reading(0, { lost_since: 1 })]), 1, true).length, 1);
});

test('a limit that is turned off and on again while it is exceeded alerts again', () => {
  const hot = { temperature_c: 99 };
  const page = new Page({ ...QUIET, temperature: true });
  assert.deepEqual(page.pass(10, hot), ['GPU 0']);
  page.configure({ temperature: false });
  page.configure({ temperature: true });
  assert.deepEqual(page.pass(10, hot), ['GPU 0']);
  page.configure({ when: 'never' });
  page.pass(10, hot);
  page.configure({ when: 'always' });
  assert.deepEqual(page.pass(10, hot), ['GPU 0']);
  page.configure({ memory: true });
  assert.deepEqual(page.pass(10, hot), []);
});

test('a GPU may have the name of a property of all objects', () => {
  const tracker = new AlertTracker(new FakeStore(), QUIET);
  for (const uuid of ['__proto__', 'constructor']) {
    const at = (time: number, errors: number): readonly unknown[] => {
      const { gpus, readings, ...rest } = sample(time, [reading(0, { uuid, ecc_uncorrected: errors })]);
      return tracker.take({ ...rest, gpus: gpus.map(each => ({ ...each, uuid })), readings }, 1, true);
    };
    assert.deepEqual([at(1, 1).length, at(2, 2).length, at(3, 2).length], [0, 1, 0]);
  }
  assert.equal(Object.hasOwn(Object.prototype, 'uncorrected'), false);
});
