/** An element with its class and children; text is text and never markup. */
export function element<Name extends keyof HTMLElementTagNameMap>(
  name: Name,
  className: string,
  ...children: (Node | string)[]
): HTMLElementTagNameMap[Name] {
  const made = document.createElement(name);
  if (className !== '') {
    made.className = `jp-gpuwidget-${className}`;
  }
  made.append(...children);
  return made;
}

/** A text that is written in place: only when it differs, and without a new node, so that nothing is laid out. */
export class Text {
  readonly node: HTMLElement;
  private readonly text = document.createTextNode('');

  constructor(className: string, name: 'span' | 'div' | 'code' | 'b' | 'h3' = 'span') {
    this.node = element(name, className, this.text);
  }

  /** What stands there. */
  get value(): string {
    return this.text.data;
  }

  /** Write `value`, with the whole of it or a reason to hover. */
  set(value: string, title = ''): void {
    if (this.text.data !== value) {
      this.text.data = value;
    }
    setAttribute(this.node, 'title', title);
  }
}

/** Set an attribute when it differs; an empty one is taken away. */
export function setAttribute(node: Element, name: string, value: string): void {
  if ((node.getAttribute(name) ?? '') === value) {
    return;
  }
  if (value === '') {
    node.removeAttribute(name);
  } else {
    node.setAttribute(name, value);
  }
}

/** The keys that select another option of a closed `select` at once, beside letters. */
const SELECTING_KEYS: ReadonlySet<string> = new Set([
  'ArrowUp',
  'ArrowDown',
  'ArrowLeft',
  'ArrowRight',
  'Home',
  'End',
  'PageUp',
  'PageDown'
]);

/**
 * Have keys that would select another option of the closed `select` open its list instead, as on macOS: each option on
 * the way would be chosen otherwise.
 */
export function openListOnKeys(select: HTMLSelectElement): void {
  select.onkeydown = event => {
    const modified = event.altKey || event.ctrlKey || event.metaKey;
    const letter = event.key.length === 1 && event.key !== ' ';
    if (modified || !(letter || SELECTING_KEYS.has(event.key))) {
      return;
    }
    event.preventDefault();
    try {
      select.showPicker();
    } catch {
      // Older browsers have no such method and others forbid it in frames; Space and Alt with an arrow open the list.
    }
  };
}
