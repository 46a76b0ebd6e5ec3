/** A visible panel for tests of its sections. Import `fakes_dom` before this file. */

import { Signal } from '@lumino/signaling';
import { Panel, Widget } from '@lumino/widgets';

import { DEFAULTS } from '../src/model/settings/settings';
import { StatusMessage } from '../src/model/memory/statusMessage';
import { StreamModel } from '../src/model/stream/streamModel';
import type { PanelSection } from '../src/ui/panelSection';
import type { PanelContext } from '../src/views/panel/panelContext';
import { FakeClock, trans } from './fakes';
import { mount } from './fakes_dom';

/** Return a context without data, with `changes`. */
export function panelContext(changes: object): PanelContext {
  return {
    trans,
    monitor: {
      model: new StreamModel(),
      changed: new Signal({}),
      data: { kind: 'none', reason: { kind: 'off' } }
    },
    holders: { message: new StatusMessage(new FakeClock()) },
    settings: {
      current: {
        show: Object.fromEntries(Object.keys(DEFAULTS.show).map(part => [part, true]))
      },
      changed: new Signal({})
    },
    themes: null,
    hideOtherUsers: false,
    locale: 'en',
    ...changes
  } as unknown as PanelContext;
}

/** Put a section into a visible panel, in place of the last one. */
export function mountSection(section: PanelSection): void {
  const panel = new Panel();
  mount(document.createElement('main'));
  Widget.attach(panel, document.body);
  panel.addWidget(section);
  render(section);
}

/** Update a section now. */
export function render(section: PanelSection): void {
  section.processMessage(Widget.Msg.UpdateRequest);
}
