import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { Signal } from '@lumino/signaling';

import { releaseClosedComms, type Session } from '../src/model/kernel/closedComms';

interface Comm {
  onClose: unknown;
  onMsg: unknown;
}

/** A notebook's session and its kernel connection, as JupyterLab 4.6 has them. */
class FakeSession {
  readonly comms = new Map<string, Comm>();
  readonly session: { kernel: object | null } | null = { kernel: { _comms: this.comms } };
  readonly iopubMessage = new Signal<this, unknown>(this);
  readonly kernelChanged = new Signal<this, unknown>(this);
  readonly statusChanged = new Signal<this, string>(this);

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

function watched(): FakeSession {
  const session = new FakeSession();
  releaseClosedComms(session as unknown as Session);
  return session;
}

test('a comm that the kernel has closed no longer references its widget', () => {
  const session = watched();
  const first = session.open('a');
  const second = session.open('b');
  session.close('a');
  assert.deepEqual(results(first), [undefined, undefined]);
  assert.deepEqual(results(second), ['close', 'message']);
});

test('comms that are no widgets keep their callbacks', () => {
  const session = watched();
  const comm = session.open('a', 'another.target');
  session.close('a');
  assert.deepEqual(results(comm), ['close', 'message']);
});

test('comms of an earlier kernel are forgotten', () => {
  for (const end of [
    (session: FakeSession) => {
      session.kernelChanged.emit({});
    },
    (session: FakeSession) => {
      session.statusChanged.emit('restarting');
    }
  ]) {
    const session = watched();
    const comm = session.open('a');
    end(session);
    session.close('a');
    assert.deepEqual(results(comm), ['close', 'message']);
  }
});

test('a JupyterLab without this list of comms, or without a kernel, changes nothing', () => {
  const session = watched();
  for (const kernel of [{}, null]) {
    assert.ok(session.session !== null);
    session.session.kernel = kernel;
    const comm = session.open('a');
    session.close('a');
    session.emit('comm_close', { comm_id: 'never opened' });
    session.emit('status', { execution_state: 'idle' });
    assert.deepEqual(results(comm), ['close', 'message']);
  }
});
