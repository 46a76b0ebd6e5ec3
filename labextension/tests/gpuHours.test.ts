import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { AlertTracker } from '../src/model/alerts/alertTracker';
import { serverAlerts, ServerNotifications } from '../src/model/alerts/serverAlerts';
import { gpuHoursText, jobText } from '../src/model/memory/gpuHours';
import { DEFAULTS } from '../src/model/settings/settings';
import type { GpuHours } from '../src/wire/wire';
import { GIB, serverKernel, trans, usage } from './fakes';

const HOURS: GpuHours = {
  held_s: 3.2 * 3600,
  busy_s: 1.1 * 3600,
  memory_byte_s: 40 * GIB * 3600,
  energy_j: 0.6 * 3.6e6,
  shared: false,
  price: null,
  currency: ''
};
/** Return the text with ordinary spaces. */
const spaced = (text: string): string => text.replaceAll('\u00a0', ' ');
const JOB = { id: '1234', gpus: 2, end: 20_000, warning_s: 900 };

test('GPU-hours have two significant digits, and an unknown value is n/a or left out', () => {
  assert.equal(spaced(gpuHoursText(trans, HOURS)), '3.2 GPU-hours held · 1.1 busy · 40 GiB-hours · 0.60 kWh');
  assert.equal(
    spaced(
      gpuHoursText(trans, {
        ...HOURS,
        held_s: 10,
        busy_s: null,
        memory_byte_s: null,
        energy_j: null,
        price: 8,
        currency: 'EUR'
      })
    ),
    '<0.01 GPU-hours held · n/a busy · 8.00 EUR'
  );
});

test('of a notebook that has shared its GPUs, busy time and energy are marked as a part', () => {
  assert.equal(
    spaced(gpuHoursText(trans, { ...HOURS, shared: true })),
    '3.2 GPU-hours held · ≥ 1.1 busy · 40 GiB-hours · ≥ 0.60 kWh'
  );
  assert.equal(
    spaced(gpuHoursText(trans, { ...HOURS, busy_s: 10, energy_j: 0, shared: true })),
    '3.2 GPU-hours held · ≥ 0 busy · 40 GiB-hours · ≥ 0 kWh'
  );
});

test('a line with GPU-hours wraps between two values only', () => {
  assert.deepEqual(gpuHoursText(trans, { ...HOURS, shared: true }).split(' '), [
    '3.2\u00a0GPU-hours\u00a0held',
    '·',
    '≥\u00a01.1\u00a0busy',
    '·',
    '40\u00a0GiB-hours',
    '·',
    '≥\u00a00.60\u00a0kWh'
  ]);
});

test('a Slurm job has the time that is left, and leaves out what is unknown', () => {
  assert.equal(
    jobText(trans, JOB, 20_000 - 3 * 3600 - 12 * 60 - 5),
    'Slurm job 1234 · 2 GPUs · 3 h 12 min left'
  );
  assert.equal(jobText(trans, { ...JOB, gpus: 1 }, 20_000 - 300), 'Slurm job 1234 · 1 GPU · 5 min left');
  assert.equal(jobText(trans, JOB, 20_100), 'Slurm job 1234 · 2 GPUs · 0 s left');
  assert.equal(jobText(trans, { ...JOB, gpus: null, end: null }, 0), 'Slurm job 1234');
});

test('an idle holder and the end of a job are notified once each, also after a reload', () => {
  let saved: string | null = null;
  const store = { load: () => saved, save: (text: string) => (saved = text) };
  const settings = DEFAULTS.alerts;
  const idle = (since: number, complete = true) =>
    usage([serverKernel('a', { idle_holder: { since, memory: 60 * GIB, complete } }), serverKernel('b')], []);
  const texts = (tracker: AlertTracker, message: ReturnType<typeof idle>, now: number): string[] =>
    tracker.takeServerAlerts(serverAlerts(trans, message, now)).map(({ text }) => text);
  const first = new AlertTracker(store, settings);
  const text = 'a.ipynb has been idle for 30 min and holds 60.0 GiB of GPU memory that others cannot use.';
  assert.deepEqual(texts(first, idle(1000), 1000 + 1800), [text]);
  assert.deepEqual(texts(first, idle(1000), 1000 + 2800), []);
  assert.deepEqual(texts(new AlertTracker(store, settings), idle(1000), 5000), []);
  assert.deepEqual(texts(first, usage([serverKernel('a')], []), 6000), []);
  assert.deepEqual(texts(first, idle(1000), 1000 + 1800), [text]);
  assert.deepEqual(
    texts(new AlertTracker({ load: () => null, save: () => undefined }, settings), idle(1000, false), 2800),
    ['a.ipynb has been idle for 30 min and holds at least 60.0 GiB of GPU memory that others cannot use.']
  );
  const job = { ...usage([], []), job: JOB };
  assert.deepEqual(texts(first, job, 20_000 - 901), []);
  assert.deepEqual(texts(first, job, 20_000 - 899), [
    'Slurm ends job 1234 in 14 min, and with it this server and its kernels. Save what you need.'
  ]);
  assert.deepEqual(texts(first, { ...job, job: { ...JOB, end: 21_000 } }, 20_000), []);
  assert.deepEqual(texts(first, job, 20_000), []);
  first.configure({ ...settings, when: 'never' });
  assert.deepEqual(texts(first, idle(1000), 5000), []);
});

test('a notification about an idle holder ends with its cause', () => {
  const log: string[] = [];
  const notifications = new ServerNotifications(
    ({ id, event }) => {
      log.push(`show ${id} ${event}`);
      return `${id} ${event}`;
    },
    notification => log.push(`dismiss ${notification}`)
  );
  const store = { load: () => null, save: () => undefined };
  const tracker = new AlertTracker(store, { ...DEFAULTS.alerts, when: 'always' });
  const idle = (id: string, since: number) =>
    serverKernel(id, { idle_holder: { since, memory: GIB, complete: true } });
  const take = (kernels: ReturnType<typeof serverKernel>[]): void => {
    const alerts = serverAlerts(trans, usage(kernels, []), 9000);
    notifications.update(alerts, tracker.takeServerAlerts(alerts));
  };
  take([idle('a', 1000), idle('b', 2000)]);
  take([idle('a', 1000), idle('b', 2000)]);
  take([serverKernel('a'), idle('b', 2000)]); // The first notebook works again.
  take([serverKernel('a'), idle('b', 7000)]); // The second one has worked meanwhile.
  take([]); // Both kernels have ended.
  assert.deepEqual(log, [
    'show a 1000',
    'show b 2000',
    'dismiss a 1000',
    'dismiss b 2000',
    'show b 7000',
    'dismiss b 7000'
  ]);
});
