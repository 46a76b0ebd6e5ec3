import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { KernelActivity, type ActivityChange, type Phase } from '../src/model/kernel/kernelActivity';
import { KERNEL_REQUEST } from '../src/wire/wire';
import { FakeClock } from './fakes';
import { CELL, FakeConnection, PAGE } from './fakes_notebook';

interface Status {
  readonly state: string;
  readonly parent: object;
  readonly session: string;
}

/** Return a status message about the request with this `id`, an execute request by default. */
function status(state: string, id: string, parent: object = {}, session = 'process 1'): Status {
  return { state, parent: { msg_id: id, msg_type: 'execute_request', session: PAGE, ...parent }, session };
}

/** A kernel that JupyterLab shows as idle, with its changes. */
function made(): {
  connection: FakeConnection;
  activity: KernelActivity;
  changes: string[];
  phases: Phase[];
} {
  const connection = new FakeConnection();
  connection.status = 'idle';
  const activity = new KernelActivity(connection.real, new FakeClock());
  const changes: string[] = [];
  const phases: Phase[] = [];
  activity.changed.connect((_, change: ActivityChange) => {
    if (change.kind === 'phase') {
      phases.push(activity.phase);
    } else {
      const { request } = 'execution' in change ? change.execution : { request: '' };
      const outcome = 'outcome' in change ? change.outcome : '';
      changes.push([change.kind, request, outcome].filter(part => part !== '').join(' '));
    }
  });
  return { connection, activity, changes, phases };
}

/** Return whether a cell is running after these messages; null if the messages do not show it. */
function after(...messages: Status[]): boolean | null {
  const [one, other] = [true, false].map(busyOnServer => {
    const { connection, activity } = made();
    activity.setBusyOnServer(busyOnServer);
    for (const { state, parent, session } of messages) {
      connection.publishUntracked(state, parent, session);
    }
    return activity.phase === 'busy';
  });
  return one === other ? (one ?? null) : null;
}

test('a cell runs from its busy to its idle, whatever the kernel handles meanwhile', () => {
  const chart = { msg_type: 'create_subshell_request' };
  const widget = { msg_type: 'comm_msg', subshell_id: 'widgets' };
  const cell = [status('busy', 'cell')];
  for (const parent of [chart, widget, { msg_type: 'debug_request' }, { msg_type: 'complete_request' }]) {
    cell.push(status('busy', 'other', parent), status('idle', 'other', parent));
    assert.equal(after(...cell), true, parent.msg_type);
  }
  assert.equal(after(...cell, status('idle', 'cell')), false);
});

test('cells of other pages and queued cells run too', () => {
  const other = { session: 'another page' };
  const first = [status('busy', '1', other), status('idle', '1', other)];
  assert.equal(after(...first), false);
  assert.equal(after(...first, status('busy', '2')), true);
});

test('a cell in a subshell and one in the main shell run at the same time', () => {
  const subshell = { subshell_id: 'console' };
  const both = [status('busy', '1', subshell), status('busy', '2')];
  assert.equal(after(...both, status('idle', '2')), true);
  assert.equal(after(...both, status('idle', '1', subshell)), true);
  assert.equal(after(...both, status('idle', '2'), status('idle', '1', subshell)), false);
});

test('it is unknown whether a cell runs that began before this page, until the kernel has handled a request', () => {
  const info = { msg_type: 'kernel_info_request' };
  assert.equal(after(), null);
  // Jupyter Server sends this request on the control channel, on which a kernel replies even while a cell
  // runs. The reply therefore does not show whether a cell runs.
  const nudge = { ...info, session: 'server' };
  assert.equal(after(status('busy', 'nudge', nudge), status('idle', 'nudge', nudge)), null);
  assert.equal(after(status('idle', 'chart', { msg_type: 'create_subshell_request' })), null);
  assert.equal(after(status('idle', 'cell')), false);
  assert.equal(after(status('busy', 'info', info)), false);
});

test('the next request ends a cell whose idle was lost, as with the connection', () => {
  const info = { msg_type: 'kernel_info_request' };
  assert.equal(after(status('busy', '1'), status('busy', 'info', info)), false);
  assert.equal(after(status('busy', '1'), status('busy', '2'), status('idle', '2')), false);
  const { connection, changes } = made();
  connection.begin();
  connection.publish('busy', { ...info, session: PAGE });
  assert.deepEqual(changes, ['started cell', 'ended cell lost']);
});

test('a restarted kernel runs nothing', () => {
  const { connection, activity } = made();
  connection.begin();
  connection.change('restarting');
  connection.change('idle');
  assert.deepEqual([activity.phase, activity.executions], ['idle', []]);
  const started = { state: 'starting', parent: {}, session: 'process 2' };
  assert.equal(after(status('busy', '1'), started), false);
});

test('a kernel that repeats the session of each request does not look restarted', () => {
  const other = { session: 'another page', msg_type: 'comm_info_request' };
  assert.equal(after(status('busy', '1', {}, PAGE), status('idle', '2', other, 'another page')), true);
});

test('a cell has its execution count and its start, and ends with the message about its end', () => {
  const { connection, activity, changes, phases } = made();
  connection.begin(CELL, 7, 1000);
  assert.deepEqual(activity.executions, [
    { request: 'cell', code: '', executionCount: 7, started: 1000, received: 0 }
  ]);
  connection.publish('idle', CELL);
  assert.deepEqual([activity.executions, changes], [[], ['started cell', 'ended cell finished']]);
  assert.deepEqual(phases, ['busy', 'idle']);
});

test('a cell of a process that has died has died with it, but not one that was interrupted by a restart', () => {
  const { connection, changes } = made();
  connection.begin();
  connection.publish('restarting', {}, 'server');
  connection.change('autorestarting');
  connection.publish('idle', {}, 'process 2');
  assert.deepEqual(
    changes.filter(change => change !== 'process-ended'),
    ['started cell', 'ended cell died']
  );
  for (const next of ['unknown', 'idle', 'starting']) {
    const restarted = made();
    restarted.connection.begin();
    restarted.connection.change('restarting');
    restarted.connection.change(next);
    assert.deepEqual(restarted.changes, ['started cell', 'process-ended', 'ended cell lost']);
  }
  const dead = made();
  dead.connection.begin();
  dead.connection.change('dead');
  dead.connection.dispose();
  assert.deepEqual(dead.changes.slice(0, 3), ['started cell', 'process-ended', 'ended cell died']);
  assert.equal(dead.activity.phase, 'dead');
});

test('another client’s restart and another kernel end the cell at an unknown time', () => {
  const { connection, changes } = made();
  connection.begin();
  connection.publish('starting', {}, 'process 2');
  assert.deepEqual(changes, ['started cell', 'process-ended', 'ended cell lost']);
  const changed = made();
  changed.connection.begin();
  changed.connection.dispose();
  assert.deepEqual(changed.changes, ['started cell', 'process-ended', 'ended cell lost']);
});

test('only what the present process has run counts as run', () => {
  const { connection, activity } = made();
  const has = (executionCount: number, started: number, counts: number[] = []): boolean =>
    activity.hasRun({ executionCount, started }, counts);
  connection.begin(CELL, 4, 1000);
  connection.begin({ ...CELL, msg_id: 'next' }, 9, 1100);
  assert.deepEqual([has(4, 1000), has(4, 900), has(3, 1000)], [true, false, false]);
  assert.deepEqual([has(9, 1100, [4, 9]), has(9, 1100, [5, 9])], [true, false]);
  connection.begin({ ...CELL, msg_id: 'first' }, 1, 1200); // A process that has no session id of its own.
  assert.deepEqual([has(4, 1000), has(9, 1100), has(1, 1200)], [false, false, true]);
  connection.change('restarting');
  assert.equal(has(1, 1200), false);
});

test('it is noticed if JupyterLab shows this extension’s requests as activity of the kernel', () => {
  const request = { msg_type: KERNEL_REQUEST };
  for (const isTracked of [false, true]) {
    const { connection, activity, phases } = made();
    for (const state of ['busy', 'idle']) {
      if (isTracked) {
        connection.publish(state, request);
      } else {
        connection.publishUntracked(state, request);
      }
    }
    assert.deepEqual([activity.showsRequests, phases], [isTracked, []]);
  }
});
