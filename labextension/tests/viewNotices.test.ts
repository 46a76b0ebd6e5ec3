import './fakes_dom';

import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { StatusMessage } from '../src/model/memory/statusMessage';
import { MessageSection } from '../src/views/panel/messageSection';
import { NoticeView } from '../src/views/panel/notice';
import { FakeClock, trans } from './fakes';
import { find, mount, textOf, updated } from './fakes_dom';
import { mountSection, panelContext } from './fakes_panel';

test('a notice shows foreign text as text, never as markup', () => {
  const view = new NoticeView(trans, () => undefined);
  view.show({ text: '<img src=x onerror=alert(1)>', command: '%pip install <b>x</b>' });
  assert.equal(view.node.querySelector('img, b'), null);
  assert.equal(textOf(view.node), '<img src=x onerror=alert(1)> | %pip install <b>x</b>');
});

test('without a notice, nothing of the last one is shown, and there is no button to focus', () => {
  let loads = 0;
  const view = new NoticeView(trans, () => loads++);
  mount(view.node);
  view.show({ text: 'Not loaded.', action: 'load', link: 'https://example.org/' });
  assert.equal(view.focus(), true);
  find<HTMLButtonElement>(view.node, 'button').click();
  assert.equal(find<HTMLAnchorElement>(view.node, 'a').href, 'https://example.org/');
  view.show(null);
  assert.deepEqual([view.node.hidden, view.focus(), loads], [true, false, 1]);
  view.show({ text: 'Something else.' });
  assert.equal(textOf(view.node), 'Something else.');
});

test('a sentence that counts seconds is not read aloud every second', () => {
  const view = new NoticeView(trans, () => undefined);
  view.show({ text: 'No data for 5 s.', countsSeconds: true });
  assert.equal(view.node.getAttribute('aria-live'), 'off');
  view.show({ text: 'The server does not answer.' });
  assert.equal(view.node.getAttribute('aria-live'), 'polite');
});

test('the result of an action is announced also while it is shown at its line, and disappears after 20 s', async () => {
  const clock = new FakeClock();
  const message = new StatusMessage(clock);
  const view = new MessageSection(panelContext({ holders: { message } }));
  mountSection(view);
  const status = find(view.node, '[role=status]');
  assert.deepEqual([view.node.dataset.empty, textOf(status)], ['true', '']);
  message.set('Freed 2 GiB.', 'result', 'kernel-1');
  await updated();
  assert.deepEqual([view.node.dataset.empty, textOf(status)], [undefined, 'Freed 2 GiB.']);
  view.setAtHolder(true);
  await updated();
  assert.deepEqual([view.node.dataset.empty, textOf(status), status.hidden], ['true', 'Freed 2 GiB.', false]);
  await clock.pass(20_000);
  await updated();
  assert.deepEqual([textOf(status), clock.running], ['', 0]);
});

test('a message can be dismissed, and a disposed view shows no further ones', async () => {
  const message = new StatusMessage(new FakeClock());
  const view = new MessageSection(panelContext({ holders: { message } }));
  mountSection(view);
  message.set('It failed.', 'error');
  await updated();
  find<HTMLButtonElement>(view.node, '[aria-label=Dismiss]').click();
  await updated();
  assert.deepEqual([message.text, view.node.dataset.empty], ['', 'true']);
  view.dispose();
  message.set('Later.');
  await updated();
  assert.equal(view.node.dataset.empty, 'true');
});
