/**
 * Return an element with the class `jp-gpuwidget-<className>` and `children`. Strings become text, never
 * markup.
 */
export function element<Name extends keyof HTMLElementTagNameMap>(
  name: Name,
  className: string,
  ...children: (Node | string)[]
): HTMLElementTagNameMap[Name] {
  const node = document.createElement(name);
  if (className !== '') {
    node.className = `jp-gpuwidget-${className}`;
  }
  node.append(...children);
  return node;
}

/** An element with text that is updated in place. Setting the same value again causes no layout. */
export class TextElement {
  readonly node: HTMLElement;
  private readonly text = document.createTextNode('');

  constructor(className: string, name: 'span' | 'div' | 'code' | 'b' | 'h3' = 'span') {
    this.node = element(name, className, this.text);
  }

  /** The element's current text. */
  get value(): string {
    return this.text.data;
  }

  /** Set the text and its tooltip. */
  set(value: string, title = ''): void {
    if (this.text.data !== value) {
      this.text.data = value;
    }
    setAttribute(this.node, 'title', title);
  }
}

/** Set an attribute if its value differs. An empty value removes the attribute. */
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

/** Hide or show an element. Setting the attribute to the value that it has would invalidate the element's style. */
export function setHidden(node: HTMLElement, hidden: boolean): void {
  if (node.hidden !== hidden) {
    node.hidden = hidden;
  }
}

/** An item of a `KeyedList`. */
export interface ListItem {
  readonly node: HTMLElement;
}

/** A list that reuses the node of each item for as long as the item's key is in the list. */
export class KeyedList<Item extends ListItem> {
  readonly node: HTMLElement;
  private readonly items = new Map<string, Item>();
  private keys: readonly string[] = [];

  constructor(
    className: string,
    private readonly create: (key: string) => Item,
    name: 'ul' | 'div' = 'ul'
  ) {
    this.node = element(name, className);
  }

  /** Show the items of `keys` in this order and remove all others. Return the items. */
  arrange(keys: readonly string[]): Item[] {
    const items = keys.map(key => {
      const item = this.items.get(key) ?? this.create(key);
      this.items.set(key, item);
      return item;
    });
    if (keys.length !== this.keys.length || keys.some((key, index) => key !== this.keys[index])) {
      this.keys = [...keys];
      this.updateNodes(new Set(keys), items);
    }
    return items;
  }

  private updateNodes(keys: ReadonlySet<string>, items: readonly Item[]): void {
    for (const [key, item] of this.items) {
      if (!keys.has(key)) {
        item.node.remove();
        this.items.delete(key);
      }
    }
    const focused = document.activeElement;
    items.forEach(({ node }, index) => {
      const present = this.node.children[index] ?? null;
      if (present !== node) {
        this.node.insertBefore(node, present);
      }
    });
    // A node that is moved within the document loses the focus, so restore it.
    if (focused instanceof HTMLElement && focused !== document.activeElement && this.node.contains(focused)) {
      focused.focus();
    }
  }
}

/** The keys, in addition to letters, that immediately select another option of a closed `select`. */
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
 * Open the list of `select` when the user presses a letter or one of `SELECTING_KEYS`, as browsers on macOS
 * do. On other systems, such a key press selects another option while the list stays closed, so that each
 * key press on the way to the wanted option would choose an option.
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
      // Older browsers lack showPicker(), and others do not allow it in frames. The user can still open the
      // list with Space, or with Alt and an arrow key.
    }
  };
}

/**
 * Elements that are at most this far from the visible area count as visible, because they are about to be
 * scrolled into it.
 */
const MARGIN = '60px';

/** Tracks which elements are visible: those that are inside the scrolled area and not hidden. */
export class VisibilityTracker {
  private readonly visible = new Set<Element>();
  private readonly observer: IntersectionObserver;

  /** `onVisible` is called after one or more elements have become visible. */
  constructor(onVisible: () => void) {
    this.observer = new IntersectionObserver(
      entries => {
        for (const { target, isIntersecting } of entries) {
          if (isIntersecting) {
            this.visible.add(target);
          } else {
            this.visible.delete(target);
          }
        }
        if (entries.some(({ isIntersecting }) => isIntersecting)) {
          onVisible();
        }
      },
      // Inside a scrolled container, only `scrollMargin` has an effect, which TypeScript does not know yet.
      { rootMargin: MARGIN, scrollMargin: MARGIN } as IntersectionObserverInit
    );
  }

  /**
   * Return whether `element` is visible; false until the browser has reported the element for the first time.
   */
  has(element: Element): boolean {
    return this.visible.has(element);
  }

  /** Start tracking `element`. */
  observe(element: Element): void {
    this.observer.observe(element);
  }

  /** Stop tracking `element`. */
  unobserve(element: Element): void {
    this.observer.unobserve(element);
    this.visible.delete(element);
  }

  /** Stop tracking all elements. */
  dispose(): void {
    this.observer.disconnect();
    this.visible.clear();
  }
}
