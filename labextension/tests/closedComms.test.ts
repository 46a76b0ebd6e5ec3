import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { Signal } from '@lumino/signaling';

import { releaseClosedComms, type Connection } from '../src/model/kernel/closedComms';
import { FakeActivity } from './fakes';

interface Comm {
  onClose: unknown;
  onMsg: unknown;
}

/** A connection to a kernel, as JupyterLab 4.6 has it. */
class FakeConnection {
  private readonly comms = new Map<string, Comm>();
  _comms: { readonly get?: unknown } | undefined = this.comms;
  readonly activity = new FakeActivity();
  readonly iopubMessage = new Signal<this, unknown>(this);

  /** Open a comm as the kernel does: JupyterLab has added it when it emits the message. */
  open(id: string, target = 'jupyter.widget'): Comm {
    const comm = { onClose: () => 'close', onMsg: () => 'message' };
    this.comms.set(id, comm);
    this.emit('comm_open', { comm_id: id, target_name: target });
    return comm;
  }

  /** Close a comm as the kernel does: JupyterLab has removed it when it emits the message. */
  close(id: string): void {
    this.comms.delete(id);
    this.emit('comm_close', { comm_id: id });
  }

  emit(type: string, content: unknown): void {
    this.iopubMessage.emit({ header: { msg_type: type }, content });
  }
}

function results({ onClose, onMsg }: Comm): unknown[] {
  return [onClose, onMsg].map(callback => (callback as () => unknown)());
}

function watched(): FakeConnection {
  const connection = new FakeConnection();
  releaseClosedComms(connection as unknown as Connection, connection.activity);
  return connection;
}

test('a comm that the kernel has closed no longer references its widget', () => {
  const connection = watched();
  const first = connection.open('a');
  const second = connection.open('b');
  connection.close('a');
  assert.deepEqual(results(first), [undefined, undefined]);
  assert.deepEqual(results(second), ['close', 'message']);
});

test('comms that are no widgets keep their callbacks', () => {
  const connection = watched();
  const comm = connection.open('a', 'another.target');
  connection.close('a');
  assert.deepEqual(results(comm), ['close', 'message']);
});

test('comms of an earlier process are forgotten', () => {
  const connection = watched();
  const comm = connection.open('a');
  connection.activity.changed.emit({ kind: 'process-ended' });
  connection.close('a');
  assert.deepEqual(results(comm), ['close', 'message']);
});

test('a JupyterLab without this list of comms changes nothing', () => {
  const connection = watched();
  for (const comms of [{}, undefined]) {
    connection._comms = comms;
    const comm = connection.open('a');
    connection.close('a');
    connection.emit('comm_close', { comm_id: 'never opened' });
    connection.emit('status', { execution_state: 'idle' });
    assert.deepEqual(results(comm), ['close', 'message']);
  }
});
