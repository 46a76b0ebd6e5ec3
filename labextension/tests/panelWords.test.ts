import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { Condition, KernelView } from '../src/kernel/kernels';
import { kernelNotice } from '../src/panel/words';
import type { ServerInfo } from '../src/stream/streamModel';
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
    refusal: null,
    refused: null,
    wished: null
  };
}

function server(changes: Partial<ServerInfo> = {}): ServerInfo {
  return { version: '0.1.0', interval: 0.2, install: null, documentation: null, ...changes };
}

const MISSING: Condition[] = [
  { kind: 'not-installed' },
  { kind: 'other-package' },
  { kind: 'other-version', version: '0.0.9' }
];

test('what the administrator configured is offered, quoted as it is to be run', () => {
  for (const condition of MISSING) {
    const notice = kernelNotice(trans, view(condition), server(CONFIGURED));
    assert.equal(notice?.command, "%pip install '/srv/my wheels/x.whl'");
    assert.match(notice.text, /[Rr]un in a cell/);
    assert.equal(notice.link, undefined);
  }
});

test('without a configuration the documentation is named and no name of an index', () => {
  for (const condition of MISSING) {
    const documented = kernelNotice(trans, view(condition), server(DOCUMENTED));
    assert.equal(documented?.link, 'https://docs.example.org/');
    assert.equal(documented.command, undefined);
    for (const known of [server(), null]) {
      const notice = kernelNotice(trans, view(condition), known);
      assert.match(notice?.text ?? '', /“Install it” in its README\.$/);
      assert.equal(notice?.command, undefined);
      assert.equal(notice?.link, undefined);
      assert.doesNotMatch(JSON.stringify(notice), /pip install/);
    }
  }
});

test('beside the panel, other sections give the reason alone', () => {
  for (const condition of MISSING) {
    const notice = kernelNotice(trans, view(condition));
    assert.doesNotMatch(JSON.stringify(notice), /README|cell|command|link/);
  }
});

test('a kernel without gpuwidget can be asked to load it once it is installed', () => {
  assert.equal(kernelNotice(trans, view({ kind: 'not-installed' }), server())?.action, 'load');
});
