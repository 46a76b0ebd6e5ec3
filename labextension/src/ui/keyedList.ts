import { element } from './dom';

/** One line of a list. */
export interface Line {
  readonly node: HTMLElement;
}

/** A list whose lines stay the same nodes while their keys are there: only what differs is written. */
export class KeyedList<Of extends Line> {
  readonly node: HTMLUListElement;
  private readonly lines = new Map<string, Of>();
  private keys: readonly string[] = [];

  constructor(
    className: string,
    private readonly make: (key: string) => Of
  ) {
    this.node = element('ul', className);
  }

  /** The lines of `keys`, in this order; those of others are taken away. */
  arrange(keys: readonly string[]): Of[] {
    const wanted = keys.map(key => {
      const line = this.lines.get(key) ?? this.make(key);
      this.lines.set(key, line);
      return line;
    });
    if (keys.length !== this.keys.length || keys.some((key, place) => key !== this.keys[place])) {
      this.keys = [...keys];
      this.place(new Set(keys), wanted);
    }
    return wanted;
  }

  private place(keys: ReadonlySet<string>, wanted: readonly Of[]): void {
    for (const [key, line] of this.lines) {
      if (!keys.has(key)) {
        line.node.remove();
        this.lines.delete(key);
      }
    }
    const focused = document.activeElement;
    wanted.forEach(({ node }, place) => {
      const there = this.node.children[place] ?? null;
      if (there !== node) {
        this.node.insertBefore(node, there);
      }
    });
    // A line that was moved has lost the keyboard.
    if (focused instanceof HTMLElement && focused !== document.activeElement && this.node.contains(focused)) {
      focused.focus();
    }
  }
}
