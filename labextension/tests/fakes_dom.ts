/**
 * A document for tests of views in Node, and stand-ins for the parts of JupyterLab that Node can't load. Import
 * this file before the views. Nothing has a size in this document, so charts are not drawn.
 */

import { strict as assert } from 'node:assert';
import Module, { createRequire } from 'node:module';

import { settled } from './fakes';

type DomWindow = Window & typeof globalThis;

const { JSDOM } = createRequire(__filename)('jsdom') as {
  JSDOM: new (html: string, options: object) => { readonly window: DomWindow };
};
const { window: page } = new JSDOM('<!doctype html><body></body>', { url: 'http://localhost/lab' });

/** An observer of sizes that observes nothing, since nothing has a size. */
class FakeObserver {
  observe: (target: Element) => void = () => undefined;
  unobserve = (): void => undefined;
  disconnect = (): void => undefined;
}

/** An observer for which every element is in view. */
class FakeIntersectionObserver extends FakeObserver {
  constructor(
    private readonly report: (entries: readonly { target: Element; isIntersecting: boolean }[]) => void
  ) {
    super();
  }

  override observe = (target: Element): void => {
    void Promise.resolve().then(() => {
      this.report([{ target, isIntersecting: true }]);
    });
  };
}

const NAMES = [
  ...['document', 'navigator', 'Node', 'Element', 'HTMLElement', 'HTMLSelectElement', 'HTMLInputElement'],
  ...[
    'HTMLDetailsElement',
    'SVGElement',
    'Option',
    'Event',
    'MouseEvent',
    'KeyboardEvent',
    'MutationObserver'
  ],
  ...['getComputedStyle', 'localStorage', 'DOMParser', 'FocusEvent', 'PointerEvent', 'CustomEvent']
];
const globals: Record<string, unknown> = {
  ...Object.fromEntries(NAMES.map(name => [name, page[name as keyof DomWindow]])),
  window: page,
  DragEvent: page.MouseEvent,
  ResizeObserver: FakeObserver,
  IntersectionObserver: FakeIntersectionObserver,
  matchMedia: () => ({ matches: false, addEventListener: () => undefined }),
  devicePixelRatio: 1,
  // The frame comes as soon as the pending promises have settled.
  requestAnimationFrame: (action: () => void) => setImmediate(action),
  cancelAnimationFrame: () => undefined
};
for (const [name, value] of Object.entries(globals)) {
  Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
}

/** An icon without a picture. */
class FakeIcon {
  element({ tag, className = '' }: { tag: string; className?: string }): HTMLElement {
    const node = document.createElement(tag);
    node.className = className;
    return node;
  }
}

/** A picture that is shown while something is loading. */
class FakeSpinner {
  readonly node = document.createElement('div');
  dispose = (): void => undefined;
}

/** What the user is asked, and what a test answers. */
export const dialogs = {
  shown: [] as { title: string; body: unknown; buttons: { label: string }[] }[],
  accept: true
};

/** The notifications that are shown, as JupyterLab's `Notification.emit` receives them. */
export const notifications: {
  message: string;
  type: string;
  options: { autoClose: number | false; actions: { label: string; callback: () => void }[] };
}[] = [];

/** A code cell of a notebook, as JupyterLab's `CodeCell`. */
export class FakeCodeCell {
  readonly node = document.createElement('div');
  /** The execution that the page has requested last. */
  outputArea: { future: unknown } = { future: null };
  readonly model: {
    readonly id: string;
    readonly type: string;
    outputs: unknown;
    sharedModel: { source: string };
  };

  constructor(id: string, type = 'code') {
    const sharedModel = { source: '', setSource: (source: string) => (sharedModel.source = source) };
    this.model = { id, type, outputs: { length: 0 }, sharedModel };
  }
}

/** The notebook whose actions JupyterLab offers, as far as this extension uses it. */
interface ActiveCells {
  widgets: FakeCodeCell[];
  activeCell: FakeCodeCell | null;
}

/** The type of a cell that JupyterLab inserts. */
export const newCells = { type: 'code' };

const icons = ['caretDownEmptyIcon', 'closeIcon', 'ellipsesIcon', 'launchIcon'];
const STUBS: Readonly<Record<string, unknown>> = {
  '@jupyterlab/ui-components': {
    LabIcon: FakeIcon,
    Spinner: FakeSpinner,
    ...Object.fromEntries(icons.map(name => [name, new FakeIcon()]))
  },
  '@jupyterlab/cells': { CodeCell: FakeCodeCell },
  '@jupyterlab/notebook': {
    NotebookActions: {
      insertBelow: (notebook: ActiveCells) => {
        notebook.activeCell = new FakeCodeCell('new', newCells.type);
        notebook.widgets.push(notebook.activeCell);
      },
      changeCellType: (notebook: ActiveCells, type: string) => {
        notebook.widgets.pop();
        notebook.activeCell = new FakeCodeCell('new', type);
        notebook.widgets.push(notebook.activeCell);
      },
      expandParent: () => undefined
    }
  },
  '@jupyterlab/apputils': {
    Dialog: {
      cancelButton: (options = {}) => ({ label: 'Cancel', ...options }),
      okButton: (options = {}) => ({ label: 'OK', ...options }),
      warnButton: (options = {}) => ({ label: 'OK', ...options })
    },
    showDialog: (options: (typeof dialogs.shown)[number]) => {
      dialogs.shown.push(options);
      return Promise.resolve({ button: { accept: dialogs.accept } });
    },
    showErrorMessage: (title: string, body: unknown) => {
      dialogs.shown.push({ title, body, buttons: [] });
      return Promise.resolve();
    },
    Notification: {
      emit: (message: string, type: string, options: (typeof notifications)[number]['options']): string => {
        notifications.push({ message, type, options });
        return String(notifications.length);
      }
    }
  }
};

const loader = Module as unknown as { _load: (name: string, ...rest: unknown[]) => unknown };
const load = loader._load.bind(Module);
loader._load = (name, ...rest) => STUBS[name] ?? load(name, ...rest);

/** Put a node into the document, in place of the last one. */
export function mount(node: HTMLElement): void {
  document.body.replaceChildren(node);
}

/** Return the visible text of a node, in one line. */
export function textOf(node: Element): string {
  const parts: string[] = [];
  const collect = (from: Node): void => {
    for (const child of from.childNodes) {
      if (child.nodeType === page.Node.TEXT_NODE) {
        parts.push(child.textContent ?? '');
      } else if (!(child instanceof page.HTMLElement && child.hidden)) {
        collect(child);
      }
    }
  };
  collect(node);
  return parts
    .map(part => part.trim())
    .filter(part => part !== '')
    .join(' | ');
}

/** Return the only element that matches, inside `node`. */
// eslint-disable-next-line @typescript-eslint/no-unnecessary-type-parameters -- as for querySelector()
export function find<Found extends Element = HTMLElement>(node: ParentNode, selector: string): Found {
  const found = [...node.querySelectorAll<Found>(selector)];
  const [first] = found;
  assert.ok(first && found.length === 1, `${String(found.length)} elements match ${selector}`);
  return first;
}

/** Return the texts of all elements that match, inside `node`. */
export function texts(node: ParentNode, selector: string): string[] {
  return [...node.querySelectorAll(selector)].map(textOf);
}

/** Choose an option, as a user does. */
export function choose(select: HTMLSelectElement, value: string): void {
  select.value = value;
  select.dispatchEvent(new page.Event('change'));
}

/** Press a key on the focused element. Return whether the page has left the key to the browser. */
export function press(key: string): boolean {
  const event = new page.KeyboardEvent('keydown', { key, bubbles: true, cancelable: true });
  return (document.activeElement ?? document.body).dispatchEvent(event);
}

/** Wait until widgets have been updated. */
export async function updated(): Promise<void> {
  await settled();
  await settled();
}
