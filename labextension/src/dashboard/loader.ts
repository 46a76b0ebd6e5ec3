import { Signal, type ISignal } from '@lumino/signaling';

import type { CourseServer } from '../stream/server';
import type { Timers } from '../timers';
import type { Sample } from '../wire';
import { Course } from './course';
import type { MetricName } from './metrics';
import type { Part } from './state';

const AGAIN_MS = 5000;
/** So long a wish waits for the answer to the one before, which may never come. */
const PATIENCE_MS = 10_000;
/** Samples that are kept while the server is asked; it answers sooner. */
const MOST_WAITING = 1000;
const ROOM = 64;

/** What is to be shown: so many seconds until now, going on, or a part that stands still. */
export interface Wanted {
  readonly span: { readonly seconds: number } | Part;
  readonly metrics: readonly MetricName[];
  /** Most steps that can be told apart. */
  readonly points: number;
}

/** The part of the past that is shown: asked of the server, and carried on with the stream's samples. */
export class Loader {
  private held: Course | null = null;
  private wanted: Wanted | null = null;
  private asked = 0;
  private asking = false;
  /** Whether something was wished since the question that is out. */
  private askAgain = false;
  private waiting: Sample[] = [];
  private error: string | null = null;
  private timer: number | null = null;
  private readonly changes = new Signal<this, void>(this);

  constructor(
    private readonly server: CourseServer,
    private readonly timers: Timers
  ) {}

  /** Emitted when what is held is another, or can't be had. */
  get changed(): ISignal<this, void> {
    return this.changes;
  }

  /** What is held, null before the server has answered. It may be of what was wanted before. */
  get course(): Course | null {
    return this.held;
  }

  /** Whether the server is being asked. */
  get loading(): boolean {
    return this.asking;
  }

  /** Why what is wanted can't be had, null while it can. */
  get failure(): string | null {
    return this.error;
  }

  /** Ask for this from now on; one question at a time, and of several wishes the last: a held key is many. */
  load(wanted: Wanted): void {
    this.wanted = wanted;
    if (!this.asking) {
      this.ask();
      return;
    }
    this.askAgain = true;
    this.timer ??= this.timers.after(PATIENCE_MS, () => {
      this.ask();
    });
  }

  /** Nobody looks: let go of everything. */
  stop(): void {
    this.asked++;
    this.cancel();
    this.held = this.wanted = this.error = null;
    this.asking = this.askAgain = false;
    this.waiting = [];
  }

  /** Take the stream's next sample. */
  take(sample: Sample): void {
    if (this.wanted === null || !('seconds' in this.wanted.span)) {
      return;
    }
    if (this.asking) {
      if (this.waiting.length < MOST_WAITING) {
        this.waiting.push(sample);
      }
    } else if (this.held?.add(sample, sample.time - this.wanted.span.seconds) === false) {
      this.ask();
    }
  }

  private ask(): void {
    const { wanted } = this;
    if (wanted === null) {
      return;
    }
    this.cancel();
    const mine = ++this.asked;
    this.asking = true;
    this.askAgain = false;
    this.waiting = [];
    const { span, metrics, points } = wanted;
    const part = 'seconds' in span ? span : { since: span.from, until: span.to };
    void this.server.course({ part, metrics, points }).then(
      told => {
        if (mine !== this.asked) {
          return; // Nobody waits for it any more.
        }
        if (this.askAgain && !this.moves(span)) {
          this.ask();
          return;
        }
        const course = new Course(2 * points + ROOM, metrics);
        course.restart(told);
        for (const sample of this.waiting) {
          if ('seconds' in span && sample.time > course.newest) {
            course.add(sample, sample.time - span.seconds);
          }
        }
        this.held = course;
        this.settle(null);
      },
      (error: unknown) => {
        if (mine === this.asked) {
          this.settle(error instanceof Error ? error.message : String(error));
        }
      }
    );
  }

  /** Whether from one part to another: those on the way are shown, else a held key would show nothing. */
  private moves(from: Wanted['span']): boolean {
    return !('seconds' in from) && this.wanted !== null && !('seconds' in this.wanted.span);
  }

  private settle(error: string | null): void {
    this.error = error;
    if (this.askAgain) {
      this.ask();
    } else {
      this.cancel();
      this.asking = false;
      this.waiting = [];
      if (error !== null) {
        this.timer = this.timers.after(AGAIN_MS, () => {
          this.ask();
        });
      }
    }
    this.changes.emit();
  }

  private cancel(): void {
    if (this.timer !== null) {
      this.timers.cancel(this.timer);
      this.timer = null;
    }
  }
}
