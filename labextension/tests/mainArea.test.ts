import './fakes_dom';

import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';

import { TabContent, type LoadView, type MainAreaView } from '../src/ui/mainArea';
import { settled, trans } from './fakes';
import { find, mount, texts } from './fakes_dom';

class View extends Widget implements MainAreaView {
  readonly stateChanged = new Signal<Widget, void>(this);

  constructor(public state: object) {
    super();
  }

  showState(state: object): void {
    this.state = state;
  }
}

/** Open a tab. Return its contents, the number of states it has announced, and what ends the loading. */
function opened(): {
  tab: TabContent<View>;
  changes: () => number;
  finish: (error?: Error) => Promise<void>;
} {
  let [resolve, reject]: [(create: (state: unknown) => View) => void, (error: Error) => void] = [
    () => undefined,
    () => undefined
  ];
  const load: LoadView<View> = () =>
    new Promise((...ends) => {
      [resolve, reject] = ends;
    });
  const tab = new TabContent(trans, 'view', 'View', { metric: 'power' }, load);
  mount(tab.node);
  let count = 0;
  tab.stateChanged.connect(() => count++);
  const finish = async (error?: Error): Promise<void> => {
    if (error) {
      reject(error);
    } else {
      resolve(state => new View(state as object));
    }
    await settled();
  };
  return { tab, changes: () => count, finish };
}

test('a state that is requested while a tab is loading is saved, and the view is created with it', async () => {
  const { tab, changes, finish } = opened();
  assert.deepEqual(tab.state, { metric: 'power' });
  tab.showState({ metric: 'memory' });
  assert.deepEqual([tab.state, changes()], [{ metric: 'memory' }, 1]);
  await finish();
  assert.deepEqual([tab.view?.state, changes()], [{ metric: 'memory' }, 1]);
  tab.showState({ metric: 'clock' });
  tab.view?.stateChanged.emit();
  assert.deepEqual([tab.state, changes()], [{ metric: 'clock' }, 2]);
});

test('a view that could not be loaded is loaded again on request, and the keyboard’s focus stays there', async () => {
  const { tab, finish } = opened();
  await finish(new Error('no server'));
  assert.deepEqual(texts(tab.node, '[role=alert] div'), [
    'Couldn’t load this view from the Jupyter server. If gpuwidget was updated, reload the page.'
  ]);
  const button = find<HTMLButtonElement>(tab.node, '[role=alert] button');
  button.focus();
  button.click();
  await settled();
  assert.deepEqual([texts(tab.node, '[role=alert]'), document.activeElement === tab.node], [[], true]);
  await finish();
  assert.notEqual(tab.view, null);
});

test('a tab that is closed while it is loading creates no view', async () => {
  const { tab, finish } = opened();
  tab.dispose();
  await finish();
  assert.equal(tab.view, null);
});
