import './fakes_dom';

import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import type { TranslatedDiagnosis } from '../src/wire/kernelReply';
import type { Check, Problem } from '../src/wire/wire';
import { EnvironmentView } from '../src/views/doctor/environmentView';
import type { ShownCheck } from '../src/views/doctor/doctorMessages';
import { DIAGNOSIS, trans } from './fakes';
import { find, mount, textOf, texts } from './fakes_dom';

function check(id: string, status: Check['status'], found = ''): Check {
  return { ...DIAGNOSIS.links[0], id, title: id, status, found, evidence: {}, issues: [] } as Check;
}

const FIX = {
  id: 'fix',
  params: {},
  before: 'Load it:',
  command: 'sudo modprobe <b>x</b>',
  after: '. Then restart.'
};

function problem(changes: Partial<Problem> = {}): Problem {
  return {
    check: 'torch',
    status: 'broken',
    issues: [],
    reasons: ['It is broken.'],
    fix: FIX,
    affects: [],
    ...changes
  };
}

function diagnosis(links: readonly Check[], problems: readonly Problem[] = []): TranslatedDiagnosis {
  return { ...DIAGNOSIS, links, problems, texts: {} };
}

/** Show this diagnosis. Return the view, the checks that it shows, and what the user has copied. */
function shown(
  found: TranslatedDiagnosis,
  texts = {}
): { view: EnvironmentView; checks: readonly ShownCheck[]; copied: string[] } {
  const copied: string[] = [];
  const view = new EnvironmentView(trans, text => copied.push(text));
  const checks: readonly ShownCheck[] = found.links.map(each => ({
    check: each,
    problems: found.problems
      .filter(({ check: id }) => id === each.id)
      .map(one => ({ problem: one, affects: one.affects })),
    causes: []
  }));
  view.show('Kernel', { kind: 'done', diagnosis: found }, 'One problem.', checks, texts);
  mount(view.node);
  return { view, checks, copied };
}

test('a check that has found the cause of a problem is expanded, with its reason and its fix', () => {
  const found = diagnosis([check('driver', 'ok', '580'), check('torch', 'broken')], [problem()]);
  const { view, copied } = shown(found);
  const open = [...view.node.querySelectorAll('details.jp-gpuwidget-doctor-check')].map(
    node => (node as HTMLDetailsElement).open
  );
  assert.deepEqual(open, [false, true]);
  const broken = find(view.node, '[data-status=broken]');
  assert.match(
    textOf(broken),
    /It is broken\. \| Fix: \| Load it: \| sudo modprobe <b>x<\/b> \| Copy \| Then restart\.$/
  );
  find<HTMLButtonElement>(broken, '.jp-gpuwidget-doctor-fix button').click();
  assert.deepEqual(copied, ['sudo modprobe <b>x</b>']);
});

test('texts of the diagnosis are translated, and raw data that is the same string is not', () => {
  const torch = { ...check('torch', 'ok', 'found'), evidence: { name: 'found' } };
  const { view } = shown(diagnosis([torch]), { found: 'gefunden' });
  assert.deepEqual(texts(view.node, '.jp-gpuwidget-doctor-check-found'), ['gefunden']);
  assert.deepEqual(texts(view.node, 'dd'), ['found']);
});

test('a check that the user has expanded stays so while the checks run again', () => {
  const found = diagnosis([check('driver', 'ok', '580')]);
  const { view, checks } = shown(found);
  const details = find<HTMLDetailsElement>(view.node, '[data-status=ok]');
  details.open = true;
  view.show('Kernel', { kind: 'running', previous: found }, 'Running…', checks, {});
  assert.equal(view.node.getAttribute('aria-busy'), 'true');
  assert.equal(find<HTMLDetailsElement>(view.node, '[data-status=ok]').open, true);
});
