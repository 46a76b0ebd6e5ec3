import './fakes_dom';

import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { Signal } from '@lumino/signaling';

import { PanelState } from '../src/model/panelState';
import { element } from '../src/ui/dom';
import { CollapsibleSection, PanelSection } from '../src/ui/panelSection';
import { updated } from './fakes_dom';
import { mountSection } from './fakes_panel';

const source = new Signal<object, void>({});

class Counter extends PanelSection {
  renders = 0;
  hasContent = true;

  constructor() {
    super(element('div', ''), [source]);
  }

  protected override render(): boolean {
    this.renders++;
    return this.hasContent;
  }
}

class Folded extends CollapsibleSection {
  protected override render(): boolean {
    this.summary.set(this.node.open ? 'open' : 'closed');
    return true;
  }
}

test('a section is updated once for several signals, and not at all while the panel is hidden', async () => {
  const section = new Counter();
  mountSection(section);
  await updated();
  const before = section.renders;
  source.emit();
  source.emit();
  await updated();
  assert.equal(section.renders, before + 1);
  section.parent?.hide();
  source.emit();
  await updated();
  assert.equal(section.renders, before + 1);
  section.parent?.show();
  source.emit();
  await updated();
  assert.equal(section.renders, before + 2);
});

test('a section without content is hidden until it has some', async () => {
  const section = new Counter();
  section.hasContent = false;
  mountSection(section);
  assert.equal(section.isHidden, true);
  section.hasContent = true;
  source.emit();
  await updated();
  assert.equal(section.isHidden, false);
});

test('a disposed section follows no signals', async () => {
  const section = new Counter();
  mountSection(section);
  const before = section.renders;
  section.dispose();
  source.emit();
  await updated();
  assert.equal(section.renders, before);
});

test('a folded section is as the user has left it', async () => {
  const panelState = new PanelState(null);
  panelState.setExpanded('notes', true);
  const section = new Folded({ className: 'notes', title: 'Notes', panelState, name: 'notes', sources: [] });
  mountSection(section);
  await updated();
  assert.deepEqual(
    [section.node.open, section.node.querySelector('summary')?.textContent],
    [true, 'Notesopen']
  );
});
