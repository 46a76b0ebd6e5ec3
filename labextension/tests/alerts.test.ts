import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { Alerts, type Memory } from '../src/alerts/alerts';
import type { AlertSettings } from '../src/alerts/rules';
import { alertText } from '../src/alerts/words';
import { GIB, gpu, reading, sample, trans } from './fakes';
import type { Reading } from '../src/wire';

const QUIET: AlertSettings = {
  when: 'panel',
  lost: true,
  errors: true,
  throttle: false,
  memory: null,
  temperature: null
};

class Kept implements Memory {
  text: string | null = null;

  recall(): string | null {
    return this.text;
  }

  keep(text: string): void {
    this.text = text;
  }
}

/** A page on which time passes second by second; a reload keeps what it has told. */
class Page {
  readonly kept = new Kept();
  private alerts = new Alerts(this.kept);
  time = 10_000;

  constructor(private readonly settings: AlertSettings) {}

  reload(): void {
    this.alerts = new Alerts(this.kept);
  }

  /** What is told while the GPUs read this for so many seconds. */
  pass(seconds: number, ...readings: Partial<Reading>[]): string[] {
    const told: string[] = [];
    for (let second = 0; second < seconds; second++) {
      this.time++;
      const now = sample(
        this.time,
        readings.map((changes, index) => reading(index, { answered: this.time, ...changes }))
      );
      told.push(...this.alerts.take(now, 1, this.settings).map(alert => alertText(trans, alert, this.time)));
    }
    return told.map(text => text.split(':')[0] ?? '');
  }
}

test('a lost GPU is told once, and not again after a reload; lost anew, it is', () => {
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
  const told = new Page(QUIET).pass(1, { lost_since: 9 }, {}, { lost_since: 9 });
  assert.equal(told.length, 1);
  assert.match(told[0] ?? '', /^GPUs 0, 2 lost since /);
});

test('a slice is lost with its parent, which says it', () => {
  const now = sample(1, [reading(0, { lost_since: 1 }), reading(1, { lost_since: 1 })]);
  const gpus = [gpu(0), gpu(1, { mig_parent: 'GPU-0', mig_index: 0 })];
  const [alert] = new Alerts(new Kept()).take({ ...now, gpus }, 1, QUIET);
  assert.deepEqual(
    alert?.about.map(finding => finding.gpu.uuid),
    ['GPU-0']
  );
});

test('a value over its limit is told once it has lasted, and again only after it was clearly away for a minute', () => {
  const page = new Page({ ...QUIET, memory: 90 });
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

test('a value that is gone at once, or that nobody knows, tells nothing and ends nothing', () => {
  const page = new Page({ ...QUIET, temperature: 85 });
  for (let round = 0; round < 20; round++) {
    assert.deepEqual([...page.pass(2, { temperature_c: 99 }), ...page.pass(1, { temperature_c: 84 })], []);
  }
  assert.deepEqual(page.pass(5, { temperature_c: 99 }), ['GPU 0']);
  page.pass(300, { temperature_c: null });
  assert.deepEqual(page.pass(5, { temperature_c: 99 }), []);
});

test('two samples with an hour between them in which nobody looked are no state that lasts', () => {
  const page = new Page({ ...QUIET, temperature: 85 });
  assert.deepEqual(page.pass(1, { temperature_c: 99 }), []);
  page.time += 3600;
  assert.deepEqual(page.pass(3, { temperature_c: 99 }), []);
  assert.deepEqual(page.pass(1, { temperature_c: 99 }), ['GPU 0']);
  page.pass(1, { temperature_c: 40 });
  page.time += 3600;
  page.pass(1, { temperature_c: 40 });
  assert.deepEqual(page.pass(10, { temperature_c: 99 }), []);
});

test('heat and power brakes are told, a power limit that is reached is not', () => {
  const page = new Page({ ...QUIET, throttle: true });
  assert.deepEqual(page.pass(60, { throttle: ['power cap'] }), []);
  assert.deepEqual(page.pass(60, { throttle: ['power brake', 'power cap'] }), ['GPU 0 is slowed down']);
});

test('what is not switched on is not told, and nothing at all where it is never', () => {
  const bad = { lost_since: 1, memory_used: 140 * GIB, temperature_c: 110, throttle: ['too hot'] };
  assert.deepEqual(new Page({ ...QUIET, lost: false }).pass(60, bad), []);
  const all = { ...QUIET, throttle: true, memory: 90, temperature: 85 };
  assert.deepEqual(new Page({ ...all, when: 'never' }).pass(60, bad), []);
});

test('errors are told as they come, and not those that were there before', () => {
  const page = new Page(QUIET);
  assert.deepEqual(page.pass(3, { ecc_uncorrected: 7 }), []);
  assert.deepEqual(page.pass(3, { ecc_uncorrected: null }), []);
  assert.deepEqual(page.pass(3, { ecc_uncorrected: 9 }), ['GPU 0']);
  page.reload();
  assert.deepEqual(page.pass(3, { ecc_uncorrected: 9 }), []);
  assert.deepEqual(page.pass(3, { ecc_uncorrected: 0 }), []);
  assert.deepEqual(page.pass(3, { ecc_uncorrected: 1 }), ['GPU 0']);
});

test('an XID that a program causes by itself is nobody else’s news', () => {
  const page = new Page(QUIET);
  assert.deepEqual(page.pass(3, { xid: 31, xid_time: page.time }), []);
});

test('an XID of the last minutes is told once, an older one is not', () => {
  const page = new Page(QUIET);
  assert.deepEqual(page.pass(3, { xid: 79, xid_time: page.time - 5 }), ['GPU 0']);
  assert.deepEqual(page.pass(3, { xid: 79, xid_time: page.time - 8 }), []);
  assert.deepEqual(page.pass(3, { xid: 48, xid_time: page.time }), ['GPU 0']);
  const later = new Page(QUIET);
  assert.deepEqual(later.pass(3, { xid: 79, xid_time: later.time - 3600 }), []);
});

test('a server that does not send errors yet is taken for one that knows of none', () => {
  assert.deepEqual(new Page(QUIET).pass(3, {}), []);
});

test('a recording is no news of this machine', () => {
  const now = sample(1, [reading(0, { lost_since: 1 })]);
  const recorded = { ...now, origin: { ...now.origin, kind: 'replay' as const, recording: 'Recording' } };
  assert.deepEqual(new Alerts(new Kept()).take(recorded, 1, QUIET), []);
});

test('what was kept and cannot be read is forgotten', () => {
  const kept = new Kept();
  kept.text = '{';
  assert.equal(new Alerts(kept).take(sample(1, [reading(0, { lost_since: 1 })]), 1, QUIET).length, 1);
});
