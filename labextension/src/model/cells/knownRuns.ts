/** At most this many runs are remembered, the latest ones. The server lists at most 200 runs that have ended. */
const MAX_RUNS = 500;
/** Runs that ended more than this many seconds before this browser looked for the first time are no news. */
const NEWS_S = 7 * 86_400;

/** The part of the browser's storage that is used here. All pages of a user's browser share it. */
export type RunStorage = Pick<Storage, 'getItem' | 'setItem'>;

/** What is stored. */
interface Stored {
  /** When this browser looked for the first time, in epoch seconds. */
  readonly since: number;
  /** Ids of the runs of which the user knows that they have ended. */
  readonly known: readonly string[];
  /** Ids of the runs whose card is or was in the notebook's file, or that the user has dismissed. */
  readonly done: readonly string[];
}

/** What all pages of the user's browser know about runs at one time. */
export interface KnownState {
  /** Whether this browser has never looked before. */
  readonly isFirst: boolean;
  /** The runs that ended before this time, in epoch seconds, are no news. */
  readonly newsSince: number;
  /** Ids of the runs of which the user knows that they have ended. */
  readonly known: ReadonlySet<string>;
  /** Ids of the runs whose card need not be offered any more. */
  readonly done: ReadonlySet<string>;
}

/** The runs of which the user knows already, shared by all pages of the user's browser. */
export class KnownRuns {
  /** If the browser stores nothing, for example because it blocks storage, the state lasts as long as the page. */
  private last: Stored | null = null;

  /** `now` returns the time in epoch seconds. */
  constructor(
    private readonly storage: RunStorage | null,
    private readonly key: string,
    private readonly now: () => number
  ) {}

  /** Return the present state. Read it before each decision, since another page may have changed it. */
  read(): KnownState {
    const stored = this.fetch();
    return {
      isFirst: stored === null,
      newsSince: (stored?.since ?? this.now()) - NEWS_S,
      known: new Set(stored?.known),
      done: new Set(stored?.done)
    };
  }

  /** Remember that the user knows that the runs `known` have ended, and that the cards of `done` are not needed. */
  add(known: readonly string[], done: readonly string[] = []): void {
    const stored = this.fetch();
    if (
      stored !== null &&
      known.every(id => stored.known.includes(id)) &&
      done.every(id => stored.done.includes(id))
    ) {
      return;
    }
    const join = (ids: readonly string[], more: readonly string[]): readonly string[] =>
      [...new Set([...ids, ...more])].slice(-MAX_RUNS);
    this.last = {
      since: stored?.since ?? this.now(),
      known: join(stored?.known ?? [], known),
      done: join(stored?.done ?? [], done)
    };
    try {
      this.storage?.setItem(this.key, JSON.stringify(this.last));
    } catch {
      // The storage is full or blocked.
    }
  }

  private fetch(): Stored | null {
    try {
      this.last = parsedStore(JSON.parse(this.storage?.getItem(this.key) ?? 'null')) ?? this.last;
    } catch {
      // The storage is blocked, or has something else.
    }
    return this.last;
  }
}

function parsedStore(value: unknown): Stored | null {
  const { since, known, done } = (value ?? {}) as Partial<Record<keyof Stored, unknown>>;
  return typeof since === 'number' ? { since, known: texts(known), done: texts(done) } : null;
}

function texts(value: unknown): readonly string[] {
  return Array.isArray(value) ? value.filter(each => typeof each === 'string') : [];
}
