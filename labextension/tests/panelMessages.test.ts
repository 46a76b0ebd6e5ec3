import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { Condition, KernelView } from '../src/model/kernel/kernels';
import { kernelNotice, serverNotice, type Notice } from '../src/views/panel/panelMessages';
import type { ServerInfo } from '../src/model/stream/streamModel';
import { trans } from './fakes';

const DOCUMENTED = { install: null, documentation: 'https://docs.example.org/' };
const CONFIGURED = { install: "pip install '/srv/my wheels/x.whl'", documentation: null };

function view(condition: Condition): KernelView {
  return {
    notebook: 'a.ipynb',
    kernel: null,
    condition,
    busy: false,
    restarted: false,
    silentFor: null,
    rejection: null,
    pending: []
  };
}

function server(changes: Partial<ServerInfo> = {}): ServerInfo {
  return { version: '0.1.0', interval: 0.2, install: null, documentation: null, alwaysOn: false, ...changes };
}

const MISSING: Condition[] = [
  { kind: 'not-installed' },
  { kind: 'other-package' },
  { kind: 'other-version', version: '0.0.9' }
];

test('the administrator’s installation command is offered as it is to be run', () => {
  for (const condition of MISSING) {
    const notice = kernelNotice(trans, view(condition), server(CONFIGURED));
    assert.equal(notice?.command, "%pip install '/srv/my wheels/x.whl'");
    assert.match(notice.text, /[Rr]un in a cell/);
    assert.equal(notice.link, undefined);
  }
});

test('without a configured command the documentation is linked, and no package name is offered', () => {
  for (const condition of MISSING) {
    const documented = kernelNotice(trans, view(condition), server(DOCUMENTED));
    assert.equal(documented?.link, 'https://docs.example.org/');
    assert.equal(documented.command, undefined);
    for (const known of [server(), null]) {
      const notice = kernelNotice(trans, view(condition), known);
      assert.match(notice?.text ?? '', /docs\/using\/install\.md in its repository\.$/);
      assert.equal(notice?.command, undefined);
      assert.equal(notice?.link, undefined);
      assert.doesNotMatch(JSON.stringify(notice), /pip install/);
    }
  }
});

test('other sections show the reason only', () => {
  for (const condition of MISSING) {
    const notice = kernelNotice(trans, view(condition));
    assert.doesNotMatch(JSON.stringify(notice), /README|cell|command|link/);
  }
});

test('a package that was refused is named, with what to do, and loading can be tried again', () => {
  assert.deepEqual(kernelNotice(trans, view({ kind: 'refused', path: '/home/ada/gpuwidget' }), server()), {
    text: 'gpuwidget was not loaded. Python would import /home/ada/gpuwidget, which lies in the notebook’s or the kernel’s folder and is not an installed package. Rename it, or run %load_ext gpuwidget in a cell if you trust its code.',
    action: 'load'
  });
});

test('a kernel without gpuwidget offers to load it once it is installed', () => {
  assert.equal(kernelNotice(trans, view({ kind: 'not-installed' }), server())?.action, 'load');
});

test('a server that limits connections or messages is named as the reason', () => {
  const notice = (link: 'full' | 'limited'): Notice | null =>
    serverNotice(trans, { kind: 'none', reason: { link, seconds: null, hasSample: true } });
  const full = notice('full');
  assert.match(full?.text ?? '', /as many pages and programs as it allows.*again within 30 seconds\.$/);
  const limited = notice('limited');
  assert.match(limited?.text ?? '', /too many messages\. Trying again within 30 seconds\.$/);
});
