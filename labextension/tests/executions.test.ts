import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { Executions, type Header, type StatusMessage } from '../src/model/kernel/executions';

const PAGE = 'this page';

/** Return a status message about the request with this `id`, an execute request by default. */
function status(state: string, id: string, parent: Header = {}, session = 'process 1'): StatusMessage {
  return {
    header: { msg_type: 'status', session },
    parent_header: { msg_id: id, msg_type: 'execute_request', session: PAGE, ...parent },
    content: { execution_state: state }
  };
}

/** Return whether a cell is running after these messages; null if the messages do not show it. */
function after(...messages: StatusMessage[]): boolean | null {
  const executions = new Executions();
  for (const message of messages) {
    executions.receive(message, PAGE);
  }
  return executions.running;
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
});

test('a restarted kernel runs nothing', () => {
  const executions = new Executions();
  executions.receive(status('busy', '1'), PAGE);
  executions.reset();
  assert.equal(executions.running, false);
  const started: StatusMessage = {
    header: { msg_type: 'status', session: 'process 2' },
    parent_header: {},
    content: { execution_state: 'starting' }
  };
  assert.equal(after(status('busy', '1'), started), false);
});

test('a kernel that repeats the session of each request does not look restarted', () => {
  const other = { session: 'another page', msg_type: 'comm_info_request' };
  assert.equal(after(status('busy', '1', {}, PAGE), status('idle', '2', other, 'another page')), true);
});
